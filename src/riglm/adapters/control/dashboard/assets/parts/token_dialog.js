import { read, token } from "../core/api.js";
import { h } from "../core/dom.js";

/** Ask for the token until riglm accepts it. Returns true then, and false if the dialog is closed before. */
export function askForToken() {
  const fault = h("p", { class: "fault", role: "alert" }, token.get() === null ? "" : "riglm rejected the token.");
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "token-title" }, "A token is needed"),
    h("p", { class: "note" }, "This riglm requires a token. ", h("code", {}, "riglm control token"), " prints it on the machine where riglm runs. The browser keeps it until you close this tab."),
    h("label", { for: "token" }, "Token"),
    h("input", { id: "token", name: "token", type: "password", required: true, autofocus: true, autocomplete: "off", spellcheck: "false" }),
    fault,
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "main-button" }, "Continue"), h("button", { type: "button", "data-close": true }, "Cancel")),
  );
  const dialog = h("dialog", { "aria-labelledby": "token-title" }, form);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    let isTaken = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      token.set(new FormData(form).get("token").trim());
      try {
        await read("/health");
        isTaken = true;
        dialog.close();
      } catch (refusal) {
        if (refusal.status === 401) token.forget();
        fault.textContent = refusal.status === 401 ? "riglm rejected this token." : `${refusal.message}. Try again.`;
      }
    });
    dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(isTaken);
    });
  });
}
