import { h, name } from "../core/dom.js";
import * as format from "../core/formats.js";
import { address } from "../core/routes.js";
import { shower } from "../parts/numbers.js";
import { empty, facts, missing, panel } from "../parts/panels.js";
import { bar, table } from "../parts/tables.js";

const CLUSTERS = 12;
const LINES = 8;

export const clusters = {
  title: () => "Kinds of work",
  sources: () => ({ clusters: `/stats/clusters?limit=${CLUSTERS}` }),
  render({ clusters: found }, refusals) {
    if (!found) return [h("h1", {}, "Kinds of work"), missing(refusals.clusters)];
    const show = shower("clusters", found);
    const summary = found.clusters.length
      ? h("p", { class: "note" }, show("/sessions"), format.noun(found.sessions, " session"), " with calls, imported ones included, in ", show("/total"), format.noun(found.total, " kind"), " of work, by their servers, tools and contexts. Each is named by its most distinctive tools; numbers count sessions.")
      : empty("No session used a tool so far.", h("p", {}, "riglm groups sessions that use similar tools. The groups appear here after the first calls."));
    return [h("h1", {}, "Kinds of work"), summary, found.clusters.map((cluster, index) => kind(cluster, index, show))];
  },
};

function kind(cluster, index, show) {
  const at = `/clusters/${index}`;
  const title = cluster.distinctive.slice(0, 3).flatMap((tool, place) => [place > 0 && ", ", name(tool)]);
  return panel(
    `cluster-${index}`,
    title,
    {},
    facts(["Sessions", show(`${at}/sessions`)]),
    h(
      "div",
      { class: "side-by-side" },
      lines("Tools", cluster.tools, [["Tool", "tool"]], `${at}/tools`, cluster.sessions, show),
      lines("Order", cluster.transitions, [["Tool", "first"], ["is followed by", "second"]], `${at}/transitions`, cluster.sessions, show),
      lines("Used together", cluster.pairs, [["Tool", "first"], ["and", "second"]], `${at}/pairs`, cluster.sessions, show),
    ),
  );
}

function lines(caption, rows, names, at, most, show) {
  if (rows.length === 0) return false;
  return table({
    caption,
    rows: rows.slice(0, LINES).map((row, index) => ({ ...row, index })),
    key: (row) => JSON.stringify(names.map(([, field]) => row[field])),
    columns: [
      ...names.map(([head, field], place) => ({ head, label: place === 0, cell: (row) => h("a", { href: address("tools", row[field]) }, name(row[field])) })),
      { head: "Sessions", number: true, cell: (row) => [bar(row.sessions / most), show(`${at}/${row.index}/sessions`)] },
    ],
  });
}
