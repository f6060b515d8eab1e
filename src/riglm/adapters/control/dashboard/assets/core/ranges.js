const STORAGE_KEY = "riglm.range";
const MINUTE = 60;
const HOUR = 3_600;
const MIN_BUCKETS = 15;
const MAX_BUCKETS = 60;
const STEPS = [MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR / 2, HOUR, 3 * HOUR, 12 * HOUR, 24 * HOUR];

/** Each range is a whole number of steps, so that numbers and charts of a view cover the same time. */
const RANGES = {
  hour: { label: "hour", step: MINUTE, steps: 60 },
  day: { label: "24 hours", step: HOUR / 2, steps: 48 },
  week: { label: "7 days", step: 3 * HOUR, steps: 56 },
  month: { label: "30 days", step: 12 * HOUR, steps: 60 },
  year: { label: "year", step: 168 * HOUR, steps: 52 },
};

export const ranges = Object.entries(RANGES).map(([id, { label }]) => ({ id, label }));

/** The id of the chosen range. */
export function chosenRange() {
  const stored = localStorage.getItem(STORAGE_KEY);
  return Object.hasOwn(RANGES, stored ?? "") ? stored : "day";
}

export function chooseRange(id) {
  localStorage.setItem(STORAGE_KEY, id);
}

/** The time of the chosen range in seconds. It changes once per step, so that requests stay the same until then. */
export function span() {
  const { step, steps } = RANGES[chosenRange()];
  const until = Math.floor(Date.now() / 1_000 / step) * step + step;
  return { since: until - step * steps, until, buckets: steps };
}

/** The time that a chart covers: the chosen range, or only its end if nothing was recorded before. */
export class ChartSpan {
  #range = "";
  #first = 0;

  /** The span to request, given the buckets of the last response (if any). */
  get(buckets = []) {
    const whole = span();
    if (this.#range !== chosenRange()) {
      this.#range = chosenRange();
      this.#first = 0;
    }
    const used = buckets.find((bucket) => bucket.calls > 0 || bucket.lists > 0);
    if (used) this.#first = Math.max(this.#first, Date.parse(used.at) / 1_000);
    const now = Date.now() / 1_000;
    const age = now - this.#first;
    if (this.#first === 0 || age > (whole.until - whole.since) / 2) return whole;
    const step = STEPS.find((one) => age / one <= MAX_BUCKETS - 1) ?? STEPS.at(-1);
    const until = Math.floor(now / step) * step + step;
    const since = Math.min(Math.floor(this.#first / step) * step, until - MIN_BUCKETS * step);
    return since <= whole.since ? whole : { since, until, buckets: Math.round((until - since) / step) };
  }
}
