/**
 * One session: what is known of it, and everything that can be done with it.
 *
 * A session is opened when somebody subscribes to it or asks something of it, and stays open on every later connection
 * until `close`. Closing it, or the client, only ends the subscription: a turn that runs goes on.
 */

import type { CommandName, PayloadOf, ReplyPayload } from "../connection/commands.js";
import type { Addressed, Connection, OnReply } from "../connection/connection.js";
import type { Environment } from "../connection/environment.js";
import { newId } from "../connection/ids.js";
import { SessionEnded } from "../errors.js";
import type { EventFrame } from "../fold/fold.js";
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
  GetEntries,
  Input,
  LeafId,
  SessionId,
  SessionOpened,
  TurnId,
  UserInput,
} from "../wire.js";
import { Answer } from "./answer.js";
import { SessionCommands } from "./commands.js";
import { type Happened, type Opening, type SessionStatus, Subscription } from "./subscription.js";

/** How a session is opened, and what this client does for it. */
export interface SessionOptions extends Opening, Offer {}

/** A session as it is shown: changes whenever the status or the snapshot changes. */
export interface SessionView {
  /** Whether events arrive. */
  readonly status: SessionStatus;
  /** What is known; `null` before the session was opened for the first time. */
  readonly snapshot: SessionSnapshot | null;
}

/** How an input is sent. */
export interface SendOptions extends Omit<UserInput, "input"> {
  /** The command's id, 16 to 64 characters, if the input may be sent again by a later run of this program. */
  readonly commandId?: CommandId;
}

/** Milliseconds that a session stays open after the last `hold` has ended: a view often comes back at once. */
const LINGER_MS = 1_000;

/** Entries that one page of older ones has. */
const PAGE_ENTRIES = 100;

/** What a session needs of its client. */
export interface SessionContext {
  readonly connection: Connection;
  readonly environment: Environment;
  /** The name that the server has given to the present connection. */
  readonly connectionId: () => string | null;
}

/** One session. */
export class Session extends SessionCommands {
  /** Its id. */
  readonly id: SessionId;

  readonly #context: SessionContext;
  readonly #subscription: Subscription;
  readonly #hosting: Hosting;
  readonly #views = new Listeners();
  readonly #events = new Listeners<[Happened, SessionSnapshot]>();
  readonly #ends = new Listeners<[Error]>();
  readonly #disconnects = new Listeners();
  #view: SessionView = { status: { phase: "closed" }, snapshot: null };
  #holds = 0;
  #measuring = false;
  #cancelLinger: () => void = () => undefined;

  /** Use `Client.session` instead: there is one object of each session. */
  constructor(id: SessionId, options: SessionOptions, context: SessionContext) {
    super();
    this.id = id;
    this.#context = context;
    this.#hosting = new Hosting(options, context.environment, {
      tool: (toolCallId, output, isError) => this.sendToolResult(toolCallId, output, isError),
      hook: (hookCallId, answer) => this.sendHookResult(hookCallId, answer),
      progress: (about, message) => this.ask("call_progress", { ...about, ...(message ? { message } : {}) }),
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

  // ---- what is known

  /** The status and the snapshot; the same object until one of them changes. */
  get view(): SessionView {
    return this.#view;
  }

  /** What is known; `null` before the session was opened for the first time. */
  get snapshot(): SessionSnapshot | null {
    return this.#view.snapshot;
  }

  /** Whether events arrive. */
  get status(): SessionStatus {
    return this.#view.status;
  }

  /** True if the tools and hooks of this very connection are asked. */
  get isHost(): boolean {
    const host = this.snapshot?.host;
    return host != null && host.connectionId === this.#context.connectionId();
  }

  /** Calls a function after each change of `view`, opens the session, and returns the function that ends this. */
  readonly subscribe = (listener: () => void): (() => void) => {
    const end = this.#views.add(listener);
    this.open();
    return end;
  };

  /**
   * Calls a function with each event after it was folded, with `opened` after a fresh snapshot, and with `replaying`
   * before the events that were missed. Returns the function that ends this.
   */
  onEvent(listener: (event: EventFrame | "opened" | "replaying", snapshot: SessionSnapshot) => void): () => void {
    return this.#events.add(listener);
  }

  // ---- opening and closing

  /** Opens the session, now and on every later connection, until `close`. */
  open(): void {
    this.#cancelLinger();
    this.#subscription.want();
  }

  /**
   * Opens the session and resolves with its newest snapshot, at once if it is open. Rejects if it cannot be opened, or
   * if the connection stops before.
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
   * Keeps the session open until the returned function is called. The last of these closes it after a moment, unless
   * somebody is subscribed.
   */
  hold(): () => void {
    this.#holds += 1;
    this.open();
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.#holds -= 1;
      if (this.#holds > 0) return;
      this.#cancelLinger();
      this.#cancelLinger = this.#context.environment.after(LINGER_MS, () => {
        if (this.#views.size === 0) void this.close();
      });
    };
  }

  /**
   * Ends the subscription. A running turn goes on without this client; its tools and hooks are offered no more.
   * `cancelTurn` stops a turn.
   */
  async close(): Promise<void> {
    this.#cancelLinger();
    this.#hosting.stop();
    await this.#subscription.unwant();
  }

  // ---- turns

  /** Says something, and returns the answer as it is written. While a turn runs the input waits in the queue. */
  send(input: Input, { commandId = newId(), ...options }: SendOptions = {}): Answer {
    return this.#answer(commandId, (take) => this.ask("user_input", { input, ...options }, commandId, take));
  }

