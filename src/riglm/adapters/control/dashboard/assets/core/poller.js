import { Refusal, read } from "./api.js";

const PERIOD_MS = 2_000;
const FIRST_MS = 150;

/**
 * Asks again and again, while the page is seen, what the view shows, and tells when an answer is another one.
 *
 * `sources()` gives, for each name, what to ask; they may change from turn to turn. `onTurn(data, refusals, sources,
 * isNew)` hears of every turn: values and refusals by name, and whether any of them is new. A value stays while its
 * source is refused. `onPart(data, refusals)` hears of a first turn that takes long, so that what came does not wait for the rest.
 */
export class Poller {
  constructor(onTurn, onPart) {
    this.onTurn = onTurn;
    this.onPart = onPart;
    this.sources = () => ({});
    this.forget();
    document.addEventListener("visibilitychange", () => document.hidden || this.soon());
  }

  /** Asks from now on for other things. */
  watch(sources) {
    this.forget();
    this.sources = sources;
    this.soon();
  }

  /** Asks now, and not only when the next turn is due. */
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
    const asked = Object.entries(this.sources());
    const early = this.texts.size === 0 && setTimeout(() => asking.signal.aborted || this.onPart(this.data, this.refusals), FIRST_MS);
    const outcomes = await Promise.all(asked.map(([name, path]) => this.one(name, path, asking.signal)));
    clearTimeout(early);
    if (asking.signal.aborted) return;
    this.timer = setTimeout(() => this.turn(), PERIOD_MS);
    this.onTurn(this.data, this.refusals, Object.fromEntries(asked), outcomes.includes(true));
  }

  /** Whether the answer, or the refusal, is another one than before. */
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
      const refusal = error instanceof Refusal ? error : new Refusal(0, "riglm's answer cannot be read");
      const isNew = this.refusals[name]?.message !== refusal.message;
      this.refusals[name] = refusal;
      return isNew;
    }
  }
}
