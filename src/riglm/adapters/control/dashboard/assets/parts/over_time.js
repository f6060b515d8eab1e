import { h } from "../core/dom.js";
import * as format from "../core/formats.js";
import { drawOverTime, figure } from "./charts.js";
import { empty, facts } from "./panels.js";
import { table } from "./tables.js";

/** The charts over time: title, legend, columns of the table, and the series drawn from the buckets. */
const CHARTS = {
  found: {
    title: "How the tools of calls were found",
    none: "No call in this time.",
    legend: [["listed", "in the list"], ["searched", "by a search"], ["named", "by name only"]],
    columns: [["In the list", "listed"], ["By a search", "searched"], ["By name only", "named"]],
    series: (buckets) => [
      { name: "in the list", kind: "bar", stack: "found", colour: "listed", values: buckets.map((one) => one.listed) },
      { name: "by a search", kind: "bar", stack: "found", colour: "searched", values: buckets.map((one) => one.searched) },
      { name: "by name only", kind: "bar", stack: "found", colour: "named", values: buckets.map((one) => one.named) },
    ],
  },
  lists: {
    title: "Tools in a list",
    none: "No tool list in this time.",
    legend: [["accent line", "shown, on average"], ["quiet dashed", "available"]],
    columns: [["Lists", "lists"], ["Shown", "mean_shown", format.mean], ["Available", "mean_available", format.mean]],
    series: (buckets) => [
      { name: "shown", kind: "area", colour: "accent", values: buckets.map((one) => one.mean_shown), written: format.mean },
      { name: "available", kind: "line", colour: "quiet", dashed: true, values: buckets.map((one) => one.mean_available), written: format.mean },
    ],
  },
  calls: {
    title: "Calls",
    none: "No call in this time.",
    legend: [["listed", "calls"], ["bad line", "failed"]],
    columns: [["Calls", "calls"], ["Failed", "failures"]],
    series: (buckets) => [
      { name: "calls", kind: "bar", colour: "listed", values: buckets.map((one) => one.calls) },
      { name: "failed", kind: "line", colour: "bad", values: buckets.map((one) => one.failures) },
    ],
  },
};

/** One of the charts, or words if less than two buckets have data; `show` reads the response with them at `pointer`. */
export function overTime(kind, buckets, show, pointer) {
  const { title, legend, columns, none } = CHARTS[kind];
  const fields = columns.map(([, field]) => field);
  const used = buckets.flatMap((bucket, index) => (fields.some((field) => bucket[field]) ? [index] : []));
  if (used.length === 0) return empty(none);
  if (used.length === 1) return onlyBucket(columns, buckets[used[0]], (field, as) => show(`${pointer}/${used[0]}/${field}`, as));
  const asTable = table({
    caption: `${title}, as a table`,
    key: (row) => row.bucket.at,
    rows: buckets.map((bucket, index) => ({ bucket, index })),
    columns: [
      { head: "From", label: true, cell: ({ bucket }) => h("time", { datetime: bucket.at }, format.when(bucket.at)) },
      ...columns.map(([head, field, as]) => ({ head, number: true, cell: ({ index }) => show(`${pointer}/${index}/${field}`, as) })),
    ],
  });
  return figure({ id: `chart-${kind}`, title, legend, asTable });
}

function onlyBucket(columns, { at, seconds }, show) {
  const [from, until] = [at, Date.parse(at) + 1_000 * seconds].map((time) => format.moment(time, seconds));
  return [facts(...columns.map(([head, field, as]) => [head, show(field, as)])), h("p", { class: "note" }, `All from ${from} to ${until}. A second point in time makes a chart.`)];
}

/** Draw the charts that are on the page. */
export function draw(kinds, buckets) {
  return Promise.all(kinds.map((kind) => drawOverTime(`chart-${kind}`, buckets, CHARTS[kind].series(buckets))));
}
