// One request to a daemon: sent again where that does no harm, and refused as an error of its own class.
// Written by hand, as index.js is; routes.js beside it is generated.

const FIRST_PAUSE = 100;
const LONGEST_PAUSE = 5000;

/** Something in hipq went wrong. */
export class HipqError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.name = new.target.name;
    this.status = status;
  }
}
/** The request is wrong: the message says what to write instead. */
export class Invalid extends HipqError {}
/** There is no token, or it is not good. */
export class Unauthorized extends HipqError {}
/** The token may not do this. */
export class Forbidden extends HipqError {}
/** There is none, or it is another tenant's. */
export class NotFound extends HipqError {}
/** It is in the way of something else. */
export class Conflict extends HipqError {}
/** A live job has this key already: `id` says which. */
export class DuplicateKey extends Conflict {
  constructor(message, id) {
    super(message, 409);
    this.id = id;
  }
}
/** Too much for now: try again after so many seconds. */
export class OverQuota extends HipqError {
  constructor(message, retryAfter) {
    super(message, 429);
    this.retryAfter = retryAfter;
  }
}
/** There is no daemon, or it cannot do this now. */
export class DaemonUnavailable extends HipqError {}
/** The job did not succeed: how it ended. */
export class JobFailed extends HipqError {
  constructor(id, code, exitcode, message) {
    super(`job ${id} ended as ${code} (${exitcode}): ${message}`, 200);
    Object.assign(this, { id, code, exitcode });
  }
}
/** The job has not ended in time. */
export class TimedOut extends HipqError {}

const CLASSES = {
  401: Unauthorized, 403: Forbidden, 404: NotFound, 408: DaemonUnavailable, 409: Conflict, 410: Conflict,
};

/** A reply that is not JSON, or not always: a job's result, figures. */
export class Reply {
  constructor(status, headers, bytes) {
    Object.assign(this, { status, headers, bytes });
  }
  text() {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.bytes);
  }
  json() {
    return JSON.parse(this.text());
  }
}

export class Http {
  #url;
  #token;
  #tenant;
  #patience;

  constructor(url, token = "", { tenant = "", patience = 30 } = {}) {
    if (!/^https?:\/\/[^/?#@\s]+\/?$/.test(url)) throw new Invalid(`a daemon's URL is like http://127.0.0.1:8000, not ${url}`);
    if (!/^[!-~]*$/.test(token)) throw new Invalid("this is no token: hipq tenant token NAME makes one");
    this.#url = url.replace(/\/$/, "");
    this.#token = token;
    this.#tenant = tenant;
    this.#patience = patience * 1000;
  }

  /** Whose jobs these are: as was said, or as the daemon says of the token. */
  async tenant() {
    if (!this.#tenant) {
      const found = await this.json("GET", ["v1", "whoami"]);
      if (!found.tenant) throw new Invalid("this token is no tenant's: say for which, new Client(url, token, { tenant })");
      this.#tenant = found.tenant;
    }
    return this.#tenant;
  }

  async json(method, path, given = {}) {
    const reply = await this.reply(method, path, given);
    try {
      return reply.json();
    } catch {
      throw new DaemonUnavailable(`what replied with status ${reply.status} is no hipq daemon: its reply is not JSON`);
    }
  }

  /** The reply to a request, if it is a success; else throws the error it stands for. */
  async reply(method, path, given = {}) {
    const response = await this.#retried(method, path, given);
    return new Reply(response.status, response.headers, response.bytes);
  }

  /** Server-sent events, until the daemon stops or nobody wants more: `break` ends the request. */
  async *events(path, given = {}) {
    const leaving = new AbortController();
    try {
      const response = await this.#fetch("GET", path, { ...given, headers: { ...given.headers, accept: "text/event-stream" } }, leaving.signal);
      if (response.status !== 200) throw refusal(response.status, response.headers, new Uint8Array(await response.arrayBuffer()));
      let text = "";
      for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
        const blocks = (text + part).split("\n\n");
        text = blocks.pop();
        for (const block of blocks) {
          const found = event(block);
          if (found) yield found;
        }
      }
    } catch (error) {
      throw error instanceof HipqError ? error : new DaemonUnavailable(`the daemon's events have ended: ${reason(error)}`);
    } finally {
      leaving.abort();
    }
  }

  async #retried(method, path, given) {
    const once = given.headers?.["idempotency-key"];
    const isRepeatable = method === "GET" || method === "PUT" || Boolean(once);
    const until = Date.now() + this.#patience;
    for (let pause = FIRST_PAUSE; ; pause = Math.min(pause * 2, LONGEST_PAUSE)) {
      let wait = pause * (0.5 + Math.random() / 2); // clients that were refused together should not come back together
      let failed;
      let mayHaveArrived = false;
      try {
        const response = await this.#fetch(method, path, given, AbortSignal.timeout((given.seconds ?? 30) * 1000));
        const bytes = new Uint8Array(await response.arrayBuffer());
        if (response.ok) return { status: response.status, headers: response.headers, bytes };
        failed = refusal(response.status, response.headers, bytes);
        if (!isForLater(response)) throw failed;
        wait = Math.max(wait, 1000 * Number(response.headers.get("retry-after") ?? 0) || 0);
      } catch (error) {
        if (error instanceof HipqError) throw error;
        failed = new DaemonUnavailable(`the daemon cannot be reached: ${reason(error)}`);
        mayHaveArrived = !["ECONNREFUSED", "ENOTFOUND", "UND_ERR_CONNECT_TIMEOUT"].includes(error.cause?.code);
      }
      if (Date.now() + wait > until || (mayHaveArrived && !isRepeatable)) throw failed;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  #fetch(method, path, { query = {}, headers = {}, body }, signal) {
    const said = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
    const search = said.length ? `?${new URLSearchParams(said.map(([name, value]) => [name, String(value)]))}` : "";
    const kind = body === undefined ? {} : { "content-type": kindOf(body) };
    return fetch(`${this.#url}/${path.map(encodeURIComponent).join("/")}${search}`, {
      method, signal,
      headers: { "user-agent": "hipq", ...(this.#token && { authorization: `Bearer ${this.#token}` }), ...kind, ...headers },
      body: body === undefined || typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body),
      redirect: "error", // else the token would go along
    });
  }
}

/** Text and bytes go as they are, everything else as JSON. */
function kindOf(body) {
  if (typeof body === "string") return "text/plain; charset=utf-8";
  return body instanceof Uint8Array ? "application/octet-stream" : "application/json";
}

/** Whether the daemon asks to try later. A conflict does if it says when. */
function isForLater({ status, headers }) {
  return [429, 502, 503, 504, 507].includes(status) || (status === 409 && headers.has("retry-after"));
}

function refusal(status, headers, bytes) {
  let said = {};
  try {
    said = JSON.parse(new TextDecoder().decode(bytes)) ?? {};
  } catch {
    // some proxy's page
  }
  const text = String(said.error ?? `the daemon replied with status ${status}`);
  let error;
  if (status === 429) error = new OverQuota(text, Number(headers.get("retry-after")) || 1);
  else if (status === 409 && said.id) error = new DuplicateKey(text, said.id);
  else error = new (CLASSES[status] ?? (status < 500 ? Invalid : DaemonUnavailable))(text, status);
  return Object.assign(error, { reply: said });
}

function reason(error) {
  return error.cause?.message || error.cause?.code || error.message;
}

function event(block) {
  const data = block.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).replace(/^ /, ""));
  return data.length ? JSON.parse(data.join("\n")) : undefined;
}
