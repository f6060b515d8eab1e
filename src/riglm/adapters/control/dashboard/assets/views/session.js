import { h, name } from "../core/dom.js";
import * as format from "../core/formats.js";
import { label } from "../core/labels.js";
import { address } from "../core/routes.js";
import { ago, shower } from "../parts/numbers.js";
import { empty, facts, mark, missing, panel } from "../parts/panels.js";
import { table } from "../parts/tables.js";
import { predictionActions, predictionPanels } from "./prediction.js";
import { client } from "./sessions.js";

/** The server of meta-tools, which have no page. */
const OWN_UPSTREAM = "riglm";
const FOUND = { listed: "in the list", searched: "by a search", named: "by name" };

export const session = {
  title: (id) => `Session ${id.slice(-8)}`,
  sources: (id) => ({
    session: `/sessions/${encodeURIComponent(id)}`,
    prediction: `/predictions/${encodeURIComponent(id)}`,
    overrides: "/override?limit=1000",
  }),
  render(data, refusals, id) {
    if (!data.session) {
      return [h("h1", {}, "Session ", h("code", {}, id)), refusals.session?.status === 404 ? empty("There is no such session.", h("p", {}, h("a", { href: address("sessions") }, "All sessions"))) : missing(refusals.session)];
    }
    return [
      h("p", { class: "above" }, h("a", { href: address("sessions") }, "Sessions"), " /"),
      h("h1", {}, client(data.session), " ", data.session.active ? mark("good", "live") : mark("quiet", "ended")),
      about(data.session),
      predictionPanels(data, refusals),
      panel("calls", "Calls, the latest first", { kind: "long" }, calls(data.session)),
      panel("lists", "Lists it was shown, the latest first", { kind: "long" }, lists(data.session)),
    ];
  },
  actions: predictionActions,
};

function about(one) {
  const show = shower("session", one);
  return facts(
    ["Began", ago(one.started_at), " ago"],
    one.ended_at && ["Ended", ago(one.ended_at), " ago"],
    ["Protocol", `${label(one.era)}, ${label(one.transport)}`],
    ["Recognized by", label(one.method), one.confidence !== one.method && `, confidence ${label(one.confidence)}`],
    ["Principal", one.principal ? h("code", {}, one.principal) : "unauthenticated"],
    ["Calls", show("/invocations"), ", ", show("/failures"), " failed"],
    ["Lists", show("/lists"), ", ", show("/list_changes"), " changed, ", show("/searches"), " searches"],
    ["Tools available", show("/tools_available")],
    ["Id", h("code", {}, one.id)],
  );
}

function calls(one) {
  if (one.calls.length === 0) return empty("No call yet.");
  const show = shower("session", one);
  return table({
    caption: "Calls",
    rows: one.calls.map((call, index) => ({ ...call, index })).reverse(),
    key: (row) => String(row.sequence),
    columns: [
      { head: "No.", number: true, cell: (row) => show(`/calls/${row.index}/sequence`) },
      { head: "Tool", label: true, cell: (row) => (row.upstream === OWN_UPSTREAM ? name(row.tool) : h("a", { href: address("tools", row.tool) }, name(row.tool))) },
      { head: "At", cell: (row) => ago(row.at) },
      { head: "Took", number: true, cell: (row) => show(`/calls/${row.index}/duration_ms`, format.duration) },
      { head: "Outcome", cell: (row) => (row.success ? mark("good", "ok") : mark("bad", label(row.error_kind ?? "failed"))) },
      { head: "Found", cell: (row) => FOUND[row.found] ?? row.found },
    ],
  });
}

function lists(one) {
  if (one.shown.length === 0) return empty("No list yet.", h("p", {}, "The client has not requested its tools."));
  const show = shower("session", one);
  return table({
    caption: "Lists it was shown",
    rows: one.shown.map((list, index) => ({ ...list, index })).reverse(),
    key: (row) => `${row.at} ${row.index}`,
    columns: [
      { head: "At", label: true, cell: (row) => ago(row.at) },
      { head: "Surface", cell: (row) => `${label(row.surface)}${row.mode === "enforce" ? "" : `, ${row.mode}`}` },
      { head: "Shown", cell: (row) => h("details", {}, h("summary", {}, `${format.count(row.shown.length)} tools`), h("ul", { class: "names" }, row.shown.map((one) => h("li", {}, name(one))))) },
      { head: "Hidden", number: true, cell: (row) => show(`/shown/${row.index}/hidden`) },
      { head: "Tokens shown", number: true, cell: (row) => show(`/shown/${row.index}/tokens_shown`) },
      { head: "Tokens hidden", number: true, cell: (row) => show(`/shown/${row.index}/tokens_hidden`) },
      { head: "Tokens of meta-tools", number: true, cell: (row) => show(`/shown/${row.index}/tokens_meta_tools`) },
      { head: "Why", wide: true, cell: (row) => [row.predictor && h("span", { class: "soft" }, `${label(row.predictor)}: `), row.reason] },
    ],
  });
}
