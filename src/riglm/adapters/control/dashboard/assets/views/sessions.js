import { h, name } from "../core/dom.js";
import { label } from "../core/labels.js";
import { address } from "../core/routes.js";
import { ago, shower } from "../parts/numbers.js";
import { empty, mark, missing, panel } from "../parts/panels.js";
import { table } from "../parts/tables.js";

const MORE = 100;
const MOST = 1_000;
const state = { activeOnly: false, limit: MORE };

export const sessions = {
  title: () => "Sessions",
  sources: () => ({ sessions: `/sessions?active=${state.activeOnly}&limit=${state.limit}` }),
  render(data, refusals) {
    const choice = h("label", {}, h("input", { type: "checkbox", "data-action": "only-live", checked: state.activeOnly }), "live ones only");
    return [h("h1", {}, "Sessions"), panel("sessions", "Newest first", { tools: choice }, found(data, refusals))];
  },
  actions: {
    "only-live": (target, page) => {
      state.activeOnly = target.checked;
      page.ask();
    },
    more: (_target, page) => {
      state.limit = Math.min(MOST, state.limit + MORE);
      page.ask();
    },
  },
};

function found(data, refusals) {
  if (!data.sessions) return missing(refusals.sessions);
  if (data.sessions.items.length === 0) return empty(state.activeOnly ? "No session is live." : "No session was recorded.", h("p", {}, "A session appears as soon as a client has connected."));
  const more = data.sessions.next_cursor !== null && state.limit < MOST;
  return [sessionTable(data.sessions, "Sessions"), h("p", { class: "note" }, "All recorded sessions, imported ones included. Their calls include those of meta-tools, which the overview and the tools do not count."), more && h("p", { class: "more" }, h("button", { type: "button", "data-action": "more" }, "Show more"))];
}

/** Sessions as a table; `answer` is a response of `/sessions`. */
export function sessionTable(answer, caption) {
  const show = shower("sessions", answer);
  const hasProjects = new Set(answer.items.map((session) => session.project).filter(Boolean)).size > 1;
  const numbers = [["Calls", "invocations"], ["Failed", "failures"], ["Lists", "lists"], ["Changes", "list_changes"], ["Searches", "searches"], ["Tools", "tools_available"]];
  return table({
    caption,
    rows: answer.items.map((session, index) => ({ ...session, index })),
    key: (row) => row.id,
    columns: [
      { head: "Client", label: true, cell: (row) => h("a", { href: address("session", row.id) }, client(row), hasProjects && row.project && h("span", { class: "soft" }, ` project ${row.project.slice(0, 6)}`)) },
      { head: "State", cell: (row) => (row.active ? mark("good", "live") : mark("quiet", "ended")) },
      { head: "Began", cell: (row) => ago(row.started_at) },
      { head: "Protocol", cell: (row) => h("span", { class: "soft" }, `${label(row.era)}, ${label(row.transport)}`) },
      ...numbers.map(([head, field]) => ({ head, number: true, cell: (row) => show(`/items/${row.index}/${field}`) })),
      { head: "Session", cell: (row) => h("code", { title: row.id }, row.id.slice(-8)) },
    ],
  });
}

/** The client's name and version as it sent them. */
export const client = (session) => [name(session.client.name || "unnamed client"), session.client.version && h("span", { class: "soft" }, " ", name(session.client.version))];
