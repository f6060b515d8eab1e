"use strict";

const report = JSON.parse(document.getElementById("report").textContent);
const main = document.getElementById("main");

/** Create an element. Strings become text nodes, so no name can become markup. */
function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.flat());
  return made;
}

const whole = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));
const one = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 }));
const counted = (value, noun) => `${whole(value)} ${noun}${value === 1 ? "" : "s"}`;
const price = (ratio) => (ratio === null ? "–" : ratio.toFixed(2));
const share = (value) => (value === null || value === undefined ? "–" : `${one(value)} %`);
const range = (ends) => (ends ? `${ends[0].toFixed(0)} to ${ends[1].toFixed(0)} %` : "–");

/** A table that scrolls on a narrow screen; a column is [title, how a row's cell is made, whether it is a number]. */
function table(columns, rows, classOf = () => "") {
  const cell = (tag, text, number) => h(tag, { class: number ? "number" : "name", ...(tag === "th" ? { scope: "col" } : {}) }, String(text));
  const head = h("tr", {}, columns.map(([title, , number]) => cell("th", title, number)));
  const body = rows.map((row) => h("tr", { class: classOf(row) }, columns.map(([, of, number]) => cell("td", of(row), number))));
  return h("div", { class: "scroll", tabindex: "0" }, h("table", {}, h("thead", {}, head), h("tbody", {}, body)));
}

/** A text of riglm, whose commands and settings are between backticks. */
const prose = (text) => text.split("`").map((part, place) => (place % 2 ? h("code", {}, part) : part));

const section = (title, ...content) => h("section", {}, h("h2", {}, title), ...content);

function verdict() {
  const { rules } = report;
  const kinds = new Map([[true, "met"], [false, "unmet"], [null, "open"]]);
  const reasons = report.verdict.reasons.map((reason) => h("li", { class: kinds.get(reason.met) }, prose(reason.text)));
  const share = rules.coverage === null ? "" : ` for ${Math.round(100 * rules.coverage)} % of the calls`;
  const goal = `${rules.min_tools} to ${rules.max_tools} tools${share}`;
  return h(
    "section",
    {},
    h("p", { class: "verdict", id: "verdict" }, prose(report.verdict.text)),
    report.headline.map((line) => h("p", {}, line)),
    h("ul", {}, reasons),
    h("p", { class: "soft" }, `filtering.mode ${rules.mode}, strategy ${rules.strategy}, ${goal}`),
  );
}

function recorded(mode, title) {
  if (!report.record[mode]) return [];
  const facts = Object.entries(report.record[mode].facts);
  const rows = facts.map(([name, text]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "name" }, text)));
  return [section(title, h("table", { class: "facts" }, h("tbody", {}, rows)))];
}

function bill() {
  const { clients, text } = report.bill;
  if (clients.length === 0 && report.verdict.code === "empty") return [];
  const columns = [
    ["client", (one) => one.client],
    ["sessions", (one) => whole(one.sessions), true],
    ["requests", (one) => whole(one.requests_per_session), true],
    ...["billed", "modeled"].map((price) => [price, (one) => whole(one[price]), true]),
    ["by default", (one) => whole(one.modeled_by_default), true],
    ...[["prompt", "prompt"], ["result", "call"], ["output", "output"]].map(([title, size]) => [title, (one) => whole(one.sizes[`${size}_tokens`]), true]),
    ["cached", (one) => share(100 * one.sizes.cached_share), true],
  ];
  const rows = clients.length ? [table(columns, clients)] : [];
  return [section("Your own bill next to the price model, in tokens of uncached input", ...rows, h("p", { class: "soft" }, prose(text)))];
}

/** True if the chart shows recorded lists; otherwise the replay, which may be of fewer days. */
const isRecorded = report.days.some((day) => day.recorded.hit_rate !== null);

function days() {
  if (report.days.length === 0) return [];
  const swatch = (colour, text) => h("li", {}, h("i", { style: `background: var(--${colour})` }), text);
  const columns = [
    ["day", (day) => day.day],
    ["calls replayed", (day) => whole(day.calls), true],
    ["hit rate", (day) => share(day.hit_rate), true],
    ["95 of 100", (day) => range(day.hit_rate_interval), true],
    ["tools in the list", (day) => one(day.mean_list), true],
    ["recorded: hit rate", (day) => share(day.recorded.hit_rate), true],
    ["tools", (day) => one(day.recorded.mean_list), true],
    ["tokens net", (day) => (day.recorded.lists ? whole(day.recorded.tokens_net) : "–"), true],
  ];
  const numbers = table(columns, report.days);
  if (report.days.length === 1) return [section("Day by day", numbers, h("p", { class: "soft" }, "A chart is drawn from the second day on."))];
  return [
    section(
      "Day by day",
      h("ul", { class: "legend" }, swatch("hits", `hit rate, ${isRecorded ? "recorded" : `replayed with ${report.replayed_with}`}`), swatch("size", "tools in the list")),
      h("div", { class: "chart", id: "chart", role: "img", "aria-label": "Hit rate and list size by day; the numbers are in the table below" }),
      h("details", {}, h("summary", {}, "Numbers as a table"), numbers),
    ),
  ];
}

