import { h, name } from "../core/dom.js";
import * as format from "../core/formats.js";
import { span } from "../core/ranges.js";
import { address } from "../core/routes.js";
import { ago, shower, step } from "../parts/numbers.js";
import { draw, overTime } from "../parts/over_time.js";
import { empty, facts, mark, missing, panel } from "../parts/panels.js";
import { bar, table } from "../parts/tables.js";
import { sessionTable } from "./sessions.js";

const LIVE_SESSIONS = 8;
const MOST_USED = 12;
const CHARTS = ["found", "lists", "calls"];

export const overview = {
  title: () => "Overview",
  hasRange: true,
  sources() {
    const { since, until, buckets } = span();
    return {
      health: "/health",
      config: "/config",
      summary: `/stats/summary?since=${since}`,
      series: `/stats/series?since=${since}&until=${until}&buckets=${buckets}`,
      sessions: `/sessions?active=true&limit=${LIVE_SESSIONS}`,
      tools: `/tools?since=${since}&limit=1000`,
    };
  },
  render(data, refusals) {
    const title = h("h1", { class: "unseen" }, "Overview");
    const isNew = data.summary?.sessions.total === 0 && data.summary.records.accepted === 0;
    if (isNew) return [title, newcomer(data.config), columns([serversPanel(data.health, refusals)], [recordsPanel(data.summary, data.health, refusals), embedderPanel(data.health, refusals)])];
    return [
      title,
      howListsAreMade(data.config),
      data.summary ? headline(data.summary) : missing(refusals.summary),
      h("div", { class: "charts" }, CHARTS.map((kind) => chart(kind, data, refusals))),
      panel("live-sessions", "Live sessions", {}, liveSessions(data, refusals)),
      rest(data, refusals),
    ];
  },
  draw: (data) => data.series && draw(CHARTS, data.series.buckets),
};

function rest({ tools, summary, health }, refusals) {
  const used = panel("used", "Tools used most", {}, tools ? mostUsed(tools) : missing(refusals.tools));
  const unused = panel("never-used", "Tools never used", { note: neverUsedNote(summary) }, tools ? neverUsed(tools) : missing(refusals.tools));
  const saved = panel("tokens", "Tokens, estimated", {}, summary ? tokens(summary) : missing(refusals.summary));
  return columns([used, serversPanel(health, refusals)], [unused, saved, recordsPanel(summary, health, refusals), embedderPanel(health, refusals)]);
}

const columns = (left, right) => h("div", { class: "columns" }, h("div", { class: "stack" }, left), h("div", { class: "stack" }, right));

const serversPanel = (health, refusals) => panel("servers", "Servers", {}, health ? servers(health) : missing(refusals.health));
const recordsPanel = (summary, health, refusals) => panel("records", "Records of this process", {}, summary && health ? records(summary, health) : missing(refusals.summary));
const embedderPanel = (health, refusals) => panel("embedder", "Embedder", {}, health ? embedder(health) : missing(refusals.health));

const CHART_TITLES = { found: "How tools were found", lists: "List size", calls: "Calls" };

function chart(kind, data, refusals) {
  const content = data.series ? overTime(kind, data.series.buckets, shower("series", data.series), "/buckets") : missing(refusals.series);
  return panel(`over-time-${kind}`, CHART_TITLES[kind], {}, content);
}

