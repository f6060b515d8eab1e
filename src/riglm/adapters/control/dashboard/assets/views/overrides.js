import { access, remove } from "../core/api.js";
import { h, name } from "../core/dom.js";
import { address } from "../core/routes.js";
import { ago } from "../parts/numbers.js";
import { askForOverride, describe } from "../parts/override_dialog.js";
import { empty, mark, missing, panel } from "../parts/panels.js";
import { table } from "../parts/tables.js";

const KINDS = { pin: "good", include: "good", exclude: "warn" };

export const overrides = {
  title: () => "Overrides",
  sources: () => ({ overrides: "/override?limit=1000", tools: "/tools?limit=1000" }),
  render(data, refusals) {
    const make = access === "write" && h("button", { type: "button", "data-action": "override" }, "New override");
    return [
      h("h1", {}, "Overrides"),
      panel("overrides", "In force", { tools: make || null, note: "Overrides take precedence over allowed and denied tools and over predictions." }, readOnly(), data.overrides ? list(data.overrides) : missing(refusals.overrides)),
    ];
  },
};

/** Actions of the override buttons. */
export const overrideActions = {
  override: async (target, page) => {
    const { tool, session, principal } = target.dataset;
    const tools = (page.data.tools?.items ?? []).map((one) => one.tool);
    const made = await askForOverride({ tool, session, principal, tools });
    if (made === null) return;
    page.speak(`${made.tool} is ${describe(made)}. It takes effect with the next list.`);
    page.ask();
  },
  "delete-override": async (target, page) => {
    try {
      await remove(`/override/${encodeURIComponent(target.dataset.id)}`);
      page.speak(`The override for ${target.dataset.tool} is deleted.`);
      document.getElementById("overrides-title")?.focus();
    } catch (refusal) {
      page.speak(`The override was not deleted: ${refusal.message}`);
    }
    page.ask();
  },
};

/** The button that opens the dialog for a tool; `session` is the one in view, if any. */
export function overrideButton(tool, session) {
  if (access !== "write") return h("span", { class: "soft", title: "The token in use is read-only." }, "–");
  const about = { "data-tool": tool, "data-session": session?.id, "data-principal": session?.principal ?? (session && "") };
  return h("button", { type: "button", "data-action": "override", ...about, "aria-label": `Override for ${tool}` }, "Override …");
}

/** The overrides of a tool; with a session, only those that apply to it. */
export function overridesOf(answer, tool, session) {
  return (answer?.items ?? []).filter((one) => one.tool === tool && (!session || one.scope === "all" || one.key === (one.scope === "session" ? session.id : session.principal)));
}

/** Overrides in words, one per line. */
export function inWords(overrides) {
  return overrides.map((one) => h("div", {}, mark(KINDS[one.kind], describe(one)), one.reason && h("span", { class: "soft" }, ` ${one.reason}`)));
}

const readOnly = () => access !== "write" && h("p", { class: "notice" }, mark("quiet", "Read-only"), " The token in use does not permit changes. ", h("code", {}, "riglm control token"), " prints one that does.");

function list(answer) {
  if (answer.items.length === 0) return empty("No override is in force.", h("p", {}, "A session's page shows why each tool is in its list or not. Its buttons pin, include or exclude a tool."));
  return table({
    caption: "Overrides in force",
    rows: answer.items,
    key: (row) => row.id,
    columns: [
      { head: "Tool", label: true, cell: (row) => h("a", { href: address("tools", row.tool) }, name(row.tool)) },
      { head: "What", cell: (row) => mark(KINDS[row.kind], row.kind) },
      { head: "For", cell: concerned },
      { head: "Made", cell: (row) => [ago(row.created_at), " ago"] },
      { head: "Until", cell: (row) => (row.expires_at ? h("time", { datetime: row.expires_at }, new Date(row.expires_at).toLocaleString("en-GB")) : "deleted") },
      { head: "Reason", wide: true, cell: (row) => row.reason },
      { head: "", kind: "action", cell: (row) => access === "write" && h("button", { type: "button", "data-action": "delete-override", "data-id": row.id, "data-tool": row.tool, "aria-label": `Delete the override for ${row.tool}` }, "Delete") },
    ],
  });
}

function concerned({ scope, key }) {
  if (scope === "all") return "all sessions";
  if (scope === "session") return ["session ", h("a", { href: address("session", key) }, h("code", { title: key }, key.slice(-8)))];
  return key ? ["principal ", h("code", { title: key }, key.slice(0, 12))] : "unauthenticated callers";
}
