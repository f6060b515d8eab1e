import { Refusal, read } from "./api.js";

const PERIOD_MS = 2_000;
const FIRST_MS = 150;

/**
 * Requests the sources of a view every two seconds while the page is visible.
 *
 * `sources(data)` returns a path by name; paths may change from turn to turn. If they change with the data, the next turn
 * follows at once. `onTurn(data, refusals, sources, isNew)` is called after every turn: values and refusals by name, and
 * true if any of them is new. A value is kept while its source is refused. `onPart(data, refusals)` is called when the
 * first turn takes long, so that the parts received so far are shown.
 */
export class Poller {
  constructor(onTurn, onPart) {
    this.onTurn = onTurn;
    this.onPart = onPart;
    this.sources = () => ({});
    this.forget();
    document.addEventListener("visibilitychange", () => document.hidden || this.soon());
  }

  /** Request other sources from now on. */
  watch(sources) {
    this.forget();
    this.sources = sources;
    this.soon();
  }

  /** Start the next turn now. */
  soon() {
    clearTimeout(this.timer);
    this.asking?.abort();
    this.turn();
  }

  stop() {
    clearTimeout(this.timer);
    this.asking?.abort();
  }

  forget() {
    this.texts = new Map();
    this.data = {};
    this.refusals = {};
  }

  async turn() {
    if (document.hidden) return;
    const asking = new AbortController();
    this.asking = asking;
    const asked = Object.entries(this.sources(this.data));
    const early = this.texts.size === 0 && setTimeout(() => asking.signal.aborted || this.onPart(this.data, this.refusals), FIRST_MS);
    const outcomes = await Promise.all(asked.map(([name, path]) => this.one(name, path, asking.signal)));
    clearTimeout(early);
    if (asking.signal.aborted) return;
    const next = Object.values(this.sources(this.data));
    const isChanged = outcomes.includes(true) && asked.some(([, path], index) => next[index] !== path);
    this.timer = setTimeout(() => this.turn(), isChanged ? 0 : PERIOD_MS);
    this.onTurn(this.data, this.refusals, Object.fromEntries(asked), outcomes.includes(true));
  }

  /** True if the response or the refusal is new. */
  async one(name, path, signal) {
    try {
      const text = await read(path, signal);
      if (signal.aborted) return false;
      const isNew = this.texts.get(name) !== text || name in this.refusals;
      if (this.texts.get(name) !== text) this.data[name] = JSON.parse(text);
      this.texts.set(name, text);
      delete this.refusals[name];
      return isNew;
    } catch (error) {
      if (signal.aborted) return false;
      const refusal = error instanceof Refusal ? error : new Refusal(0, "riglm sent an invalid response");
      const isNew = this.refusals[name]?.message !== refusal.message;
      this.refusals[name] = refusal;
      return isNew;
    }
  }
}
