/**
 * A subscription to one session that lasts: it is opened on each connection, exactly where it was.
 *
 * What always holds:
 * - events are applied between `session_opened` and the end of that connection's subscription, and nowhere else;
 * - a gap is mended by opening the session again with `resume`, never by guessing;
 * - one that the server has ended for good is not opened again.
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
  /** It is not open on the server: `close` was called, or nobody has asked for it yet. */
  | { readonly phase: "closed" }
  /**
   * It is being opened. A snapshot that is there already is what was known before; `error` is why the server has
   * refused for now, and it is tried again.
   */
  | { readonly phase: "opening"; readonly error?: Error }
  /** Events arrive. */
  | { readonly phase: "open" }
  /** The server has ended it, and opening it again will not help. */
  | { readonly phase: "ended"; readonly code: string; readonly reason: string; readonly error?: Error };

/** The options of `open_session`. */
export interface Opening {
  /** Writer (the default) or observer. */
  readonly role?: SessionRole | undefined;
  /** The number of newest entries in the first snapshot; absent: 50. */
  readonly entries?: number | undefined;
  /** `false` leaves out the deltas of answers. */
  readonly deltas?: boolean | undefined;
}

/** An event that was applied; or that the session was opened, by a snapshot or with a replay of what was missed. */
export type Happened = EventFrame | "opened" | "replaying";

/** The dependencies of a subscription. */
export interface SubscriptionOptions {
  readonly session: SessionId;
  readonly connection: Connection;
  readonly environment: Environment;
  readonly opening: Opening;
  /** Returns the offer, each time that the session is opened. */
  readonly offers: () => { tools?: ToolOffer[]; hooks?: HookOffer[] };
  /** Takes each change of the status or the snapshot; `event` is the one that was applied. */
  readonly onChange: (event: Happened | null) => void;
}

/** Milliseconds within which a second gap asks for everything anew: the resume has not mended it. */
const RESYNC_MS = 2_000;

/** Milliseconds after which a subscription has lasted: its end by a failure is the first one. */
const LASTED_MS = 10_000;

/** Milliseconds to wait at least before a session is opened that failed again at once. */
const FAILED_AGAIN_MS = 3_000;

/** A subscription to one session. */
export class Subscription {
  readonly #options: SubscriptionOptions;
  #status: SessionStatus = { phase: "closed" };
  #snapshot: SessionSnapshot | null = null;
  #wanted = false;
  /** The session is damaged, and can only be read. */
  #readOnly = false;
  /** Counts the attempts to open it, so that what comes of an earlier one is known as such. */
  #attempt = 0;
  #failures = 0;
  #openedAt = Number.NEGATIVE_INFINITY;
  #resyncedAt = Number.NEGATIVE_INFINITY;
  /** The next attempt asks for a snapshot, whatever is known. */
  #anew = false;
  #cancelRetry: () => void = () => undefined;
  /** The last event that the newest `session_opened` covers. */
  #asOfSeq = 0;
  #pending: readonly PendingCall[] = [];

  /** Creates one that nobody wants yet. */
  constructor(options: SubscriptionOptions) {
    this.#options = options;
  }

  /** Its present status. */
  get status(): SessionStatus {
    return this.#status;
  }

  /** The newest snapshot; `null` before the first one. */
  get snapshot(): SessionSnapshot | null {
    return this.#snapshot;
  }

  /** True while events come that were missed: others follow at once. */
  get isReplaying(): boolean {
    return this.#snapshot !== null && this.#snapshot.seq < this.#asOfSeq;
  }

  /** The last event that happened before the session was opened: up to here events were missed. */
  get asOfSeq(): number {
    return this.#asOfSeq;
  }

  /** The open calls that the newest `session_opened` has told of; a replay leaves the snapshot's as they were. */
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

  /** Takes a session that was opened by the command that has created it. */
  adopt(opened: SessionOpened): void {
    this.#wanted = true;
    this.#take(opened);
  }

  /** Ends it on the server, where a turn continues. */
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

  /** A connection is there: opens the session on it. */
  connected(): void {
    if (!this.#wanted || this.#status.phase === "ended" || this.#options.connection.status.phase !== "open") return;
    void this.#open();
  }

  /** The connection is lost. */
  disconnected(): void {
    this.#forgive();
    this.#attempt += 1;
    this.#cancelRetry();
    if (this.#wanted && this.#status.phase === "open") this.#setStatus({ phase: "opening" });
  }

  /** Takes an event of this session. */
  event(event: EventFrame): void {
    // Before `session_opened`, and after the end, events belong to a subscription that is over.
    if (this.#status.phase !== "open" || !this.#snapshot) return;
    if (event.type === "session_closed") return this.#closed(event.payload);
    const next = fold(this.#snapshot, event);
    if (next === "gap") return this.resync();
    this.#snapshot = next;
    this.#options.onChange(event);
  }

  /** Changes the snapshot by something that is no event, such as a page of older entries. */
  change(next: (snapshot: SessionSnapshot) => SessionSnapshot): void {
    if (!this.#snapshot) return;
    const changed = next(this.#snapshot);
    if (changed === this.#snapshot) return;
    this.#snapshot = changed;
    this.#options.onChange(null);
  }

  /** Something was missed: opens the session again on the same connection, where it was. */
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

  /** This client has deleted the session. */
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
      // An observer may offer nothing.
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
    // One that fails again at once may fail for what a resume replays. Stored events that cannot be read are passed
    // over by a new snapshot too.
    const failsAgain = this.#failures > 0;
    if (failsAgain || !retriable) this.#anew = true;
    connection.held(session);
    this.#setStatus({ phase: "opening" });
    this.#retry(failsAgain ? FAILED_AGAIN_MS : 0);
  }

  /** The subscription is over: failures from before it count only if it has not lasted. */
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
