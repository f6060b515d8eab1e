import { h, name, prose } from "../core/dom.js";
import * as format from "../core/formats.js";
import { label } from "../core/labels.js";
import { ChartSpan, span } from "../core/ranges.js";
import { address } from "../core/routes.js";
import { ago, shower, signed, step } from "../parts/numbers.js";
import { draw, overTime } from "../parts/over_time.js";
import { empty, facts, mark, missing, panel } from "../parts/panels.js";
import { bar, table } from "../parts/tables.js";
import { sessionTable } from "./sessions.js";

const LIVE_SESSIONS = 8;
const MOST_USED = 12;
const CHARTS = ["found", "lists", "calls"];
const chartSpan = new ChartSpan();

export const overview = {
  title: () => "Overview",
  hasRange: true,
  sources(_subject, data = {}) {
    const { since } = span();
    const chart = chartSpan.get(data.series?.buckets);
    return {
      health: "/health",
      config: "/config",
      summary: `/stats/summary?since=${since}`,
      series: `/stats/series?since=${chart.since}&until=${chart.until}&buckets=${chart.buckets}&sessions_since=${since}`,
      sessions: `/sessions?active=true&limit=${LIVE_SESSIONS}`,
      tools: `/tools?since=${since}&limit=1000`,
    };
  },
  render(data, refusals) {
    const title = h("h1", { class: "unseen" }, "Overview");
    if (data.summary?.sessions.stored === 0 && data.summary.records.accepted === 0) return [title, newcomer(data.summary, data.config), columns([serversPanel(data.health, refusals)], [recordsPanel(data.summary, data.health, refusals), embedderPanel(data.health, refusals)])];
    return [
      title,
      data.summary && verdict(data.summary),
      data.summary ? [headline(data.summary), counted(data.summary)] : missing(refusals.summary),
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
  const isEstimate = summary?.mode === "shadow";
  const saved = panel("tokens", isEstimate ? "Tokens that filtering would save" : "Tokens, estimated", {}, summary ? tokens(summary) : missing(refusals.summary));
  return columns([used, serversPanel(health, refusals)], [unused, !isDeferred(summary) && saved, recordsPanel(summary, health, refusals), embedderPanel(health, refusals)]);
}

const columns = (left, right) => h("div", { class: "columns" }, h("div", { class: "stack" }, left), h("div", { class: "stack" }, right));

const serversPanel = (health, refusals) => panel("servers", "Servers", {}, health ? servers(health) : missing(refusals.health));
const recordsPanel = (summary, health, refusals) => panel("records", "Records of this process", {}, summary && health ? records(summary, health) : missing(refusals.summary));
const embedderPanel = (health, refusals) => panel("embedder", "Embedder", {}, health ? embedder(health) : missing(refusals.health));

const CHART_TITLES = { found: "How tools were found", lists: "List size", calls: "Calls" };

function chart(kind, data, refusals) {
  const content = data.series ? overTime(kind, data.series.buckets, shower("series", data.series), "/buckets") : missing(refusals.series);
  const would = kind === "lists" && data.summary?.mode === "shadow" ? ", as it would be" : "";
  const text = kind === "lists" && isDeferred(data.summary) ? "Tools with a preload hint" : CHART_TITLES[kind];
  return panel(`over-time-${kind}`, `${text}${would}`, {}, content);
}

/** True if all clients defer tools themselves, and get preload hints. */
const isDeferred = (summary) => summary?.lists.hinted > 0 && summary.lists.hinted === summary.lists.shown;

/** The key figures. */
function headline(summary) {
  const show = shower("summary", summary);
  const would = summary.mode === "shadow" ? "would be, " : "";
  const isHinted = isDeferred(summary);
  const priced = ["in ", show("/price/sessions"), format.noun(summary.price.sessions, " session")];
  const figures = [
    ["Price", signed(1 - (summary.price.of_no_proxy ?? 1), show("/price/of_no_proxy", format.ratio)), summary.price.of_no_proxy === null ? ["it takes 2 sessions with calls; there is ", show("/price/sessions")] : [would, isHinted ? "of the client's tool search, " : ["of no proxy, ", show("/price/of_host_search", format.ratio), " of the host's tool search, "], priced]],
    ["Hit rate", show("/hit_rate/rate", format.percent), isHinted ? [show("/hit_rate/hits"), " calls of tools with a hint, ", show("/hit_rate/missed"), " of others, which the client searches for"] : [would, show("/hit_rate/hits"), " from the list, ", show("/hit_rate/missed"), " missed", summary.mode === "enforce" && [", ", show("/hit_rate/found_by_search"), " of them found by a search"]]],
    [isHinted ? "Preload hints" : "Tools in a list", show("/lists/mean_shown", format.mean), [would, isHinted ? "tools of " : "of ", show("/lists/mean_available", format.mean), " on average, ", isHinted ? "the client defers the others" : [show("/lists/reduction", format.percent), " fewer"]]],
    !isHinted && ["Tokens net", signed(summary.tokens.net, show("/tokens/net", format.rough)), [would, "hidden ", show("/tokens/hidden", format.rough), ", less meta-tools ", show("/tokens/meta_tools", format.rough), " and re-sent ", show("/tokens/resent", format.rough)]],
    ["Calls", show("/calls"), [show("/failures"), " failed, ", show("/searches"), summary.searches === 1 ? " search" : " searches"]],
    ["Sessions", show("/sessions/total"), ["counted of ", show("/sessions/in_time"), ", ", show("/sessions/active"), " live, ", show("/lists/changes"), format.noun(summary.lists.changes, " list change")]],
    ["Tools used", show("/tools/used"), ["of ", show("/tools/known"), ", ", show("/tools/never_used"), " never used"]],
  ];
  return h(
    "dl",
    { class: "headline", "data-key": "headline" },
    figures.filter(Boolean).map(([term, value, detail]) => h("div", {}, h("dt", {}, term), h("dd", { class: "large" }, value), h("dd", { class: "detail" }, detail))),
  );
}

/** What the figures are counted from, and a command that prints them. */
function counted(summary) {
  const show = shower("summary", summary);
  return h("p", { class: "note", "data-key": "counted" }, "Counted from ", show("/sessions/total"), format.noun(summary.sessions.total, " session"), " with ", show("/calls"), format.noun(summary.calls, " call"), ". ", h("code", {}, `riglm report --since ${format.minute(summary.since)}`), " prints the same figures.");
}

function newcomer(summary, config) {
  const at = config?.downstream;
  return empty(
    prose(summary.verdict.text),
    h("p", {}, "Sessions, tools and lists of a client appear here once it has connected:"),
    h(
      "ul",
      {},
      h("li", {}, "over HTTP (", h("code", {}, "riglm serve"), "), set the client's server URL to ", h("code", {}, `http://${at?.host ?? "127.0.0.1"}:${at?.port ?? 8700}/mcp`)),
      h("li", {}, "on stdio, ", h("code", {}, "riglm init"), " moves the servers of your clients behind riglm"),
      h("li", {}, "for an example first, run ", h("code", {}, "riglm demo")),
    ),
  );
}

const VERDICTS = { worth_it: "good", costs_more: "bad", nothing_hidden: "bad" };

/** The verdict of `riglm report`. */
function verdict({ mode, verdict: found }) {
  const estimates = mode === "shadow" && h("div", {}, mark("quiet", "Shadow mode"), " Clients got every tool; figures are estimates of what filtering would do.");
  return h("div", { class: "verdict", id: "verdict", "data-key": "verdict" }, mark(VERDICTS[found.code] ?? "quiet", h("span", {}, prose(found.text))), estimates);
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
      { head: "Server", label: true, cell: (row) => [name(row.name), h("span", { class: "soft" }, ` ${label(row.transport)}`)] },
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

const neverUsedNote = (summary) => summary && ["Listed but not called in this time: ", shower("summary", summary)("/tools/never_used"), "."];

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
    ["− meta-tools", show("/tokens/meta_tools"), "meta-tools in lists"],
    ["− re-sent", show("/tokens/resent"), "lists that changed"],
    ["= net", signed(summary.tokens.net, show("/tokens/net")), summary.tokens.net < 0 ? "more spent than saved" : "saved", "result"],
    ["shown", show("/tokens/shown"), "definitions in lists", "aside"],
  ]);
}

