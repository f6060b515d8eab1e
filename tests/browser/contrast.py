"""How far texts stand out from what is behind them, by the formula of WCAG 2."""

TOO_FAINT = """
const least = arguments[0];
const channels = (text) => {
  const found = text.match(/[\\d.]+/g).map(Number);
  const scale = text.startsWith("color(") ? 255 : 1;
  const [red, green, blue, alpha = 1] = found;
  return [red * scale, green * scale, blue * scale, alpha];
};
const over = (above, below) => above.slice(0, 3).map((one, index) => one * above[3] + below[index] * (1 - above[3]));
const behind = (element) => {
  const grounds = [];
  for (let at = element; at; at = at.parentElement) grounds.push(channels(getComputedStyle(at).backgroundColor));
  return grounds.reverse().reduce((below, above) => over(above, below), [255, 255, 255]);
};
const light = (colour) => {
  const linear = (one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = colour.map((one) => linear(one / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const faint = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
  const below = behind(element);
  const lights = [light(over(channels(getComputedStyle(element).color), below)), light(below)].sort((a, b) => b - a);
  const contrast = (lights[0] + 0.05) / (lights[1] + 0.05);
  if (contrast < least) faint.push(`${walker.currentNode.data.trim().slice(0, 40)}: ${contrast.toFixed(2)}`);
}
return [...new Set(faint)];
"""
"""A script: the visible texts with a contrast of less than its argument, and what it is."""
