import { h } from "../core/dom.js";
import { when } from "../core/formats.js";

/** The problem of a turn in words, or null; `answeredAt` is the time of the last turn without one. */
export function trouble(refusals, answeredAt) {
  const found = Object.values(refusals).filter((one) => one.status !== 404);
  if (found.length === 0) return null;
  const since = answeredAt ? ` The data shown is from ${when(answeredAt)}.` : "";
  if (found.some((one) => one.status === 0)) return { text: `riglm does not answer. The page retries every 2 seconds.${since}` };
  if (found.some((one) => one.status === 401)) return { text: "This riglm requires a token.", action: ["ask-token", "Enter the token"] };
  const words = [...new Set(found.map((one) => one.message))];
  return { text: `Some data is unavailable: ${words.join("; ")}.${since}` };
}

/** Show a problem, or hide the banner. */
export function showTrouble(place, found) {
  place.hidden = found === null;
  const text = found?.text ?? "";
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  const button = found?.action && h("button", { type: "button", "data-action": found.action[0] }, found.action[1]);
  place.replaceChildren(text, ...(button ? [" ", button] : []));
}
