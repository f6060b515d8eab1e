import { h } from "../core/dom.js";
import * as format from "../core/formats.js";

/**
 * Returns `show(pointer, format)` for the numbers of one response of the API: `show("/tokens/net", format.rough)`.
 * Each number has its field and its exact value as data attributes, so that the page can be compared with the API.
 * Its title names the field, and has all digits of a shortened number.
 */
export function shower(source, answer) {
  return (pointer, as = format.count) => {
    const value = at(answer, pointer) ?? null;
    const written = as(value);
    const exact = value === null ? "null" : String(value);
    const attributes = { class: value === 0 ? "number zero" : "number", "data-field": `${source}#${pointer}`, "data-value": exact };
    return h("span", { ...attributes, title: [isShortened(written, value) && format.count(value), `${source}${pointer}`].filter(Boolean).join(" · ") }, written);
  };
}

/** A number in the color of a loss, with a text, if `value` is negative. */
export const signed = (value, shown, text = "a loss") => (value < 0 ? h("span", { class: "loss" }, shown, text && h("span", { class: "loss-text" }, ` ${text}`)) : shown);

/** The age of a time; its title is the exact time. */
export function ago(time) {
  if (time === null || time === undefined) return h("span", { class: "soft" }, "–");
  return h("time", { datetime: time, title: format.when(time), "data-ago": true }, format.age(time));
}

/** Update all ages on the page. */
export function refreshAges(root) {
  for (const time of root.querySelectorAll("time[data-ago]")) {
    const text = format.age(time.dateTime);
    if (time.textContent !== text) time.textContent = text;
  }
}

/** The value at a JSON pointer. */
function at(answer, pointer) {
  const steps = pointer.split("/").slice(1);
  return steps.reduce((value, step) => value?.[step.replaceAll("~1", "/").replaceAll("~0", "~")], answer);
}

/** One step of a JSON pointer. */
export const step = (key) => String(key).replaceAll("~", "~0").replaceAll("/", "~1");

const isShortened = (written, value) => /[KMBT]$/.test(written) && value !== null;
