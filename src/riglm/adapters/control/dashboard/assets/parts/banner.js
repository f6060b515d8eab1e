import { h } from "../core/dom.js";
import { when } from "../core/formats.js";

/** What is wrong with the answers of a turn, in words; null when nothing is. `answeredAt` is when all was well last. */
export function trouble(refusals, answeredAt) {
  const found = Object.values(refusals).filter((one) => one.status !== 404);
  if (found.length === 0) return null;
  const since = answeredAt ? ` What is shown is from ${when(answeredAt)}.` : "";
  if (found.some((one) => one.status === 0)) return { text: `riglm does not answer. It is asked again every 2 seconds.${since}` };
  if (found.some((one) => one.status === 401)) return { text: "riglm answers only those who have a token.", action: ["ask-token", "Enter the token"] };
  const words = [...new Set(found.map((one) => one.message))];
  return { text: `Not everything could be had: ${words.join("; ")}.${since}` };
}

/** Shows a trouble, or that there is none. */
export function showTrouble(place, found) {
  place.hidden = found === null;
  const text = found?.text ?? "";
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  const button = found?.action && h("button", { type: "button", "data-action": found.action[0] }, found.action[1]);
  place.replaceChildren(text, ...(button ? [" ", button] : []));
}
