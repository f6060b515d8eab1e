const KEPT = "riglm.range";
const HOUR = 3_600;

/** Each a whole number of steps: the numbers and the charts of a view speak of exactly the same time. */
const RANGES = {
  hour: { label: "hour", step: 60, steps: 60 },
  day: { label: "24 hours", step: HOUR / 2, steps: 48 },
  week: { label: "7 days", step: 3 * HOUR, steps: 56 },
  month: { label: "30 days", step: 12 * HOUR, steps: 60 },
  year: { label: "year", step: 168 * HOUR, steps: 52 },
};

export const ranges = Object.entries(RANGES).map(([id, { label }]) => ({ id, label }));

/** The range that is shown, by its id. */
export function chosenRange() {
  const kept = localStorage.getItem(KEPT);
  return Object.hasOwn(RANGES, kept ?? "") ? kept : "day";
}

export function chooseRange(id) {
  localStorage.setItem(KEPT, id);
}

/** What the range comes to now: whole steps, so that the same is asked until a step is over. */
export function span() {
  const { step, steps } = RANGES[chosenRange()];
  const until = Math.floor(Date.now() / 1_000 / step) * step + step;
  return { since: until - step * steps, until, buckets: steps };
}
