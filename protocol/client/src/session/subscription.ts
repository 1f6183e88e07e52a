/**
 * A lasting subscription to one session: it is reopened on each connection exactly where it was.
 *
 * Invariants:
 * - events are applied between `session_opened` and the end of that connection's subscription, and nowhere else;
 * - a gap is repaired by reopening the session with `resume`, never by guessing;
 * - a session that the server has ended for good is not reopened.
 */

import type { Connection } from "../connection/connection.js";
import { backoff } from "../connection/backoff.js";
import type { Environment } from "../connection/environment.js";
import { asError, ClientClosed, CommandError, ConnectionLost, SessionEnded } from "../errors.js";
import { type EventFrame, fold } from "../fold/fold.js";
import { reopened, resumePoint } from "../fold/open.js";
import type { SessionSnapshot } from "../fold/snapshot.js";
import type {
  HookOffer,
  OpenSession,
  PendingCall,
  SessionClosed,
  SessionId,
  SessionOpened,
  SessionRole,
  ToolOffer,
} from "../wire.js";

/** The status of a subscription. */
export type SessionStatus =
  /** Not open on the server: `close` was called, or nobody has needed it yet. */
  | { readonly phase: "closed" }
  /**
   * Being opened. An existing snapshot is the last known state. `error` is why the server refused temporarily; opening
   * is retried.
   */
  | { readonly phase: "opening"; readonly error?: Error }
  /** Events arrive. */
  | { readonly phase: "open" }
  /** Ended by the server; reopening will not help. */
  | { readonly phase: "ended"; readonly code: string; readonly reason: string; readonly error?: Error };

/** The options of `open_session`. */
export interface Opening {
  /** `writer` (the default) or `observer`. */
  readonly role?: SessionRole | undefined;
  /** The number of newest entries in the first snapshot; absent: 50. */
  readonly entries?: number | undefined;
  /** `false` omits the deltas of answers. */
  readonly deltas?: boolean | undefined;
}

/** An applied event, or the opening of the session: by a snapshot or with a replay of the missed events. */
export type Happened = EventFrame | "opened" | "replaying";

/** The dependencies of a subscription. */
export interface SubscriptionOptions {
  readonly session: SessionId;
  readonly connection: Connection;
  readonly environment: Environment;
  readonly opening: Opening;
  /** Returns the offer each time the session is opened. */
  readonly offers: () => { tools?: ToolOffer[]; hooks?: HookOffer[] };
  /** Called on each change of the status or the snapshot; `event` is the one that was applied. */
  readonly onChange: (event: Happened | null) => void;
}

/** Milliseconds within which a second gap requests a fresh snapshot: the resume has not repaired the first one. */
const RESYNC_MS = 2_000;

/** Milliseconds after which a subscription counts as stable: a failure then is a first failure. */
const LASTED_MS = 10_000;

/** Minimum milliseconds before reopening a session that failed again at once. */
const FAILED_AGAIN_MS = 3_000;

/** A subscription to one session. */
export class Subscription {
  readonly #options: SubscriptionOptions;
  #status: SessionStatus = { phase: "closed" };
  #snapshot: SessionSnapshot | null = null;
  #wanted = false;
  /** True if the session is damaged and can only be read. */
  #readOnly = false;
  /** Counts the attempts to open it, so that results of an earlier one are recognised. */
  #attempt = 0;
  #failures = 0;
  #openedAt = Number.NEGATIVE_INFINITY;
  #resyncedAt = Number.NEGATIVE_INFINITY;
  /** True if the next attempt requests a snapshot, whatever is known. */
  #anew = false;
  #cancelRetry: () => void = () => undefined;
  /** The last event covered by the newest `session_opened`. */
  #asOfSeq = 0;
  #pending: readonly PendingCall[] = [];

  /** Creates an inactive subscription. */
  constructor(options: SubscriptionOptions) {
    this.#options = options;
  }

  /** The current status. */
  get status(): SessionStatus {
    return this.#status;
  }

  /** The newest snapshot; `null` before the first one. */
  get snapshot(): SessionSnapshot | null {
    return this.#snapshot;
  }

  /** True while missed events are arriving: more follow at once. */
  get isReplaying(): boolean {
    return this.#snapshot !== null && this.#snapshot.seq < this.#asOfSeq;
  }

  /** The last event that happened before the session was opened: events up to it were missed. */
  get asOfSeq(): number {
    return this.#asOfSeq;
  }

  /** The open calls according to the newest `session_opened`; a replay leaves the snapshot's calls as they were. */
  get pending(): readonly PendingCall[] {
    return this.#pending;
  }

