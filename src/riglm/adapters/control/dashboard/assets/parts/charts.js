import { h } from "../core/dom.js";
import { moment } from "../core/formats.js";

const FEW_POINTS = 6;
const LIBRARY = "assets/vendor/echarts/echarts.common.min.js";
const drawn = new Map();
let loading;

/** The element for a chart, with its numbers as a table below it. `legend` is pairs of color and text. */
export function figure({ id, title, legend, asTable }) {
  const swatches = legend.map(([colour, text]) => h("li", {}, h("i", { class: `swatch ${colour}` }), text));
  return h(
    "figure",
    { class: "figure" },
    h("ul", { class: "legend", "aria-hidden": "true" }, swatches),
    h("div", { class: "chart", id, role: "img", "aria-label": `${title}; the numbers are in the table below`, "data-keep": true }),
    h("details", {}, h("summary", {}, "Numbers as a table"), asTable),
  );
}

/**
 * Draw series over buckets of time into the element with this id, if they changed. A series is
 * `{ name, kind: "bar" | "line" | "area", colour, values, stack?, written? }`.
 */
export async function drawOverTime(id, buckets, series) {
  const echarts = await library().catch(() => null);
  const place = document.getElementById(id);
  if (place === null) return;
  if (echarts === null) {
    place.textContent = "The chart could not be drawn: its library did not load. The numbers are in the table.";
    return;
  }
  const state = JSON.stringify([buckets, series, document.documentElement.dataset.theme, isDark()]);
  const before = drawn.get(place);
  if (before?.state === state) return;
  const { chart, sizes } = before ?? started(echarts, place);
  chart.setOption(options(buckets, series, colours(place)), { notMerge: true });
  drawn.set(place, { chart, sizes, state });
  clear();
}

/** Dispose of charts whose element was removed. */
function clear() {
  for (const [place, { chart, sizes }] of drawn) {
    if (place.isConnected) continue;
    sizes.disconnect();
    chart.dispose();
    drawn.delete(place);
  }
}

function started(echarts, place) {
  const chart = echarts.init(place, null, { renderer: "canvas" });
  const sizes = new ResizeObserver(() => chart.resize());
  sizes.observe(place);
  return { chart, sizes };
}

/** Load the chart library with the first chart, so that texts are not delayed. */
function library() {
  loading ??= new Promise((resolve, reject) => {
    const script = h("script", { src: LIBRARY });
    script.addEventListener("load", () => resolve(window.echarts));
    script.addEventListener("error", () => reject(new Error("the chart library did not load")));
    document.head.append(script);
  });
  return loading;
}

const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

/** The computed colors of the current theme. */
function colours(place) {
  const probe = h("span", { hidden: true });
  place.parentElement.append(probe);
  const found = {};
  for (const name of ["ink", "soft", "line", "panel", "listed", "searched", "named", "accent", "quiet", "bad"]) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

function options(buckets, series, colour) {
  const times = buckets.map((bucket) => moment(bucket.at, bucket.seconds));
  const text = { color: colour.soft, fontFamily: "system-ui, sans-serif", fontSize: 11 };
  const axis = { type: "value", axisLabel: text, splitNumber: 3, minInterval: 1, splitLine: { lineStyle: { color: colour.line } } };
  return {
    animation: false,
    aria: { enabled: false },
    grid: { left: 4, right: 10, top: 12, bottom: 2, containLabel: true },
    xAxis: {
      type: "category",
      data: times,
      axisLabel: { ...text, hideOverlap: true },
      axisTick: { show: false },
      axisLine: { lineStyle: { color: colour.line } },
    },
    yAxis: axis,
    tooltip: {
      trigger: "axis",
      renderMode: "richText",
      confine: true,
      transitionDuration: 0,
      backgroundColor: colour.panel,
      borderColor: colour.line,
      textStyle: { color: colour.ink, fontSize: 12, fontFamily: text.fontFamily },
      axisPointer: { type: "line", lineStyle: { color: colour.soft, type: "solid" }, animation: false },
      formatter: (points) => tooltip(points, series),
    },
    series: series.map((one) => drawnSeries(one, colour)),
  };
}

function tooltip(points, series) {
  const lines = points.map(({ seriesIndex, value }) => {
    const { name, written = String } = series[seriesIndex];
    return `${name}: ${value === null || value === undefined ? "–" : written(value)}`;
  });
  return [points[0].axisValueLabel, ...lines].join("\n");
}

function drawnSeries({ name, kind, colour, values, stack, dashed }, palette) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const shared = { name, data: values, itemStyle: { color: palette[colour] }, emphasis: { disabled: true } };
  if (kind === "bar") return { ...shared, type: "bar", stack, barCategoryGap: "25%", barMinWidth: 3, barMaxWidth: 28, large: false };
  return {
    ...shared,
    type: "line",
    connectNulls: true,
    z: kind === "area" ? 3 : 2,
    symbol: known.length <= FEW_POINTS ? "circle" : "none",
    symbolSize: 7,
    step: false,
    lineStyle: { width: 2, color: palette[colour], type: dashed ? "dashed" : "solid" },
    areaStyle: kind === "area" ? { color: palette[colour], opacity: 0.15 } : undefined,
  };
}
