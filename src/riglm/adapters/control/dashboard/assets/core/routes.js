/** The view that the URL selects, and its subject. */
export function route() {
  const [view = "", subject = ""] = location.hash.replace(/^#\/?/, "").split("/");
  return { view, subject: decoded(subject) };
}

/** The URL of a view. */
export function address(view, subject) {
  return subject === undefined ? `#/${view}` : `#/${view}/${encodeURIComponent(subject)}`;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