/** The numbers that say whether riglm is worth its place. */
function headline(summary) {
  const show = shower("summary", summary);
  const figures = [
    ["Price", show("/price/of_no_proxy", format.ratio), [summary.price.mode === "shadow" ? "would be, " : "", "of no proxy, ", show("/price/of_host_search", format.ratio), " of the host's tool search, in ", show("/price/sessions"), " sessions"]],
    ["Hit rate", show("/zero_hop/rate", format.percent), [show("/zero_hop/hits"), " from the list, ", show("/zero_hop/searched"), " by a search, ", show("/zero_hop/missed"), " by name only"]],
    ["Tools in a list", show("/lists/mean_shown", format.mean), ["of ", show("/lists/mean_available", format.mean), " on average, ", show("/lists/reduction", format.percent), " fewer"]],
    ["Tokens net", show("/tokens/net", format.rough), ["hidden ", show("/tokens/hidden", format.rough), ", less own ", show("/tokens/own", format.rough), " and re-sent ", show("/tokens/resent", format.rough)]],
    ["Calls", show("/calls"), [show("/failures"), " failed, ", show("/searches"), " searches"]],
    ["Live sessions", show("/sessions/active"), ["of ", show("/sessions/total"), " sessions, ", show("/lists/changes"), " list changes"]],
    ["Tools used", show("/tools/used"), ["of ", show("/tools/known"), ", ", show("/tools/never_used"), " never used"]],
  ];
  return h(
    "dl",
    { class: "headline", "data-key": "headline" },
    figures.map(([term, value, detail]) => h("div", {}, h("dt", {}, term), h("dd", { class: "large" }, value), h("dd", { class: "detail" }, detail))),
  );
}

function newcomer(config) {
  const at = config?.downstream;
  return empty(
    "Nobody has been here yet.",
    h("p", {}, "Let a client use riglm, and its sessions, tools and lists appear here by themselves:"),
    h(
      "ul",
      {},
      h("li", {}, "over HTTP (", h("code", {}, "riglm serve"), "), give the client the address ", h("code", {}, `http://${at?.host ?? "127.0.0.1"}:${at?.port ?? 8700}/mcp`)),
      h("li", {}, "on stdio, put ", h("code", {}, "riglm run --"), " in front of the server's command in the client's configuration"),
      h("li", {}, "to see it at work first, run ", h("code", {}, "riglm demo")),
    ),
  );
}

/** How lists are made at present, where that changes what the numbers mean. */
function howListsAreMade(config) {
  const filtering = config?.filtering;
  if (!filtering) return null;
  if (!filtering.enabled || filtering.strategy === "none") {
    return h("p", { class: "notice" }, mark("quiet", "Filtering is off"), " Clients see every tool. With ", h("code", {}, "filtering.mode: shadow"), " riglm still shows everything, and counts here what it would have saved.");
  }
  if (filtering.mode === "shadow") {
    return h("p", { class: "notice" }, mark("quiet", "Shadow mode"), " Clients see every tool. Prices, lists, hits and tokens are what they would be with filtering.");
  }
  return null;
}

function liveSessions(data, refusals) {
  if (!data.sessions) return missing(refusals.sessions);
  if (data.sessions.items.length === 0) return empty("No session is live.", h("p", {}, "They appear here while a client is connected. ", h("a", { href: address("sessions") }, "All sessions")));
  return [sessionTable(data.sessions, "Live sessions"), h("p", { class: "more" }, h("a", { href: address("sessions") }, "All sessions"))];
}

const LINKS = { open: ["good", "open"], idle: ["quiet", "idle"], opening: ["warn", "opening"], broken: ["bad", "broken"] };

function servers(health) {
  const show = shower("health", health);
  return table({
    caption: "Servers",
    rows: health.upstreams.map((upstream, index) => ({ ...upstream, index })),
    key: (row) => row.name,
    columns: [
      { head: "Server", label: true, cell: (row) => [name(row.name), h("span", { class: "soft" }, ` ${row.transport}`)] },
      { head: "Link", cell: (row) => [mark(...LINKS[row.state]), " ", row.since ? ago(row.since) : "", row.last_error && h("div", { class: "error-text" }, row.last_error)] },
      { head: "Tools", number: true, cell: (row) => show(`/upstreams/${row.index}/tools`) },
    ],
  });
}

