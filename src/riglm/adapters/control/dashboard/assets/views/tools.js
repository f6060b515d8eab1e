import { h, name } from "../core/dom.js";
import * as format from "../core/formats.js";
import { span } from "../core/ranges.js";
import { address } from "../core/routes.js";
import { ago, shower } from "../parts/numbers.js";
import { empty, mark, missing, panel } from "../parts/panels.js";
import { bar, inOrder, sortedBy, table } from "../parts/tables.js";
import { overrideButton } from "./overrides.js";

const AT_FIRST = 200;
const state = { wanted: "", neverUsed: false, isWhole: false, sorted: { by: "invocations", down: true } };

export const tools = {
  title: () => "Tools",
  hasRange: true,
  sources: () => ({ tools: `/tools?since=${span().since}&limit=1000` }),
  render(data, refusals) {
    const find = [
      h("label", {}, h("input", { type: "checkbox", "data-action": "never-used", checked: state.neverUsed }), "never used"),
      h("label", {}, "Find ", h("input", { type: "search", "data-action": "find", value: state.wanted, placeholder: "part of a name", spellcheck: "false" })),
    ];
    return [h("h1", {}, "Tools"), panel("tools", "Listed or used in this time", { tools: find }, data.tools ? found(data.tools) : missing(refusals.tools))];
  },
  actions: {
    find: (target, page) => {
      state.wanted = target.value;
      page.redraw();
    },
    "never-used": (target, page) => {
      state.neverUsed = target.checked;
      page.redraw();
    },
    sort: (target, page) => {
      const { by } = target.dataset;
      state.sorted = sortedBy(state.sorted, by, by === "tool" || by === "upstream");
      page.redraw();
    },
    whole: (_target, page) => {
      state.isWhole = true;
      page.redraw();
    },
  },
};

function found(answer) {
  if (answer.items.length === 0) return empty("No tool is known yet.", h("p", {}, "Tools appear after a client has requested a list."));
  const wanted = state.wanted.toLowerCase();
  const all = answer.items.map((tool, index) => ({ ...tool, index }));
  const rows = all.filter((tool) => tool.tool.toLowerCase().includes(wanted) && !(state.neverUsed && tool.uses > 0));
  if (rows.length === 0) return empty("No tool matches.");
  const ordered = inOrder(rows, state.sorted, (row, by) => row[by]);
  const shown = state.isWhole ? ordered : ordered.slice(0, AT_FIRST);
  return [
    table({ caption: "Tools", rows: shown, key: (row) => `${row.upstream} ${row.tool}`, sorted: state.sorted, columns: columns(answer) }),
    shown.length < ordered.length && h("p", { class: "more" }, h("button", { type: "button", "data-action": "whole" }, `Show all ${format.count(ordered.length)}`)),
    answer.next_cursor && h("p", { class: "note" }, "The 1,000 tools that were used most."),
  ];
}

function columns(answer) {
  const show = shower("tools", answer);
  const most = Math.max(1, ...answer.items.map((tool) => tool.invocations));
  const number = (head, by, as, title) => ({ head, by, number: true, title, cell: (row) => show(`/items/${row.index}/${by}`, as) });
  return [
    { head: "Tool", label: true, by: "tool", cell: (row) => h("a", { href: address("tools", row.tool) }, name(row.tool)) },
    { head: "Server", by: "upstream", cell: (row) => (row.upstream ? name(row.upstream) : h("span", { class: "soft" }, "–")) },
    { ...number("Calls", "invocations"), cell: (row) => [bar(row.invocations / most), show(`/items/${row.index}/invocations`)] },
    number("Failed", "failures"),
    number("Sessions", "sessions"),
    number("In the list", "listed", undefined, "calls whose tool was in the list"),
    number("Searched", "searched", undefined, "calls whose tool a search of riglm had found"),
    number("By name", "named", undefined, "calls whose tool was in no list"),
    number("Median", "median_ms", format.duration),
    number("95 %", "p95_ms", format.duration),
    { head: "Last used", by: "last_used", cell: (row) => (row.last_used ? ago(row.last_used) : mark("quiet", "never")) },
    { head: "Override", kind: "action", cell: (row) => overrideButton(row.tool) },
  ];
}
