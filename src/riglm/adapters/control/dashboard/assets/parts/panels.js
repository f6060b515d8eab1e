import { h } from "../core/dom.js";

/** A part of a view under a heading of its own; `note` says in a line what is seen. */
export function panel(id, title, { note, kind = "", tools } = {}, ...content) {
  const heading = h("div", { class: "panel-head" }, h("h2", { id: `${id}-title`, tabindex: "-1" }, title), tools);
  return h(
    "section",
    { class: `panel ${kind}`, "aria-labelledby": `${id}-title`, "data-key": id },
    heading,
    note && h("p", { class: "note" }, note),
    content,
  );
}

/** What stands where nothing is yet: what it means, and what to do. */
export function empty(title, ...content) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), content);
}

/** One word with a mark whose form differs as well as its colour. */
export function mark(kind, text, title) {
  return h("span", { class: `mark-word ${kind}`, title }, text);
}

/** Stands for an answer that has not come, or that was refused. */
export function missing(refusal) {
  return h("p", { class: "missing" }, refusal ? `Not to be had now: ${refusal.message}` : "Loading …");
}

/** Terms and what they come to. */
export function facts(...pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs.filter(Boolean).map(([term, ...value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))),
  );
}
