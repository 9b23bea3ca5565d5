import type { ClientOptions, Reply } from "./http.js";
import { Routes, type NewJob } from "./routes.js";

export * from "./http.js";
export * from "./routes.js";

/** A client of a daemon. Every method may throw a `HipqError`. */
export class Client extends Routes {
  constructor(url: string, token?: string, options?: ClientOptions);

  /** Add a job: text and bytes as they are, anything else as JSON. It is added once, also if its reply is lost and the
   * request is sent again. Returns its id. */
  add(
    type: string,
    payload?: unknown,
    options?: Omit<NewJob, "type" | "data" | "payload" | "payload_base64"> & { idempotencyKey?: string },
  ): Promise<string>;

  /** The result of a job when it has ended. `JobFailed` if it did not succeed, `TimedOut` after so many seconds. */
  result(id: string, options?: { timeout?: number }): Promise<Reply>;
}
