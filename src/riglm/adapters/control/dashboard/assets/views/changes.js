import { access, post } from "../core/api.js";
import { h, name } from "../core/dom.js";
import { ago } from "../parts/numbers.js";
import { empty, mark, missing, panel } from "../parts/panels.js";
import { table } from "../parts/tables.js";

const NOTE = "Tools whose definition is not the approved one. With trust.on_change hold or block, calls of them are refused.";

export const changes = {
  title: () => "Changed tools",
  sources: () => ({ changes: "/tools/changes" }),
  render: (data, refusals) => [h("h1", {}, "Changed tools"), panel("changes", "To review", { note: NOTE }, data.changes ? list(data.changes) : missing(refusals.changes))],
  actions: {
    approve: async (target, page) => {
      const { server, tool, digest } = target.dataset;
      try {
        await post("/tools/approve", { server, tool, digest });
        page.speak(`${tool} of ${server} is approved.`);
        document.getElementById("changes-title")?.focus();
      } catch (refusal) {
        page.speak(`${tool} was not approved: ${refusal.message}`);
      }
      page.ask();
    },
  },
};

function list({ items }) {
  if (items.length === 0) return empty("No tool changed since it was approved.");
  return table({
    caption: "Changed tools",
    rows: items,
    key: (row) => `${row.server}/${row.tool}`,
    columns: [
      { head: "Tool", label: true, cell: (row) => name(row.tool) },
      { head: "Server", cell: (row) => name(row.server) },
      { head: "Change", cell: (row) => mark("warn", row.change) },
      { head: "Resembles", cell: (row) => row.resembles && name(row.resembles) },
      { head: "Seen", cell: (row) => [ago(row.seen_at), " ago"] },
      { head: "Difference", wide: true, cell: (row) => h("pre", { class: "diff" }, row.diff.join("\n")) },
      { head: "", kind: "action", cell: (row) => access === "write" && h("button", { type: "button", "data-action": "approve", "data-server": row.server, "data-tool": row.tool, "data-digest": row.digest, "aria-label": `Approve ${row.tool} of ${row.server}` }, "Approve") },
    ],
  });
}
