export interface ClientOptions {
  /** For a token that is not one tenant's. */
  tenant?: string;
  /** Seconds for which a request is sent again that the daemon cannot take right now; 30 if it is not given. */
  patience?: number;
}

/** Something in hipq went wrong. */
export class HipqError extends Error {
  /** The status of the reply; 0 if there was none. */
  readonly status: number;
  /** What the daemon said beside its sentence. */
  readonly reply?: Record<string, unknown>;
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
  readonly id: string;
}
/** Too much for now: try again after so many seconds. */
export class OverQuota extends HipqError {
  readonly retryAfter: number;
}
/** There is no daemon, or it cannot do this now. */
export class DaemonUnavailable extends HipqError {}
/** The job did not succeed: how it ended. */
export class JobFailed extends HipqError {
  readonly id: string;
  readonly code: string;
  readonly exitcode: number;
}
/** The job has not ended in time. */
export class TimedOut extends HipqError {}

/** A reply that is not JSON, or not always: a job's result, figures. */
export class Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Uint8Array;
  /** The bytes as UTF-8; a TypeError if they are not that. */
  text(): string;
  json(): unknown;
}
