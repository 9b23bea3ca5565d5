// The client of a daemon: every route, and the few things that take more than one request.

import { Http, JobFailed, TimedOut } from "./http.js";
import { Routes } from "./routes.js";

export * from "./http.js";

const POLL = 20;

export class Client extends Routes {
  constructor(url, token, options) {
    super(new Http(url, token, options));
  }

  async add(type, payload, { idempotencyKey, ...options } = {}) {
    const body = { type, ...options };
    if (typeof payload === "string") body.payload = payload;
    else if (payload instanceof Uint8Array) body.payload_base64 = base64(payload);
    else if (payload !== undefined) body.data = payload;
    const { ids } = await this.addJobs(body, { idempotencyKey });
    return ids[0];
  }

  async result(id, { timeout = Infinity } = {}) {
    const until = Date.now() + timeout * 1000;
    for (;;) {
      const wait = Math.max(0, Math.min(POLL, (until - Date.now()) / 1000));
      const reply = await this.getJobResult(id, { wait: wait.toFixed(3) });
      if (reply.status === 200) return ended(id, reply);
      if (Date.now() >= until) throw new TimedOut(`job ${id} has not ended within ${timeout} seconds`);
    }
  }
}

function ended(id, reply) {
  const code = reply.headers.get("x-hipq-code");
  const exitcode = Number(reply.headers.get("x-hipq-exitcode"));
  if (code !== "ok") throw new JobFailed(id, code, exitcode, new TextDecoder().decode(reply.bytes.slice(0, 200)));
  return reply;
}

function base64(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}