  /** Opens the session, now and on every later connection. */
  want(): void {
    if (this.#wanted) return;
    this.#wanted = true;
    this.#setStatus({ phase: "opening" });
    this.connected();
  }

  /** Takes over a session that was opened by the command that created it. */
  adopt(opened: SessionOpened): void {
    this.#wanted = true;
    this.#take(opened);
  }

  /** Ends the subscription on the server, where a turn continues. */
  async unwant(): Promise<void> {
    if (!this.#wanted) return;
    const { connection, session } = this.#options;
    this.#wanted = false;
    this.#attempt += 1;
    this.#cancelRetry();
    const wasOpen = this.#status.phase !== "ended";
    this.#setStatus({ phase: "closed" });
    connection.ended(session, new SessionEnded("the session was closed"));
    if (wasOpen) await connection.requestNow("close_session", {}, { session }).catch(() => undefined);
  }

  /** Handles a new connection: opens the session on it. */
  connected(): void {
    if (!this.#wanted || this.#status.phase === "ended" || this.#options.connection.status.phase !== "open") return;
    void this.#open();
  }

  /** Handles a lost connection. */
  disconnected(): void {
    this.#forgive();
    this.#attempt += 1;
    this.#cancelRetry();
    if (this.#wanted && this.#status.phase === "open") this.#setStatus({ phase: "opening" });
  }

  /** Handles an event of this session. */
  event(event: EventFrame): void {
    // Events before `session_opened` or after the end belong to an earlier subscription.
    if (this.#status.phase !== "open" || !this.#snapshot) return;
    if (event.type === "session_closed") return this.#closed(event.payload);
    const next = fold(this.#snapshot, event);
    if (next === "gap") return this.resync();
    this.#snapshot = next;
    this.#options.onChange(event);
  }

  /** Changes the snapshot by something other than an event, such as a page of older entries. */
  change(next: (snapshot: SessionSnapshot) => SessionSnapshot): void {
    if (!this.#snapshot) return;
    const changed = next(this.#snapshot);
    if (changed === this.#snapshot) return;
    this.#snapshot = changed;
    this.#options.onChange(null);
  }

  /** Handles missed events: reopens the session on the same connection where it was. */
  resync(): void {
    if (this.#status.phase !== "open") return;
    const { connection, session, environment } = this.#options;
    this.#forgive();
    this.#anew = environment.now() - this.#resyncedAt < RESYNC_MS;
    this.#resyncedAt = environment.now();
    connection.held(session);
    this.#setStatus({ phase: "opening" });
    connection.requestNow("close_session", {}, { session }).catch(() => undefined);
    void this.#open();
  }

  /** Handles the deletion of the session by this client. */
  deleted(): void {
    if (this.#status.phase !== "ended") this.#end("deleted", "the session was deleted");
  }

  async #open(): Promise<void> {
    const { connection, session, opening } = this.#options;
    this.#attempt += 1;
    const attempt = this.#attempt;
    try {
      await connection.requestNow("open_session", this.#payload(opening), { session }, (opened) => {
        if (attempt === this.#attempt) this.#take(opened);
      });
    } catch (error) {
      if (attempt !== this.#attempt || error instanceof ConnectionLost || error instanceof ClientClosed) return;
      if (error instanceof CommandError) this.#refused(error);
      else this.#end("unsendable", asError(error).message, asError(error));
    }
  }

  #payload({ role, entries, deltas }: Opening): OpenSession {
    const asked = this.#readOnly ? "observer" : role;
    return {
      ...(asked === undefined ? {} : { role: asked }),
      ...(entries === undefined ? {} : { entries }),
      ...(deltas === undefined ? {} : { deltas }),
      ...(this.#snapshot && !this.#anew ? { resume: resumePoint(this.#snapshot) } : {}),
      // An observer must not offer anything.
      ...(asked === "observer" ? {} : this.#options.offers()),
    };
  }

  #take(opened: SessionOpened): void {
    this.#openedAt = this.#options.environment.now();
    this.#anew = false;
    this.#asOfSeq = opened.asOfSeq;
    this.#pending = opened.pending;
    this.#snapshot = reopened(this.#snapshot, opened);
    this.#status = { phase: "open" };
    this.#options.onChange(opened.resumed === "replay" ? "replaying" : "opened");
    this.#options.connection.opened(this.#options.session);
  }

  #refused(error: CommandError): void {
    if (error.code === "session_damaged" && !this.#readOnly) {
      this.#readOnly = true;
      void this.#open();
    } else if (error.retriable) {
      this.#setStatus({ phase: "opening", error });
      this.#retry(error.retryAfterMs);
    } else this.#end(error.code, error.message, error);
  }

  #closed({ code, message, retriable, error }: SessionClosed): void {
    const { connection, session } = this.#options;
    if (code === "deleted") return this.#end(code, message, error ? new CommandError(error) : undefined);
    this.#forgive();
    // A session that fails again at once may fail because of what a resume replays. A new snapshot also skips stored
    // events that cannot be read.
    const failsAgain = this.#failures > 0;
    if (failsAgain || !retriable) this.#anew = true;
    connection.held(session);
    this.#setStatus({ phase: "opening" });
    this.#retry(failsAgain ? FAILED_AGAIN_MS : 0);
  }

  /** Handles the end of the subscription: earlier failures count only if it was not stable. */
  #forgive(): void {
    const isOpen = this.#status.phase === "open";
    if (isOpen && this.#options.environment.now() - this.#openedAt >= LASTED_MS) this.#failures = 0;
  }

  #retry(waitMs = 0): void {
    const { environment } = this.#options;
    const wait = Math.max(waitMs, backoff(this.#failures, environment.random()));
    this.#failures += 1;
    this.#cancelRetry();
    this.#cancelRetry = environment.after(wait, () => this.connected());
  }

  #end(code: string, reason: string, error?: Error): void {
    this.#attempt += 1;
    this.#options.connection.ended(this.#options.session, error ?? new SessionEnded(reason));
    this.#setStatus({ phase: "ended", code, reason, ...(error ? { error: asError(error) } : {}) });
  }

  #setStatus(status: SessionStatus): void {
    this.#status = status;
    this.#options.onChange(null);
  }
}