/** Records: accepted = stored + queued + spooled + dropped. */
function records(summary, health) {
  const { accepted, stored, queued, spooled, dropped, reasons } = summary.records;
  const show = shower("summary", summary);
  const holds = accepted === stored + queued + spooled + dropped;
  const store = health.store.state === "unavailable" ? mark("bad", "unavailable") : mark("good", "ok");
  return sum([
    ["stored", show("/records/stored"), [`in ${health.store.kind}, which is `, store]],
    ["+ queued", show("/records/queued"), "in memory"],
    ["+ spooled", show("/records/spooled"), "on disk, until the store takes them"],
    ["+ dropped", show("/records/dropped"), Object.keys(reasons).filter((why) => reasons[why] > 0).map((why, index) => [index ? ", " : "", label(why), " ", show(`/records/reasons/${step(why)}`)])],
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
      ["State", mark(EMBEDDER_STATES[embeddings.status] ?? "quiet", embeddings.status), embeddings.is_fallback_active && [" ", mark("warn", "fallback in use")]],
      ["Model", name(embeddings.actual_model || embeddings.model), embeddings.actual_model && embeddings.actual_model !== embeddings.model && [h("span", { class: "soft" }, " instead of "), name(embeddings.model)]],
      ["Dimensions", show("/embedder/embeddings/dimensions")],
      ["Semantic quality", embeddings.semantic_quality],
      ["Tools embedded", show("/embedder/tools/embedded"), h("span", { class: "soft" }, " of "), show("/embedder/tools/indexed")],
      ["Learned pairs", show("/embedder/learned_pairs")],
    ),
    h("p", { class: "note" }, advice),
  ];
}
