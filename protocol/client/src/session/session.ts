/**
 * One session: what is known of it, and everything that can be done with it.
 *
 * A session opens with the first subscription or request, and is reopened on every later connection until `close`.
 * Closing it, or the client, only ends the subscription: a running turn continues.
 */

import { type CommandName, type PayloadOf, type ReplyPayload, WITHOUT_SUBSCRIPTION } from "../connection/commands.js";
import type { Addressed, Connection, OnReply } from "../connection/connection.js";
import type { Environment } from "../connection/environment.js";
import { newId } from "../connection/ids.js";
import { SessionEnded } from "../errors.js";
import type { EventFrame } from "../fold/fold.js";
import type { Path } from "../fold/entries.js";
import { withEntries } from "../fold/open.js";
import type { SessionSnapshot } from "../fold/snapshot.js";
import { Hosting } from "../hosting/hosting.js";
import { type Offer, offers } from "../hosting/offer.js";
import { Listeners } from "../listeners.js";
import type {
  CommandId,
  ContextInfo,
  Done,
  Entries,
  EntryId,
  GetEntries,
  Input,
  LeafId,
  Navigated,
  SessionId,
  SessionOpened,
  TreeNode,
  TurnId,
  UserInput,
} from "../wire.js";
import { changesContext, movesAway } from "./after-event.js";
import { Answer } from "./answer.js";
import { SessionCommands } from "./commands.js";
import { siblingsOf } from "./siblings.js";
import { type Happened, type Opening, type SessionStatus, Subscription } from "./subscription.js";

/** The options of a session: how to open it, and the tools and hooks to offer. */
export interface SessionOptions extends Opening, Offer {}

/** The options of a new session. */
export interface NewSessionOptions extends SessionOptions {
  /** `false` keeps it in the server's memory only, until nobody has used it for an hour or the server ends. */
  readonly store?: boolean | undefined;
}

/** A session for display: changes whenever the status or the snapshot changes. */
export interface SessionView {
  /** The status of the subscription. */
  readonly status: SessionStatus;
  /** The state of the session; `null` before it was first opened. */
  readonly snapshot: SessionSnapshot | null;
}

/** The options of an input. */
export interface SendOptions extends Omit<UserInput, "input"> {
  /** The command's id, 16 to 64 characters, in case a later run of this program may resend the input. */
  readonly commandId?: CommandId;
}

/** Milliseconds that a session stays open after the last `hold` has ended: a view often comes back at once. */
const LINGER_MS = 1_000;

/** Entries per page of older ones. */
const PAGE_ENTRIES = 100;

/** The part of a client that a session uses. */
export interface SessionContext {
  readonly connection: Connection;
  readonly environment: Environment;
  /** The server's id for the current connection. */
  readonly connectionId: () => string | null;
  /** Called with whether the session needs events: it is open, opening, or has listeners. */
  readonly onUse: (session: Session, isUsed: boolean) => void;
}

/** One session. */
export class Session extends SessionCommands {
  /** Its id. */
  readonly id: SessionId;

  readonly #context: SessionContext;
  readonly #subscription: Subscription;
  readonly #hosting: Hosting;
  readonly #views = new Listeners();
  readonly #events = new Listeners<[Happened, SessionSnapshot, boolean]>();
  readonly #ends = new Listeners<[Error]>();
  readonly #disconnects = new Listeners();
  #view: SessionView = { status: { phase: "closed" }, snapshot: null };
  #holds = 0;
  /** True while the context size is being fetched. */
  #measuring = false;
  /** True if it has changed since. */
  #isUnmeasured = false;
  /** The page of older entries in flight, and the place before which it ends. */
  #older: { readonly before: LeafId; readonly more: Promise<boolean> } | null = null;
  /** Commands without a reply. */
  #asked = 0;
  /** True if the session closes once they all have a reply. */
  #lingers = false;
  #cancelLinger: () => void = () => undefined;

