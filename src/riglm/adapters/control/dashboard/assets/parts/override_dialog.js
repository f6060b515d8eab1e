import { post } from "../core/api.js";
import { h, name } from "../core/dom.js";

const KINDS = [
  ["pin", "Pin", "always in the list"],
  ["include", "Include", "always in the list; lifts a denial, but not for one session"],
  ["exclude", "Exclude", "never in the list; calls by name still work"],
];
const TIMES = [["", "until it is deleted"], ["3600", "for an hour"], ["28800", "for 8 hours"], ["86400", "for a day"], ["604800", "for 7 days"]];

/**
 * Ask for an override of one tool. `session` and `principal` are those in view, if any; `tools` are names to choose from.
 * Returns the new override, or null.
 */
export function askForOverride({ tool = "", session, principal, tools = [] }) {
  const { dialog, form, fault } = built({ tool, session, principal, tools });
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    let made = null;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (form.ariaBusy === "true") return; // a button that is disabled would lose the focus
      form.ariaBusy = "true";
      try {
        made = await post("/override", wish(form, session, principal));
        dialog.close();
      } catch (refusal) {
        form.ariaBusy = "false";
        fault.textContent = [refusal.message, ...refusal.faults.map((one) => `${one.path}: ${one.detail}`)].join("\n");
      }
    });
    dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(made);
    });
  });
}

/** An override in words. */
export function describe({ kind, scope }) {
  const what = { pin: "pinned", include: "included", exclude: "excluded" }[kind];
  return `${what} ${{ all: "for all sessions", principal: "for a principal", session: "for a session" }[scope]}`;
}

function built({ tool, session, principal, tools }) {
  const fault = h("p", { class: "fault", role: "alert" });
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "override-title" }, "Override for ", tool ? name(tool) : "a tool"),
    !tool && [
      h("label", { for: "override-tool" }, "Tool"),
      h("input", { id: "override-tool", name: "tool", required: true, list: "override-tools", autocomplete: "off", spellcheck: "false" }),
      h("datalist", { id: "override-tools" }, tools.map((one) => h("option", { value: one }))),
    ],
    tool && h("input", { type: "hidden", name: "tool", value: tool }),
    choices("kind", "What", KINDS),
    choices("scope", "For whom", scopes(session, principal)),
    !session && [
      h("label", { for: "override-key", class: "key" }, "Its id ", h("span", { class: "soft" }, "(empty: unauthenticated callers)")),
      h("input", { id: "override-key", class: "key", name: "key", autocomplete: "off", spellcheck: "false" }),
    ],
    h("label", { for: "override-time" }, "How long"),
    h("select", { id: "override-time", name: "time" }, TIMES.map(([value, text]) => h("option", { value }, text))),
    h("label", { for: "override-reason" }, "Reason ", h("span", { class: "soft" }, "(optional)")),
    h("input", { id: "override-reason", name: "reason", maxlength: 500, autocomplete: "off" }),
    fault,
    h(
      "div",
      { class: "buttons" },
      h("button", { type: "submit", class: "main-button" }, "Apply"),
      h("button", { type: "button", "data-close": true }, "Cancel"),
    ),
  );
  return { dialog: h("dialog", { "aria-labelledby": "override-title" }, form), form, fault };
}

function scopes(session, principal) {
  const all = ["all", "All", "every session of this riglm"];
  if (!session) return [all, ["principal", "A principal", ""], ["session", "A session", ""]];
  return [["session", "This session", ""], ["principal", "Its principal", principal ? "all sessions of the same caller" : "all unauthenticated callers"], all];
}

function choices(field, legend, options) {
  return h(
    "fieldset",
    { class: "choices" },
    h("legend", {}, legend),
    options.map(([value, label, hint], index) =>
      h(
        "label",
        {},
        h("input", { type: "radio", name: field, value, checked: index === 0, autofocus: field === "kind" && index === 0 }),
        h("span", {}, label),
        hint && h("span", { class: "soft" }, hint),
      ),
    ),
  );
}

function wish(form, session, principal) {
  const given = new FormData(form);
  const scope = given.get("scope");
  const known = { all: "", session, principal }[scope];
  return {
    kind: given.get("kind"),
    tool: given.get("tool"),
    scope,
    key: scope === "all" ? "" : session ? known : given.get("key").trim(),
    reason: given.get("reason").trim(),
    ...(given.get("time") ? { expires_in: Number(given.get("time")) } : {}),
  };
}
