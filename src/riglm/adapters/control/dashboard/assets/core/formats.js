const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTH = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const NOTHING = "–";
const withMinus = (text) => text.replace("-", "−");

const orNothing = (format) => (value) => (value === null || value === undefined ? NOTHING : format(value));

/** 12,345 */
export const count = orNothing((value) => withMinus(WHOLE.format(value)));

/** The noun of a count: session, sessions */
export const noun = (value, one) => (value === 1 ? one : `${one}s`);

/** 12.3K, −4.56M: for large estimates. */
export const rough = orNothing((value) => withMinus(Math.abs(value) < 10_000 ? WHOLE.format(value) : SHORT.format(value)));

/** 15.4 */
export const mean = orNothing((value) => TENTH.format(value));

/** A share of one as 85.4 % */
export const percent = orNothing((value) => `${TENTH.format(value * 100)} %`);

/** A price relative to another: 0.71 */
export const ratio = orNothing((value) => value.toFixed(2));

/** A score or a part of one, which may be below zero: −1.25 */
export const score = orNothing((value) => value.toFixed(2).replace(/^-0\.00$/, "0.00").replace("-", "−"));

/** Milliseconds: 4.2 ms, 120 ms, 1.3 s */
export const duration = orNothing((value) => {
  if (value < 10) return `${TENTH.format(value)} ms`;
  return value < 1_000 ? `${WHOLE.format(value)} ms` : `${TENTH.format(value / 1_000)} s`;
});

/** How long ago: 12 s, 3 min, 2 h, 4 d */
export function age(time, now = Date.now()) {
  const seconds = Math.max(0, (now - Date.parse(time)) / 1_000);
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3_600)} h` : `${Math.floor(seconds / 86_400)} d`;
}

/** A time in the reader's own zone. */
export const when = (time) => new Date(time).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** A time in the reader's zone as `--since` takes it. */
export const minute = (time) => new Date(time).toLocaleString("sv-SE").slice(0, 16).replace(" ", "T");

/** The time of day, or the day where steps are long. */
export function moment(time, stepSeconds) {
  const date = new Date(time);
  const day = date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  const clock = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (stepSeconds < 7_200) return clock;
  return stepSeconds < 43_200 ? `${day} ${clock}` : day;
}
