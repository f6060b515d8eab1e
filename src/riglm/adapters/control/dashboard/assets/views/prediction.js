import { h, name } from "../core/dom.js";
import * as format from "../core/formats.js";
import { label } from "../core/labels.js";
import { address } from "../core/routes.js";
import { shower, step } from "../parts/numbers.js";
import { empty, facts, mark, missing, panel } from "../parts/panels.js";
import { bar, table } from "../parts/tables.js";
import { inWords, overrideButton, overridesOf } from "./overrides.js";

const BEYOND = 10;
const state = { wanted: "", isWhole: false };

/** Actions of the panels below. */
export const predictionActions = {
  find: (target, page) => {
    state.wanted = target.value;
    page.redraw();
  },
  whole: (_target, page) => {
    state.isWhole = !state.isWhole;
    page.redraw();
  },
};

/** The session's next list with its reasons, and the list without each signal. */
export function predictionPanels(data, refusals) {
  const { prediction } = data;
  if (!prediction) return panel("prediction", "Its next list", {}, missing(refusals.prediction));
  const find = h("label", {}, "Find ", h("input", { type: "search", "data-action": "find", value: state.wanted, placeholder: "part of a name", spellcheck: "false" }));
  return [
    panel("prediction", "Its next list", { tools: find }, about(prediction), ranking(data)),
    panel("without", "Without each signal", { note: "The list that would be selected now without the signal, compared to the one with it." }, without(prediction)),
  ];
}

function about(prediction) {
  const show = shower("prediction", prediction);
  return [
    !prediction.live && h("p", { class: "notice" }, mark("quiet", "From the records"), " The session is not live in this process. The list is computed from its records."),
    prediction.mode === "shadow" && h("p", { class: "notice" }, mark("quiet", "Shadow mode"), " The client gets every tool. This is what it would get with filtering."),
    facts(
      [prediction.mode === "shadow" ? "Would be shown" : "Shown", show("/size"), h("span", { class: "soft" }, " tools")],
      ["Confidence", show("/confidence", format.percent)],
      ["Context", prediction.has_context ? [show("/context_confidence", format.percent), h("span", { class: "soft" }, " confident")] : "none"],
      ["Surface", `${label(prediction.surface)}, ${prediction.mode}`],
      ["Predictor", label(prediction.predictor || "none")],
      ["Why", prediction.reason],
    ),
  ];
}

function ranking({ prediction, session, overrides }) {
  if (prediction.tools.length === 0) return empty("No server has listed a tool yet.");
  const rows = prediction.tools.map((tool, index) => ({ ...tool, index }));
  const wanted = state.wanted.toLowerCase();
  const found = wanted ? rows.filter((row) => row.tool.toLowerCase().includes(wanted)) : rows;
  const isCut = !wanted && !state.isWhole && found.length > prediction.size + BEYOND;
  const shown = isCut ? found.filter((row, place) => row.shown || place < prediction.size + BEYOND || overridesOf(overrides, row.tool, session).length > 0) : found;
  if (found.length === 0) return empty("No tool matches.");
  return [
    table({
      caption: "Tools by rank, with what each signal contributes",
      rows: shown,
      key: (row) => `${row.upstream} ${row.tool}`,
      rowClass: (row) => (row.shown ? undefined : "hidden-row"),
      columns: columns(prediction, session, overrides),
      id: "ranking",
    }),
    !wanted && found.length > prediction.size + BEYOND && h("p", { class: "more" }, h("button", { type: "button", "data-action": "whole" }, isCut ? `Show all ${format.count(rows.length)}` : "Show the first only")),
  ];
}

function columns(prediction, session, overrides) {
  const show = shower("prediction", prediction);
  const highest = Math.max(1e-9, ...prediction.tools.flatMap((tool) => Object.values(tool.contributions).map(Math.abs)));
  return [
    { head: "Rank", number: true, cell: (row) => show(`/tools/${row.index}/rank`) },
    { head: "Tool", label: true, cell: (row) => h("a", { href: address("tools", row.tool) }, name(row.tool)) },
    { head: prediction.mode === "shadow" ? "Would be" : "List", cell: (row) => visibility(row) },
    { head: "Score", number: true, cell: (row) => show(`/tools/${row.index}/score`, format.score) },
    ...prediction.signals.map((signal) => ({
      head: label(signal),
      number: true,
      kind: "signal",
      title: `contribution of the signal ${signal} to the score`,
      cell: (row) => contribution(row.contributions[signal], highest, () => show(`/tools/${row.index}/contributions/${step(signal)}`, format.score)),
    })),
    { head: "Why", wide: true, cell: (row) => [row.why, inWords(overridesOf(overrides, row.tool, session))] },
    { head: "Override", kind: "action", cell: (row) => overrideButton(row.tool, session) },
  ];
}

function contribution(value, highest, written) {
  if (value === undefined) return h("span", { class: "soft" }, "–");
  return [written(), bar(Math.abs(value) / highest, value < 0 ? "negative" : "")];
}

function visibility({ visibility: word, shown }) {
  if (word === "denied") return mark("bad", "denied");
  if (word === "never") return mark("warn", "never");
  if (!shown) return mark("quiet", "hidden");
  return word === "always" ? mark("good", "always") : mark("good", "shown");
}

function without(prediction) {
  const rows = Object.entries(prediction.without).map(([signal, list]) => ({ signal, ...list }));
  if (rows.length === 0) return empty("No signal was used.", h("p", {}, "The list was not selected by prediction; the reason is above."));
  return table({
    caption: "The list without each signal",
    rows,
    key: (row) => row.signal,
    columns: [
      { head: "Without", label: true, cell: (row) => label(row.signal) },
      { head: "Would come in", wide: true, cell: (row) => names(row.added) },
      { head: "Would drop out", wide: true, cell: (row) => names(row.removed) },
    ],
  });
}

const names = (tools) => (tools.length === 0 ? h("span", { class: "soft" }, "none") : h("ul", { class: "names" }, tools.map((tool) => h("li", {}, name(tool)))));
