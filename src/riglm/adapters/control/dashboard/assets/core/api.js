const TOKEN = "riglm.token";
const TIMEOUT_MS = 15_000;

/** Thrown when a request failed. `status` is 0 if there was no response; `faults` are the fields that are wrong. */
export class Refusal extends Error {
  constructor(status, detail, faults = []) {
    super(detail);
    this.status = status;
    this.faults = faults;
  }
}

/** The rights of the token in use; all rights until the first response. */
export let access = "write";

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  forget: () => sessionStorage.removeItem(TOKEN),
};

/** Return the text of a response. Throws a Refusal. */
export async function read(path, signal) {
  return (await ask("GET", path, undefined, signal)).text();
}

/** Create something and return the response. Throws a Refusal. */
export async function post(path, body) {
  return (await ask("POST", path, body)).json();
}

/** Delete something. Throws a Refusal. */
export async function remove(path) {
  await ask("DELETE", path);
}

async function ask(method, path, body, signal) {
  const headers = { Accept: "application/json" };
  if (token.get() !== null) headers.Authorization = `Bearer ${token.get()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal(0, "riglm does not answer");
  }
  if (!answer.ok) throw await refusal(answer);
  access = answer.headers.get("Riglm-Access") ?? access;
  return answer;
}

async function refusal(answer) {
  const problem = await answer.json().catch(() => ({}));
  return new Refusal(answer.status, problem.detail ?? problem.title ?? `status ${answer.status}`, problem.errors ?? []);
}
