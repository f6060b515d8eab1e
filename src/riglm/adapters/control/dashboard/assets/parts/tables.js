import { h } from "../core/dom.js";

/**
 * A table. Columns are `{ head, cell(row), number?, by?, wide?, kind? }`; rows can be sorted by columns with `by`.
 * `key` returns the key of a row; `sorted` is `{ by, down }` of a sortable table. Narrow screens show each row as a card.
 */
export function table({ caption, columns, rows, sorted, key = (row) => row.key, rowClass = () => undefined, id }) {
  const heads = columns.map((column) => head(column, sorted));
  const body = rows.map((row) =>
    h(
      "tr",
      { "data-key": key(row), class: rowClass(row) },
      columns.map((column) => cell(column, row)),
    ),
  );
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption, id },
    h("table", { class: "stackable" }, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, heads)), h("tbody", {}, body)),
  );
}

/** Rows in the chosen order; those without a value come last. */
export function inOrder(rows, { by, down }, value) {
  const direction = down ? -1 : 1;
  const written = (row) => value(row, by);
  return [...rows].sort((one, other) => {
    const [a, b] = [written(one), written(other)];
    if (a === null || b === null) return (a === null) - (b === null);
    return direction * (typeof a === "string" ? a.localeCompare(b) : a - b);
  });
}

/** The next order when a column is chosen: reversed for the same column; numbers start with the largest. */
export function sortedBy(sorted, by, isText) {
  return sorted.by === by ? { by, down: !sorted.down } : { by, down: !isText };
}

/** A bar with the length of the number next to it. */
export function bar(part, kind = "") {
  return h("span", { class: `bar ${kind}`, part: Math.max(0, Math.min(1, part || 0)), "aria-hidden": "true" });
}

function head(column, sorted) {
  const kind = kindOf(column);
  if (!column.by) return h("th", { scope: "col", class: kind, title: column.title }, column.head);
  const isIt = sorted.by === column.by;
  const order = isIt ? (sorted.down ? "descending" : "ascending") : undefined;
  const button = h(
    "button",
    { type: "button", class: "sort", "data-action": "sort", "data-by": column.by, title: column.title },
    column.head,
    h("span", { class: "arrow", "aria-hidden": "true" }, isIt ? (sorted.down ? "▼" : "▲") : ""),
  );
  return h("th", { scope: "col", class: kind, "aria-sort": order }, button);
}

const kindOf = ({ number, wide, kind }) => [number && "number-column", wide && "wide", kind].filter(Boolean).join(" ") || undefined;

function cell(column, row) {
  const tag = column.label ? "th" : "td";
  const head = typeof column.head === "string" ? column.head : column.title;
  return h(tag, { class: kindOf(column), scope: column.label ? "row" : undefined, "data-head": head || undefined }, column.cell(row));
}
