// Requests to the daemon. The token is kept for this tab only.

const KEY = "mmb-token";

/** The daemon refused a request; `diagnostics` has errors in a text. */
export class Refusal extends Error {
  constructor(status, document) {
    super(document.error ?? `the request failed with status ${status}`);
    this.status = status;
    this.diagnostics = document.diagnostics ?? [];
  }
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;
export const setToken = (token) => sessionStorage.setItem(KEY, token);
export const forgetToken = () => sessionStorage.removeItem(KEY);

async function send(method, path, body, signal) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  const answer = await fetch(path, { method, headers, body, signal, cache: "no-store" });
  if (!answer.ok) throw new Refusal(answer.status, await answer.json().catch(() => ({})));
  return answer;
}

/** The document of a path. */
export async function get(path, signal) {
  return (await send("GET", path, undefined, signal)).json();
}

/** Sends a text and returns the document of the reply. */
export async function post(path, text, signal) {
  return (await send("POST", path, text, signal)).json();
}

/**
 * Reads a list that is sent one entry per line, and passes each entry to `each`. At most `limit` entries are read;
 * returns whether there are more.
 */
export async function stream(path, limit, each, signal) {
  const reader = (await send("GET", path, undefined, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", count = 0;
  for (;;) {
    const { done, value } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = lines.pop();
    if (done) lines.push(rest);
    for (const line of lines) {
      const entry = parse(line);
      if (entry === undefined) continue;
      if (count === limit) {
        await reader.cancel();
        return true;
      }
      count += 1;
      each(entry);
    }
    if (done) return false;
  }
}

/** The entry in a line of a list: `{"connections":[` and `]}` have none. */
function parse(line) {
  const text = line.replace(/^\{"\w+":\[/, "").replace(/^,/, "").replace(/,$/, "");
  for (const one of [text, text.replace(/\]\}$/, "")]) {
    if (!one.startsWith("{")) continue;
    try {
      return JSON.parse(one);
    } catch {
      // The last entry may stand before the end of the list.
    }
  }
  return undefined;
}