function mostUsed(tools) {
  const show = shower("tools", tools);
  const rows = tools.items.map((tool, index) => ({ ...tool, index })).filter((tool) => tool.uses > 0).slice(0, MOST_USED);
  if (rows.length === 0) return empty("No tool was used in this time.");
  const most = Math.max(...rows.map((row) => row.invocations));
  return [
    table({
      caption: "Tools used most",
      rows,
      key: (row) => `${row.upstream} ${row.tool}`,
      columns: [
        { head: "Tool", label: true, cell: (row) => h("a", { href: address("tools", row.tool) }, name(row.tool)) },
        { head: "Calls", number: true, cell: (row) => [bar(row.invocations / most), show(`/items/${row.index}/invocations`)] },
        { head: "Failed", number: true, cell: (row) => show(`/items/${row.index}/failures`) },
        { head: "Median", number: true, cell: (row) => show(`/items/${row.index}/median_ms`, format.duration) },
      ],
    }),
    h("p", { class: "more" }, h("a", { href: address("tools") }, "All tools")),
  ];
}

const neverUsedNote = (summary) => summary && ["Listed, and called by nobody in this time: ", shower("summary", summary)("/tools/never_used"), "."];

function neverUsed(tools) {
  const names = tools.items.filter((tool) => tool.uses === 0).map((tool) => tool.tool);
  if (names.length === 0) return empty(tools.items.length ? "Every tool was used." : "No tool is known yet.");
  const shown = names.slice(0, 40);
  return [
    h("ul", { class: "names" }, shown.map((one) => h("li", { "data-key": one }, h("a", { href: address("tools", one) }, name(one))))),
    names.length > shown.length && h("p", { class: "more" }, h("a", { href: address("tools") }, "All of them")),
  ];
}

function tokens(summary) {
  const show = shower("summary", summary);
  return sum([
    ["hidden", show("/tokens/hidden"), "definitions that lists left out"],
    ["− own", show("/tokens/own"), "riglm's own tools in lists"],
    ["− re-sent", show("/tokens/resent"), "lists that changed"],
    ["= net", show("/tokens/net"), "what was saved", "result"],
    ["shown", show("/tokens/shown"), "definitions in lists", "aside"],
  ]);
}

/** The law of records: whatever was accepted is somewhere. */
function records(summary, health) {
  const { accepted, stored, queued, spooled, dropped, reasons } = summary.records;
  const show = shower("summary", summary);
  const holds = accepted === stored + queued + spooled + dropped;
  const store = health.store.state === "unavailable" ? mark("bad", "unavailable") : mark("good", "ok");
  return sum([
    ["stored", show("/records/stored"), [`in ${health.store.kind}, which is `, store]],
    ["+ queued", show("/records/queued"), "in memory"],
    ["+ spooled", show("/records/spooled"), "on disk, until the store takes them"],
    ["+ dropped", show("/records/dropped"), Object.keys(reasons).filter((why) => reasons[why] > 0).map((why, index) => [index ? ", " : "", why, " ", show(`/records/reasons/${step(why)}`)])],
    ["= accepted", show("/records/accepted"), holds ? mark("good", "adds up") : mark("bad", "does not add up"), "result"],
  ]);
}

function sum(lines) {
  return h(
    "table",
    { class: "sum" },
    h("tbody", {}, lines.map(([term, value, note, kind]) => h("tr", { class: kind }, h("th", { scope: "row" }, term), h("td", { class: "number-column" }, value), h("td", { class: "soft" }, note)))),
  );
}

const EMBEDDER_STATES = { ready: "good", loading: "warn", unavailable: "bad" };

function embedder({ embedder: signal }) {
  const { embeddings, advice } = signal;
  const show = shower("health", { embedder: signal });
  return [
    facts(
      ["State", mark(EMBEDDER_STATES[embeddings.status] ?? "quiet", embeddings.status), embeddings.is_fallback_active && [" ", mark("warn", "fallback at work")]],
      ["Model", name(embeddings.actual_model), embeddings.actual_model !== embeddings.model && [h("span", { class: "soft" }, " in the place of "), name(embeddings.model)]],
      ["Dimensions", show("/embedder/embeddings/dimensions")],
      ["Meaning", embeddings.semantic_quality],
      ["Tools embedded", show("/embedder/tools/embedded"), h("span", { class: "soft" }, " of "), show("/embedder/tools/indexed")],
      ["Learned pairs", show("/embedder/learned_pairs")],
    ),
    h("p", { class: "note" }, advice),
  ];
}
