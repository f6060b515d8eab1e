import { h, name } from "../core/dom.js";
import * as format from "../core/formats.js";
import { address } from "../core/routes.js";
import { shower } from "../parts/numbers.js";
import { empty, missing, panel } from "../parts/panels.js";
import { table } from "../parts/tables.js";

const TOOLS = 30;
const SHADES = 5;

export const together = {
  title: () => "Together",
  sources: () => ({ cooccurrence: `/stats/cooccurrence?limit=${TOOLS}` }),
  render(data, refusals) {
    const { cooccurrence: found } = data;
    const note = "Number of recorded sessions, imported ones included, in which both tools were used. Darker fields are more.";
    return [
      h("h1", {}, "Tools used together"),
      h(
        "div",
        { class: "side-by-side" },
        panel("map", "Map", { note }, found ? map(found) : missing(refusals.cooccurrence)),
        found?.pairs.length > 0 && panel("pairs", "Pairs", { kind: "long" }, pairs(found)),
      ),
    ];
  },
};

/** A table of tools by tools, of which one half is filled. Each field has its number, so shades are not needed. */
function map(answer) {
  if (answer.pairs.length === 0) return empty("No two tools were used in one session so far.", h("p", {}, "riglm predicts from tools that are used together. They appear here after the first sessions with several tools."));
  const show = shower("cooccurrence", answer);
  const places = new Map(answer.pairs.flatMap(({ a, b }, index) => [[JSON.stringify([a, b]), index], [JSON.stringify([b, a]), index]]));
  const most = Math.max(...answer.pairs.map((pair) => pair.count));
  const heads = answer.tools.slice(0, -1).map((tool) => h("th", { scope: "col" }, h("span", { class: "turned" }, name(tool))));
  const rows = answer.tools.slice(1).map((tool, row) =>
    h(
      "tr",
      { "data-key": tool },
      h("th", { scope: "row" }, h("a", { href: address("tools", tool) }, name(tool))),
      answer.tools.slice(0, row + 1).map((other) => field(answer, places.get(JSON.stringify([tool, other])), most, show)),
    ),
  );
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Map of tools used together" },
    h("table", { class: "map" }, h("caption", { class: "unseen" }, "In how many sessions two tools were both used"), h("thead", {}, h("tr", {}, h("td"), heads)), h("tbody", {}, rows)),
  );
}

function field(answer, place, most, show) {
  if (place === undefined) return h("td", { class: "shade-0" });
  const { a, b, count, mean_distance: apart } = answer.pairs[place];
  const shade = Math.max(1, Math.ceil(Math.sqrt(count / most) * SHADES));
  return h("td", { class: `shade-${shade}`, title: `${a} and ${b}: ${format.count(count)} times, ${format.mean(apart)} calls apart` }, show(`/pairs/${place}/count`, format.rough));
}

function pairs(answer) {
  const show = shower("cooccurrence", answer);
  return table({
    caption: "Pairs of tools",
    rows: answer.pairs.map((pair, index) => ({ ...pair, index })),
    key: (row) => JSON.stringify([row.a, row.b]),
    columns: [
      { head: "Tool", label: true, cell: (row) => h("a", { href: address("tools", row.a) }, name(row.a)) },
      { head: "and", cell: (row) => h("a", { href: address("tools", row.b) }, name(row.b)) },
      { head: "Together", title: "number of sessions", number: true, cell: (row) => show(`/pairs/${row.index}/count`) },
      { head: "Apart", title: "average distance in calls", number: true, cell: (row) => show(`/pairs/${row.index}/mean_distance`, format.mean) },
    ],
  });
}
