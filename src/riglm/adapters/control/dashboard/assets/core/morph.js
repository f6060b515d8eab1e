/**
 * Make `old` like `next` with as few changes as possible, so that focus, selection and scrolling are kept.
 * Elements correspond if their tag and `data-key` are equal. The content of elements with `data-keep` is not changed.
 * If the focused element is removed, its nearest focusable ancestor gets the focus, so that Tab continues there.
 */
export function morph(old, next) {
  const focused = document.activeElement;
  const around = withAncestors(focused);
  update(old, next);
  if (focused !== document.activeElement) around.find(takesFocus);
}

function withAncestors(element) {
  const found = [];
  for (let at = element; at; at = at.parentElement) found.push(at);
  return found;
}

function takesFocus(element) {
  if (element.isConnected) element.focus({ preventScroll: true });
  return document.activeElement === element;
}

function update(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  copyAttributes(old, next);
  if (!old.hasAttribute("data-keep")) copyChildren(old, next);
}

function copyAttributes(old, next) {
  for (const { name, value } of next.attributes) {
    if (!isTheUsers(old, name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!isTheUsers(old, name) && !next.hasAttribute(name)) old.removeAttribute(name);
  }
  if (old.style.cssText !== next.style.cssText) old.style.cssText = next.style.cssText;
}

/** Keep what the user opened; the content security policy forbids setting `style` as an attribute. */
function isTheUsers(element, name) {
  return name === "style" || (name === "open" && element.tagName === "DETAILS");
}

function copyChildren(old, next) {
  const byKey = new Map();
  for (const child of old.children) if (child.dataset.key) byKey.set(child.dataset.key, child);
  let at = old.firstChild;
  for (const wanted of [...next.childNodes]) {
    const same = counterpart(wanted, at, byKey);
    if (same === null) {
      old.insertBefore(wanted, at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else old.insertBefore(same, at);
    update(same, wanted);
  }
  while (at !== null) {
    const removed = at;
    at = at.nextSibling;
    removed.remove();
  }
}

function counterpart(wanted, at, byKey) {
  const key = wanted.dataset?.key;
  const candidate = key ? byKey.get(key) : at;
  if (!candidate || candidate.nodeName !== wanted.nodeName) return null;
  return candidate.dataset?.key === key ? candidate : null;
}
