/** Words for values of the API that are keys; other keys are shown with spaces. */
const LABELS = {
  // signals
  repeat_or_new: "repeated or new",
  cooccurrence: "used together",
  frequency: "how often used",
  moment: "time of day and weekday",
  sequence: "order of calls",
  recency: "how recently used",
  server: "same server",
  words: "words of the context",
  context: "meaning of the context",
  learned: "learned pairs",
  // sessions
  handshake: "handshake era",
  modern: "modern era",
  http: "HTTP",
  streamable_http: "HTTP",
  sse: "SSE",
  stdio: "stdio",
  meta_key: "_meta key",
  // errors of calls
  tool: "tool error",
  protocol: "protocol error",
  // reasons for dropped records
  full: "queue full",
  closed: "after the end",
};

/** A key as readable text. */
export const label = (key) => LABELS[key] ?? String(key).replaceAll("_", " ");
