import { access, token } from "./core/api.js";
import { h } from "./core/dom.js";
import { age } from "./core/formats.js";
import { morph } from "./core/morph.js";
import { Poller } from "./core/poller.js";
import { chooseRange, chosenRange, ranges } from "./core/ranges.js";
import { address, route } from "./core/routes.js";
import { showTrouble, trouble } from "./parts/banner.js";
import { refreshAges } from "./parts/numbers.js";
import { mark, origins } from "./parts/panels.js";
import { askForToken } from "./parts/token_dialog.js";
import { changes } from "./views/changes.js";
import { clusters } from "./views/clusters.js";
import { overview } from "./views/overview.js";
import { overrideActions, overrides } from "./views/overrides.js";
import { session } from "./views/session.js";
import { sessions } from "./views/sessions.js";
import { together } from "./views/together.js";
import { tool } from "./views/tool.js";
import { tools } from "./views/tools.js";

const AGES_MS = 5_000;
const THEMES = [["auto", "auto"], ["light", "light"], ["dark", "dark"]];
const NAVIGATION = [["", "Overview"], ["sessions", "Sessions"], ["tools", "Tools"], ["together", "Together"], ["clusters", "Kinds of work"], ["overrides", "Overrides"], ["changes", "Changes"]];

const place = (id) => document.getElementById(id);
const main = place("main");

/** The page for its views: data and refusals of the last turn, and functions to request, draw and announce. */
const page = {
  data: {},
  refusals: {},
  ask: () => poller.soon(),
  redraw: () => draw(),
  speak: (text) => {
    place("spoken").textContent = text;
  },
};

let view = overview;
let subject = "";
let answeredAt = null;
let isAsking = false;
const poller = new Poller(onTurn, onPart);

function chosenView({ view: word, subject: of }) {
  const plain = { sessions, together, clusters, overrides, changes };
  if (Object.hasOwn(plain, word)) return plain[word];
  if (word === "session") return session;
  if (word === "tools") return of ? tool : tools;
  return overview;
}

function go() {
  const there = route();
  const isFirst = main.dataset.view === undefined;
  view = chosenView(there);
  subject = there.subject;
  main.dataset.view = there.view || "overview";
  document.title = `${view.title(subject)} · riglm`;
  place("range").parentElement.hidden = !view.hasRange;
  navigate(there.view === "session" ? "sessions" : there.view);
  page.data = {};
  page.refusals = {};
  main.removeAttribute("data-sources");
  main.dataset.turns = 0;
  poller.watch(sources);
  if (!isFirst) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

const sources = (data = page.data) => ({ health: "/health", ...view.sources(subject, data) });

function navigate(current) {
  const links = NAVIGATION.map(([word, text]) => h("a", { href: address(word), "aria-current": word === current ? "page" : undefined }, text));
  place("nav").replaceChildren(...links);
}

function onPart(data, refusals) {
  Object.assign(page, { data, refusals });
  if (!isShut()) draw();
}

function onTurn(data, refusals, sources, isNew) {
  Object.assign(page, { data, refusals });
  const found = trouble(refusals, answeredAt);
  if (found === null) answeredAt = Date.now();
  showTrouble(place("banner"), found);
  main.classList.toggle("stale", found !== null && answeredAt !== null);
  if (isNew) draw();
  main.dataset.sources = JSON.stringify(sources);
  main.dataset.turns = Number(main.dataset.turns ?? 0) + 1;
  if (isShut()) askOnce();
}

function draw() {
  const next = main.cloneNode(false);
  if (!isShut()) next.append(...[view.render(page.data, page.refusals, subject), origins(sources(), token.get() !== null)].flat(Infinity).filter(Boolean));
  morph(main, next);
  main.dataset.access = access;
  showState();
  if (!isShut()) view.draw?.(page.data);
}

const isShut = () => Object.values(page.refusals).some((one) => one.status === 401);

function showState() {
  const { health } = page.data;
  const next = h("span", { id: "state", class: "state" });
  if (health) next.append(mark(health.status === "ok" ? "good" : "warn", [health.status, ...ailing(health)].join(": ")), h("span", { class: "soft" }, ` ${health.version}, up ${age(health.started_at)}`));
  morph(place("state"), next);
}

/** The names of unavailable upstreams, and of the store. */
function ailing({ upstreams, store }) {
  const broken = upstreams.filter((upstream) => upstream.state === "broken").map((upstream) => upstream.name);
  const all = [...broken, ...(store.state === "unavailable" ? ["store"] : [])];
  return all.length ? [all.join(", ")] : [];
}

/** Ask for the token, unless the dialog is open already. */
async function askOnce() {
  poller.stop();
  if (isAsking) return;
  isAsking = true;
  const isGiven = await askForToken();
  isAsking = false;
  place("forget-token").hidden = token.get() === null;
  if (isGiven) poller.soon();
}

const actions = { ...overrideActions, "ask-token": askOnce };

function act(event) {
  const target = event.target.closest?.("[data-action]");
  if (!target) return;
  const isField = target.matches("input, select");
  if (isField !== (event.type === "input")) return;
  const { action } = target.dataset;
  const does = view.actions?.[action] ?? actions[action];
  does?.(target, page);
}

function startTheme() {
  const chosen = document.documentElement.dataset.theme ?? "auto";
  const select = place("theme");
  select.append(...THEMES.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
  select.addEventListener("change", () => {
    if (select.value === "auto") {
      localStorage.removeItem("riglm.theme");
      delete document.documentElement.dataset.theme;
    } else {
      localStorage.setItem("riglm.theme", select.value);
      document.documentElement.dataset.theme = select.value;
    }
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

function startRange() {
  const select = place("range");
  select.append(...ranges.map(({ id, label }) => h("option", { value: id, selected: id === chosenRange() }, label)));
  select.addEventListener("change", () => {
    chooseRange(select.value);
    poller.soon();
  });
}

function startToken() {
  const button = place("forget-token");
  button.hidden = token.get() === null;
  button.addEventListener("click", () => {
    token.forget();
    button.hidden = true;
    location.reload();
  });
}

for (const kind of ["click", "input"]) document.addEventListener(kind, act);
addEventListener("hashchange", go);
setInterval(() => document.hidden || refreshAges(document), AGES_MS);
// The hash of the URL selects the view, so the skip link must not change it.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
startTheme();
startRange();
startToken();
go();