  /** Use `Client.session` instead: there is one object per session. */
  constructor(id: SessionId, options: SessionOptions, context: SessionContext) {
    super();
    this.id = id;
    this.#context = context;
    this.#hosting = new Hosting(options, context.environment, {
      tool: (toolCallId, output, isError) => this.sendToolResult(toolCallId, output, isError),
      hook: (hookCallId, answer) => this.sendHookResult(hookCallId, answer),
      progress: (about, message) => {
        const payload = { ...about, ...(message ? { message } : {}) };
        // Progress only matters now: it need not be sent later, and must not open the session.
        if (this.status.phase !== "open") return Promise.resolve();
        return context.connection.requestNow("call_progress", payload, { session: id });
      },
    });
    this.#subscription = new Subscription({
      session: id,
      connection: context.connection,
      environment: context.environment,
      opening: options,
      offers: () => offers(this.#hosting.offer),
      onChange: (event) => this.#changed(event),
    });
  }

  // ---- state

  /** The status and the snapshot; the same object until one of them changes. */
  get view(): SessionView {
    return this.#view;
  }

  /** The state of the session; `null` before it was first opened. */
  get snapshot(): SessionSnapshot | null {
    return this.#view.snapshot;
  }

  /** The status of the subscription. */
  get status(): SessionStatus {
    return this.#view.status;
  }

  /** True if this connection provides the tools and hooks. */
  get isHost(): boolean {
    const host = this.snapshot?.host;
    return host != null && host.connectionId === this.#context.connectionId();
  }

  /** Calls a function after each change of `view`, and opens the session. Returns the function that unsubscribes. */
  readonly subscribe = (listener: () => void): (() => void) => {
    const end = this.#views.add(listener);
    this.open();
    return () => {
      end();
      this.#tellUse();
    };
  };

  /**
   * Calls a function with each event after it was folded, with `opened` after a fresh snapshot, and with `replaying`
   * before the missed events. `missed` is true for each of these: it happened while this client was disconnected.
   * Returns the function that unsubscribes.
   */
  onEvent(
    listener: (event: EventFrame | "opened" | "replaying", snapshot: SessionSnapshot, missed: boolean) => void,
  ): () => void {
    const end = this.#events.add(listener);
    this.#tellUse();
    return () => {
      end();
      this.#tellUse();
    };
  }

  // ---- opening and closing

  /** Opens the session, now and on every later connection, until `close`. */
  open(): void {
    this.#cancelLinger();
    this.#lingers = false;
    this.#subscription.want();
  }

  /**
   * Opens the session and resolves with its newest snapshot, at once if it is open. Rejects if it cannot be opened, or
   * if the connection stops first.
   */
  opened(): Promise<SessionSnapshot> {
    const { connection } = this.#context;
    this.open();
    return new Promise((resolve, reject) => {
      const look = (): boolean => {
        const { status, snapshot } = this.#view;
        if (status.phase === "open" && snapshot) resolve(snapshot);
        else if (status.phase === "ended" || status.phase === "closed") reject(endOf(status));
        else if (connection.status.phase === "stopped") reject(connection.status.error);
        else return false;
        return true;
      };
      if (look()) return;
      const waits = (): void => {
        if (look()) ends.forEach((end) => end());
      };
      const ends = [this.#views.add(waits), this.#disconnects.add(waits)];
    });
  }

  /**
   * Keeps the session open until the returned function is called. When the last hold ends, the session closes a moment
   * later, once every command has its reply, unless it has subscribers.
   */
  hold(): () => void {
    this.#holds += 1;
    this.open();
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.#holds -= 1;
      if (this.#holds === 0) this.#linger();
    };
  }

  /**
   * Ends the subscription. A running turn continues without this client, whose tools and hooks are no longer offered.
   * `cancelTurn` stops a turn.
   */
  async close(): Promise<void> {
    this.#cancelLinger();
    this.#lingers = false;
    await this.#subscription.unwant();
  }

  // ---- turns

  /** Sends an input, and returns the answer as it is written. While a turn runs, the input waits in the queue. */
  send(input: Input, { commandId = newId(), ...options }: SendOptions = {}): Answer {
    return this.#answer(commandId, null, (take) => this.ask("user_input", { input, ...options }, commandId, take));
  }

  /** Retries the named turn without an answer, or else the last one. */
  retryTurn(turnId?: TurnId): Answer {
    const id = newId();
    const { unansweredTurns = [] } = this.snapshot ?? {};
    const retried = unansweredTurns.findLast((turn) => turnId === undefined || turn.turnId === turnId);
    const after = retried && retried.leafId !== "root" ? retried.leafId : null;
    return this.#answer(id, after, (take) => this.ask("retry_turn", turnId === undefined ? {} : { turnId }, id, take));
  }

  // ---- history

  /** Fetches entries: it selects the newest, and returns them oldest first. They become part of `snapshot.entries`. */
  async getEntries(options: GetEntries = {}): Promise<Entries> {
    const page = await this.ask("get_entries", options);
    this.#subscription.change((snapshot) => withEntries(snapshot, page));
    return page;
  }

  /**
   * Fetches the page of the path before the known part. Resolves with true while there is more; show a button as long
   * as `snapshot.path.more` is true. Only one page is fetched at a time: a repeated call waits for the same one.
   */
  async loadOlder(limit: number = PAGE_ENTRIES): Promise<boolean> {
    const { path } = this.snapshot ?? (await this.opened());
    if (!path.more) return false;
    const before = path.entries[0]?.entryId ?? path.leafId;
    if (this.#older?.before === before) return this.#older.more;
    const older = { before, more: this.#fetchOlder(path, limit) };
    this.#older = older;
    try {
      return await older.more;
    } finally {
      if (this.#older === older) this.#older = null;
    }
  }

  async #fetchOlder(path: Path, limit: number): Promise<boolean> {
    const first = path.entries[0];
    const page = await this.ask("get_entries", { path: true, limit, ...(first ? { before: first.entryId } : {}) });
    this.#subscription.change((snapshot) => {
      // If the session has moved meanwhile, the page is not the one before the shown entries.
      const isOlder = snapshot.path.entries[0]?.entryId === first?.entryId;
      return withEntries(snapshot, page, isOlder);
    });
    return this.snapshot?.path.more ?? false;
  }

  /**
   * Returns the alternatives to an entry, including itself, oldest first: what was asked or answered at the same place.
   * Labels and the like do not separate them. Use it to show "2 of 3", and go to another one with `switchTo`.
   */
  siblings(entryId: EntryId): Promise<readonly TreeNode[]> {
    return siblingsOf(entryId, {
      tree: (part) => this.tree(part),
      entry: async (id) => {
        const entry = this.snapshot?.entries.get(id) ?? (await this.getEntry(id));
        if (!entry) throw new Error(`the session has no entry \`${id}\``);
        return entry;
      },
    });
  }

  /**
   * Continues on the branch through an entry, where that branch was last left. A running turn must end first: otherwise
   * the server refuses with `turn_running`.
   */
  switchTo(entryId: EntryId): Promise<Navigated> {
    return this.navigate(entryId, { position: "tip" });
  }

  /** Fetches how full the window is, and updates the snapshot. */
  async getContextInfo(): Promise<ContextInfo> {
    const contextInfo = await this.ask("get_context_info", {});
    this.#subscription.change((now) => ({ ...now, contextInfo, warning: contextInfo.warning ?? null }));
    return contextInfo;
  }

  /** Deletes the session for good, after which it has ended. The server only notifies the other connections. */
  override async delete(): Promise<Done> {
    const done = await super.delete();
    this.#subscription.deleted();
    return done;
  }

  // ---- tools and hooks

  /**
   * Offers tools and hooks in place of those offered before; absent ones stay. They are offered again on every
   * connection. `standby` in the reply means that another client is the host and is called instead.
   */
  async host(offer: Offer): Promise<Done> {
    this.#hosting.change({ ...this.#hosting.offer, ...offer });
    if (this.status.phase === "closed" || this.#context.connection.status.phase !== "open") {
      // Opening the session sends the offer.
      await this.opened();
      return this.isHost ? {} : { standby: true };
    }
    // The session may be opening with the previous offer.
    await this.opened();
    const { tools, hooks } = offers(this.#hosting.offer);
    const replies = await Promise.all([
      offer.tools ? this.ask("register_tools", { tools: tools ?? [] }) : {},
      offer.hooks ? this.ask("register_hooks", { hooks: hooks ?? [] }) : {},
    ]);
    return Object.assign({}, ...replies) as Done;
  }

  // ---- internal to the client

  /** Takes over the session that a command of this client has created. */
  adopt(opened: SessionOpened): void {
    this.#subscription.adopt(opened);
  }

  /** Handles a new connection. */
  connected(): void {
    this.#subscription.connected();
  }

  /** Handles a lost connection. */
  disconnected(): void {
    this.#subscription.disconnected();
    this.#disconnects.tell();
    const { status } = this.#context.connection;
    if (status.phase === "stopped") this.#ends.tell(status.error);
  }

  /** Handles an event. */
  take(event: EventFrame): void {
    this.#subscription.event(event);
  }

  /** Handles missed events. */
  resync(): void {
    this.#subscription.resync();
  }

  protected override ask<T extends CommandName>(
    type: T,
    payload: PayloadOf<T>,
    id?: CommandId,
    onReply?: OnReply<T>,
  ): Promise<ReplyPayload<T>> {
    const { status } = this;
    if (status.phase === "ended") return Promise.reject(endOf(status));
    const to: Addressed = { session: this.id, id };
    const { connection } = this.#context;
    if (WITHOUT_SUBSCRIPTION.has(type)) return connection.request(type, payload, to, onReply);
    const lingers = this.#lingers;
    this.open();
    // A tool may send its result after the last view is gone. The session stays open until the reply.
    this.#lingers = lingers;
    const reply = connection.request(type, payload, to, onReply);
    this.#asked += 1;
    return reply.finally(() => {
      this.#asked -= 1;
      if (this.#lingers && this.#asked === 0) this.#linger();
    });
  }

  /** Closes the session after a moment, unless it is needed by then. */
  #linger(): void {
    this.#cancelLinger();
    this.#lingers = true;
    this.#cancelLinger = this.#context.environment.after(LINGER_MS, () => {
      if (this.#asked > 0) return;
      this.#lingers = false;
      if (this.#views.size === 0) void this.close();
    });
  }

  #answer(commandId: CommandId, after: EntryId | null, ask: ConstructorParameters<typeof Answer>[1]["ask"]): Answer {
    return new Answer(commandId, {
      after,
      ask,
      snapshot: () => this.snapshot,
      listen: (listener) => this.#events.add(listener),
      onEnd: (listener) => this.#ends.add(listener),
      cancel: (turnId) => (turnId === null ? this.editQueue({ remove: [commandId] }) : this.cancelTurn(turnId)),
    });
  }

  #changed(event: Happened | null): void {
    const { status, snapshot } = this.#subscription;
    const had = this.#view.status;
    this.#view = { status, snapshot };
    this.#tellUse();
    if (status !== had && (status.phase === "ended" || status.phase === "closed")) {
      this.#hosting.stop();
      this.#ends.tell(endOf(status));
    }
    if (event !== null && snapshot) {
      if (typeof event === "string") this.#hosting.reopened(this.#subscription.pending, event === "replaying");
      if (typeof event === "object") this.#hosting.take(event, snapshot);
      const missed = typeof event === "object" && event.seq !== undefined && event.seq <= this.#subscription.asOfSeq;
      this.#events.tell(event, snapshot, missed);
      if (typeof event === "object") this.#lookAfter(event, snapshot);
    }
    this.#views.tell();
  }

  #tellUse(): void {
    const { phase } = this.status;
    const isUsed = phase === "opening" || phase === "open" || this.#views.size > 0 || this.#events.size > 0;
    this.#context.onUse(this, isUsed);
  }

  /** Fetches what an event changes but does not carry. */
  #lookAfter(event: EventFrame, snapshot: SessionSnapshot): void {
    if (!snapshot.turn && changesContext(event)) this.#isUnmeasured = true;
    this.#measure();
    if (movesAway(event, snapshot)) this.loadOlder().catch(() => undefined);
  }

  /** Fetches the context size if it has changed: one request at a time, and none during a replay. */
  #measure(): void {
    if (!this.#isUnmeasured || this.#measuring || this.#subscription.isReplaying) return;
    this.#isUnmeasured = false;
    if (this.status.phase !== "open") return;
    this.#measuring = true;
    const done = (): void => {
      this.#measuring = false;
      this.#measure();
    };
    // On failure, views keep the old size until the next event that reports it.
    this.getContextInfo().then(done, done);
  }
}

/** Returns why nothing more will arrive for a session. */
function endOf(status: Extract<SessionStatus, { phase: "ended" | "closed" }>): Error {
  if (status.phase === "closed") return new SessionEnded("the session was closed");
  return status.error ?? new SessionEnded(status.reason);
}