  /** Asks again for the answer of a turn that has none, the last one unless it is named. */
  retryTurn(turnId?: TurnId): Answer {
    const id = newId();
    return this.#answer(id, (take) => this.ask("retry_turn", turnId === undefined ? {} : { turnId }, id, take));
  }

  // ---- what older events have told

  /** Fetches entries, newest first in choice and oldest first in order. They become part of `snapshot.entries`. */
  async getEntries(options: GetEntries = {}): Promise<Entries> {
    const page = await this.ask("get_entries", options);
    this.#subscription.change((snapshot) => withEntries(snapshot, page));
    return page;
  }

  /**
   * Fetches the page of the path before what is known. Resolves with true while there is more; show a button as long as
   * `snapshot.path.more` is true.
   */
  async loadOlder(limit: number = PAGE_ENTRIES): Promise<boolean> {
    const { path } = this.snapshot ?? (await this.opened());
    if (!path.more) return false;
    const first = path.entries[0];
    const page = await this.ask("get_entries", { path: true, limit, ...(first ? { before: first.entryId } : {}) });
    this.#subscription.change((snapshot) => {
      // The session may have moved meanwhile: then the page is not the one before what is shown.
      const isOlder = snapshot.path.entries[0]?.entryId === first?.entryId;
      return withEntries(snapshot, page, isOlder);
    });
    return this.snapshot?.path.more ?? false;
  }

  /** Returns how full the window is, and puts it into the snapshot. */
  async getContextInfo(): Promise<ContextInfo> {
    const contextInfo = await this.ask("get_context_info", {});
    this.#subscription.change((now) => ({ ...now, contextInfo, warning: contextInfo.warning ?? null }));
    return contextInfo;
  }

  // ---- tools and hooks

  /**
   * Offers tools and hooks, in place of those that were offered before; what is absent stays. They are offered again on
   * every connection. `standby` of the reply says that another client is the host, and is asked in place of this one.
   */
  async host(offer: Offer): Promise<Done> {
    this.#hosting.change({ ...this.#hosting.offer, ...offer });
    if (this.status.phase !== "open") {
      // Opening the session offers them.
      await this.opened();
      return this.isHost ? {} : { standby: true };
    }
    const { tools, hooks } = offers(this.#hosting.offer);
    const replies = await Promise.all([
      offer.tools ? this.ask("register_tools", { tools: tools ?? [] }) : {},
      offer.hooks ? this.ask("register_hooks", { hooks: hooks ?? [] }) : {},
    ]);
    return Object.assign({}, ...replies) as Done;
  }

  // ---- what the client calls

  /** Takes the session that a command of this client has created. */
  adopt(opened: SessionOpened): void {
    this.#subscription.adopt(opened);
  }

  /** A connection is there. */
  connected(): void {
    this.#subscription.connected();
  }

  /** The connection is lost. */
  disconnected(): void {
    this.#subscription.disconnected();
    this.#disconnects.tell();
  }

  /** Takes an event. */
  take(event: EventFrame): void {
    this.#subscription.event(event);
  }

  /** Something was missed. */
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
    this.open();
    const to: Addressed = { session: this.id, id };
    return this.#context.connection.request(type, payload, to, onReply);
  }

  #answer(commandId: CommandId, ask: ConstructorParameters<typeof Answer>[1]["ask"]): Answer {
    return new Answer(commandId, {
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
    if (status !== had && (status.phase === "ended" || status.phase === "closed")) this.#ends.tell(endOf(status));
    if (event !== null && snapshot) {
      if (typeof event === "object") this.#hosting.take(event, snapshot);
      this.#events.tell(event, snapshot);
      if (typeof event === "object") this.#lookAfter(event, snapshot);
    }
    this.#views.tell();
  }

  /** Asks for what an event makes necessary to know and does not tell. */
  #lookAfter(event: EventFrame, snapshot: SessionSnapshot): void {
    if (!snapshot.turn && changesContext(event)) this.#measure();
    if (movesAway(event, snapshot)) this.loadOlder().catch(() => undefined);
  }

  /** Asks for the size of the context, once for all that has changed since it was asked for. */
  #measure(): void {
    if (this.#measuring) return;
    this.#measuring = true;
    queueMicrotask(() => {
      this.#measuring = false;
      // Whoever shows the size sees the old one until the next event that tells it.
      if (this.status.phase === "open") this.getContextInfo().catch(() => undefined);
    });
  }
}

/** Returns why nothing more is heard of a session. */
function endOf(status: Extract<SessionStatus, { phase: "ended" | "closed" }>): Error {
  if (status.phase === "closed") return new SessionEnded("the session was closed");
  return status.error ?? new SessionEnded(status.reason);
}

/** Returns true if an event changes the size of the context without telling it. During a turn other events tell it. */
function changesContext(event: EventFrame): boolean {
  if (event.type === "context_compacted") return true;
  if (event.type === "entry_appended") return ["custom_message", "branch_summary"].includes(event.payload.entry.type);
  if (event.type !== "session_updated") return false;
  const { leafId, model, strategy, settings, pins } = event.payload;
  return [leafId, model, strategy, settings, pins].some((changed) => changed !== undefined);
}

/** Returns true if the session has moved to where nothing is known, so that nothing could be shown of its past. */
function movesAway(event: EventFrame, { entries, leafId }: SessionSnapshot): boolean {
  if (event.type === "session_updated") return event.payload.leafId !== undefined && isUnknown(leafId);
  return event.type === "entry_appended" && isUnknown(event.payload.entry.parentId ?? "root");

  function isUnknown(place: LeafId): boolean {
    return place !== "root" && !entries.has(place);
  }
}
