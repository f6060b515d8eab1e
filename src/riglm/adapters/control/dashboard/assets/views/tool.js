import { h, name } from "../core/dom.js";
import * as format from "../core/formats.js";
import { span } from "../core/ranges.js";
import { address } from "../core/routes.js";
import { ago, shower } from "../parts/numbers.js";
import { draw, overTime } from "../parts/over_time.js";
import { empty, facts, missing, panel } from "../parts/panels.js";
import { bar, table } from "../parts/tables.js";
import { inWords, overrideButton, overridesOf } from "./overrides.js";

const CHARTS = ["calls", "found"];

export const tool = {
  title: (subject) => subject,
  hasRange: true,
  sources: (subject) => ({ tool: `/tools/stats?name=${encodeURIComponent(subject)}&since=${span().since}`, overrides: "/override?limit=1000" }),
  render(data, refusals, subject) {
    const above = h("p", { class: "above" }, h("a", { href: address("tools") }, "Tools"), " /");
    const title = h("h1", {}, name(subject));
    if (!data.tool) return [above, title, refusals.tool?.status === 404 ? empty("No counted session used or listed this tool in this time.", h("p", {}, "Imported sessions and calls of meta-tools are not counted.")) : missing(refusals.tool)];
    const show = shower("tool", data.tool);
    return [
      above,
      title,
      data.tool.description && h("p", { class: "description" }, data.tool.description),
      about(data.tool, show),
      h("div", { class: "made" }, inWords(overridesOf(data.overrides, subject)), overrideButton(subject)),
      h("div", { class: "charts" }, panel("calls", "Calls", {}, overTime("calls", data.tool.series.buckets, show, "/series/buckets")), panel("found", "How it was found", {}, overTime("found", data.tool.series.buckets, show, "/series/buckets"))),
      panel("companions", "Used together with", {}, companions(data.tool, show)),
    ];
  },
  draw: (data) => data.tool && draw(CHARTS, data.tool.series.buckets),
};

function about(one, show) {
  return facts(
    ["Server", one.upstream ? name(one.upstream) : "–"],
    ["Calls", show("/invocations"), ", ", show("/failures"), " failed"],
    ["Sessions", show("/sessions")],
    ["Found", show("/listed"), " in the list, ", show("/searched"), " by a search, ", show("/named"), " by name only"],
    ["Took", show("/median_ms", format.duration), " median, ", show("/p95_ms", format.duration), " at the 95th percentile"],
    ["Last used", one.last_used ? [ago(one.last_used), " ago"] : "never in this time"],
  );
}

function companions(one, show) {
  if (one.cooccurrences.length === 0) return empty("No other tool was used in its sessions so far.");
  const most = Math.max(...one.cooccurrences.map((other) => other.count));
  return table({
    caption: "Tools used in the same sessions",
    rows: one.cooccurrences.map((other, index) => ({ ...other, index })),
    key: (row) => row.tool,
    columns: [
      { head: "Tool", label: true, cell: (row) => h("a", { href: address("tools", row.tool) }, name(row.tool)) },
      { head: "Times together", number: true, cell: (row) => [bar(row.count / most), show(`/cooccurrences/${row.index}/count`)] },
      { head: "Calls apart", number: true, cell: (row) => show(`/cooccurrences/${row.index}/mean_distance`, format.mean) },
    ],
  });
}
