import { h } from "../core/dom.js";

/** A section with a heading; `note` is a line of explanation. */
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

/** The text for a part without data: what that means, and what to do. */
export function empty(title, ...content) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), content);
}

/** A word with a mark; marks differ in form and in color. */
export function mark(kind, text, title) {
  return h("span", { class: `mark-word ${kind}`, title }, text);
}

/** The placeholder for a response that is not there yet, or was refused. */
export function missing(refusal) {
  return h("p", { class: "missing" }, refusal ? `Unavailable: ${refusal.message}` : "Loading …");
}

/** The requests whose responses have the figures of a view, by name; links if no token is needed. */
export function origins(sources, hasToken) {
  const request = (path) => (hasToken ? h("code", {}, `GET ${path}`) : h("a", { href: path }, `GET ${path}`));
  return h(
    "details",
    { class: "origins", "data-key": "origins" },
    h("summary", {}, "Where these figures come from"),
    h("p", { class: "note" }, "The title of a figure names a response of the control API and its field:"),
    facts(...Object.entries(sources).map(([source, path]) => [source, request(path)])),
  );
}

/** Terms and their values. */
export function facts(...pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs.filter(Boolean).map(([term, ...value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))),
  );
}
