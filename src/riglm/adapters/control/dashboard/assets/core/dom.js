/**
 * Create an element. Strings become text nodes, so nothing from the API is read as HTML. Attributes that are undefined,
 * null or false are left out; `part`, from 0 to 1, is the length of a bar.
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "part") element.style.setProperty("--part", String(value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

/** A text of riglm, whose commands and settings are between backticks. */
export const prose = (text) => text.split("`").map((part, place) => (place % 2 ? h("code", {}, part) : part));

/** A name from outside, isolated from the text direction around it; it may wrap after the server's name. */
export function name(text, attributes = {}) {
  const parts = text.split(/(?<=__)(?=[^_])/);
  return h("bdi", { class: "name", ...attributes }, parts.flatMap((part, index) => (index ? [h("wbr"), part] : [part])));
}