function strategies() {
  if (report.strategies.length === 0) return [];
  const columns = [
    ["strategy", (row) => row.predictor],
    ["price", (row) => price(row.price), true],
    ["requests", (row) => one(row.requests), true],
    ["calls", (row) => whole(row.calls), true],
    ["hit rate", (row) => share(row.hit_rate), true],
    ["95 of 100", (row) => range(row.hit_rate_interval), true],
    ["hit rate of new tools", (row) => share(row.new_hit_rate), true],
    ["95 of 100", (row) => range(row.new_hit_rate_interval), true],
    ["tools in the list", (row) => one(row.mean_list), true],
  ];
  const { calls, sessions, skipped } = report.replayed;
  const rest = skipped ? `, the latest; ${whole(skipped)} before them were skipped` : "";
  const isConfigured = (row) => (row.predictor === report.rules.strategy ? "configured" : "");
  return [section(`Replayed by strategy: ${counted(sessions, "session")} with ${counted(calls, "call")}${rest}`, table(columns, report.strategies, isConfigured))];
}

function tools() {
  const { missed, never_used: unused } = report.tools;
  const columns = [
    ["tool", (row) => row.tool],
    ["server", (row) => row.server],
    ["missed", (row) => whole(row.missed), true],
    ["calls", (row) => whole(row.calls), true],
    ["recorded: missed", (row) => whole(row.recorded_missed), true],
    ["calls", (row) => whole(row.recorded_calls), true],
    ["searched", (row) => whole(row.searched), true],
    ["by name", (row) => whole(row.named), true],
  ];
  const found = [];
  if (missed.length) found.push(section("Tools missing from lists: a search finds them with one more call", table(columns, missed)));
  if (unused.length) found.push(section(`Never used, of the tools that were shown: ${unused.length}`, h("p", {}, unused.join(", "))));
  return found;
}

function draw(chart) {
  const style = getComputedStyle(document.documentElement);
  const probe = h("span", { hidden: "" });
  document.body.append(probe);
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const text = { color: colour("soft"), fontFamily: style.fontFamily, fontSize: 11 };
  const line = { lineStyle: { color: colour("line") } };
  const series = (name, key, tint, axis, kind) => ({
    name,
    type: kind,
    yAxisIndex: axis,
    data: report.days.map((day) => (isRecorded ? day.recorded : day)[key]),
    connectNulls: true,
    symbolSize: 6,
    itemStyle: { color: tint },
    lineStyle: { width: 2, color: tint },
    barMaxWidth: 28,
  });
  chart.setOption(
    {
      animation: false,
      grid: { left: 4, right: 4, top: 12, bottom: 2, containLabel: true },
      tooltip: { trigger: "axis", renderMode: "richText", confine: true, backgroundColor: colour("panel"), borderColor: colour("line"), textStyle: { color: colour("ink"), fontSize: 12 } },
      xAxis: { type: "category", data: report.days.map((day) => day.day), axisLabel: text, axisLine: line, axisTick: { show: false } },
      yAxis: [
        { type: "value", min: 0, axisLabel: text, splitLine: line },
        { type: "value", min: 0, max: 100, axisLabel: { ...text, formatter: "{value} %" }, splitLine: { show: false } },
      ],
      series: [series("tools in the list", "mean_list", colour("size"), 0, "bar"), series("hit rate, %", "hit_rate", colour("hits"), 1, "line")],
    },
    { notMerge: true },
  );
  probe.remove();
}

const counts = `${counted(report.sessions, "session")} with ${counted(report.calls, "call")}, ${whole(report.failed_calls)} failed`;
const period = `${report.since ? `since ${report.since.slice(0, 10)}, ` : ""}until ${report.until.slice(0, 16).replace("T", " ")} UTC: ${counts}`;
main.append(
  h("h1", {}, "riglm report"),
  h("p", { class: "soft" }, period),
  verdict(),
  ...bill(),
  ...recorded("shadow", "What shadow mode recorded: the lists that it would have shown"),
  ...recorded("enforce", "What was recorded of lists that were shown"),
  ...days(),
  ...strategies(),
  ...tools(),
  h("p", { class: "soft" }, prose(report.explanation)),
);

const place = document.getElementById("chart");
if (place) {
  const chart = echarts.init(place, null, { renderer: "canvas" });
  draw(chart);
  new ResizeObserver(() => chart.resize()).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(chart));
}
