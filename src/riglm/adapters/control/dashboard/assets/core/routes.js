/** Where the address points: the view's name, and what is to be seen in it. */
export function route() {
  const [view = "", subject = ""] = location.hash.replace(/^#\/?/, "").split("/");
  return { view, subject: decoded(subject) };
}

/** The address of a view. */
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
