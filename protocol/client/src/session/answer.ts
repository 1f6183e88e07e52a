/**
 * The answer to one input, while it is being written.
 *
 * Reading it only observes: ending an iteration early, for instance with `break`, leaves the turn alone. `cancel` stops
 * the turn itself.
 */

import { asError, CommandError, ConnectionLost } from "../errors.js";
import type { EventFrame } from "../fold/fold.js";
import type { SessionSnapshot } from "../fold/snapshot.js";
import type {
  Accepted,
  CallId,
  Entry,
  EntryId,
  ErrorBody,
  Part,
  RunningPart,
  StopReason,
  TurnId,
  TurnStatus,
  Usage,
} from "../wire.js";
import type { Happened } from "./subscription.js";

/** A piece of an answer. */
export type AnswerPiece =
  /** More text of the message `itemId`. */
  | { readonly type: "text" | "reasoning"; readonly itemId: EntryId; readonly part: number; readonly text: string }
  /** The model calls a tool. */
  | { readonly type: "tool_call"; readonly toolCallId: CallId; readonly name: string; readonly arguments: string }
  /** A tool has answered. */
  | { readonly type: "tool_result"; readonly toolCallId: CallId; readonly output: string; readonly isError: boolean }
  /** The text shown of this message is void: the model failed, and may be asked again. */
  | { readonly type: "void"; readonly itemId: EntryId };

/** The end of an answer. */
export interface AnswerResult {
  /** The status of its turn; `removed` if the input was removed from the queue before its turn. */
  readonly status: TurnStatus | "removed";
  /** Why the last message of a completed turn ended: `length` if the output limit cut it off. */
  readonly finishReason?: StopReason;
  /** The text of the last message. */
  readonly text: string;
  /** The entries that the turn added to the session, oldest first. */
  readonly entries: readonly Entry[];
  /** Why the turn failed. */
  readonly error?: ErrorBody;
  /** The token usage of all its requests; absent if this client was disconnected when the turn ended. */
  readonly usage?: Usage;
}

/** The part of a session that an answer uses. */
export interface AnswerSource {
  /** The entry after which the answer starts, if it is known before the reply: a retry writes no input. */
  readonly after: EntryId | null;
  /** The newest snapshot. */
  snapshot(): SessionSnapshot | null;
  /** Sends the command; `take` gets the reply before the events that follow it. */
  ask(take: (accepted: Accepted) => void): Promise<Accepted>;
  /** Calls a function with everything that happens to the session. */
  listen(listener: (event: Happened, snapshot: SessionSnapshot) => void): () => void;
  /** Calls a function when the session has closed or ended, after which nothing more arrives. */
  onEnd(listener: (error: Error) => void): () => void;
  /** Cancels the turn, or removes the input from the queue. */
  cancel(turnId: TurnId | null): Promise<unknown>;
}

/** One message of the turn, with its parts as far as they are known. */
interface Shown {
  readonly itemId: EntryId;
  parts: readonly (RunningPart | Part)[];
  isVoid: boolean;
  /** True once it is an entry. */
  isWhole: boolean;
}

/** The answer to one input. */
export class Answer {
  /** The server's reply to the command: the input is stored. Rejects if it was refused. */
  readonly accepted: Promise<Accepted>;
  /** The command's id, which identifies the input in `queue` and in events. */
  readonly commandId: string;

  readonly #source: AnswerSource;
  readonly #shown: Shown[] = [];
  readonly #entries: Entry[] = [];
  readonly #finished: Promise<AnswerResult>;
  #turnId: TurnId | null = null;
  #isAccepted = false;
  #inputId: EntryId | null = null;
  #result: AnswerResult | null = null;
  #failure: Error | null = null;
  #end!: (result: AnswerResult) => void;
  #fail!: (error: Error) => void;
  #wakers: (() => void)[] = [];
  #unlisten: () => void;

  /** Sends the command and follows its outcome. */
  constructor(commandId: string, source: AnswerSource) {
    this.commandId = commandId;
    this.#source = source;
    this.#inputId = source.after;
    this.#finished = new Promise((resolve, reject) => {
      this.#end = resolve;
      this.#fail = reject;
    });
    const ends = [
      source.listen((event, snapshot) => this.#take(event, snapshot)),
      source.onEnd((error) => this.#refused(error)),
    ];
    this.#unlisten = () => ends.forEach((end) => end());
    this.accepted = source.ask((reply) => this.#begin(reply));
    this.accepted.catch((error: unknown) => this.#refused(asError(error)));
    // A caller that does not ask for the result need not handle its failure.
    this.#finished.catch(() => undefined);
  }

  /** The turn; `null` while the input is queued. */
  get turnId(): TurnId | null {
    return this.#turnId;
  }

  /**
   * Resolves when the turn is over, however it ended. Rejects if the input was refused, or if this client cannot learn
   * how the turn ends, in which case the turn itself continues. The error is then `SessionEnded` if the session is
   * closed first, the connection's error if that has stopped, or `ConnectionLost` if the turn ended meanwhile and a new
   * snapshot does not tell how.
   */
  finished(): Promise<AnswerResult> {
    return this.#finished;
  }

  /** Stops the turn; what was shown so far is kept. An input that is still queued is removed instead. */
  async cancel(): Promise<void> {
    await this.accepted;
    if (this.#result) return;
    try {
      await this.#source.cancel(this.#turnId);
    } catch (error) {
      // Its turn has started meanwhile, and the event that said so came before this reply.
      const hasBegun = error instanceof CommandError && error.code === "not_queued" && this.#turnId !== null;
      if (!hasBegun) throw error;
      await this.#source.cancel(this.#turnId);
    }
  }

  /**
   * Iterates over the text, without reasoning. A blank line separates the messages of one turn. Throws if the input is
   * refused or the turn fails.
   */
  async *text(): AsyncGenerator<string, void, void> {
    let last: EntryId | null = null;
    for await (const piece of this.pieces()) {
      if (piece.type !== "text") continue;
      if (last !== null && last !== piece.itemId) yield "\n\n";
      last = piece.itemId;
      yield piece.text;
    }
    const { status, error } = await this.#finished;
    if (status === "failed") throw new TurnFailed(error);
  }

  /** Iterates over everything shown of the turn. A slow reader gets fewer and longer pieces. */
  async *pieces(): AsyncGenerator<AnswerPiece, void, void> {
    const cursor = new Cursor();
    for (;;) {
      const isOver = this.#result !== null || this.#failure !== null;
      yield* cursor.news(this.#shown);
      if (this.#failure) throw this.#failure;
      if (isOver) return;
      if (!cursor.hasNews(this.#shown) && !this.#result && !this.#failure) await this.#change();
    }
  }

  /** Iterates over everything shown of the turn. */
  [Symbol.asyncIterator](): AsyncGenerator<AnswerPiece, void, void> {
    return this.pieces();
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#wakers.push(resolve));
  }

  #wake(): void {
    const wakers = this.#wakers;
    this.#wakers = [];
    for (const wake of wakers) wake();
  }

  #begin({ turnId, entryId, duplicate, asOfSeq }: Accepted): void {
    this.#isAccepted = true;
    this.#inputId ??= entryId ?? null;
    this.#turnId ??= turnId ?? null;
    // This answers a command that was sent twice: its turn may already be over.
    const snapshot = this.#source.snapshot();
    if (duplicate && snapshot && snapshot.seq > asOfSeq) this.#reconcile(snapshot);
  }

  #refused(error: Error): void {
    if (this.#result || this.#failure) return;
    this.#unlisten();
    this.#failure = error;
    this.#fail(error);
    this.#wake();
  }

  #take(event: Happened, snapshot: SessionSnapshot): void {
    this.#inputId ??= snapshot.queue.find((item) => item.commandId === this.commandId)?.entryId ?? null;
    if (event === "opened") this.#reconcile(snapshot);
    else if (event !== "replaying") this.#follow(event, snapshot);
    if (this.#turnId !== null && !this.#result) this.#showItems(snapshot);
    this.#wake();
  }

  #follow(event: EventFrame, snapshot: SessionSnapshot): void {
    switch (event.type) {
      case "turn_started":
        if (event.payload.commandIds.includes(this.commandId)) this.#turnId ??= event.payload.turnId;
        return;
      case "queue_item_removed": {
        const { commandId, reason, turnId, entryId } = event.payload;
        if (commandId !== this.commandId) return;
        this.#inputId ??= entryId ?? null;
        this.#turnId ??= turnId ?? null;
        if (reason === "cancelled") this.#over({ status: "removed" });
        return;
      }
      case "entry_appended": {
        const { entry, turnId, commandId } = event.payload;
        if (commandId === this.commandId) this.#inputId ??= entry.entryId;
        if (turnId !== undefined && turnId === this.#turnId) this.#add(entry);
        return;
      }
      case "item_aborted":
        for (const shown of this.#shown) if (shown.itemId === event.payload.itemId) shown.isVoid = true;
        return;
      case "turn_finished": {
        const { turnId, status, finishReason, error, usage } = event.payload;
        if (turnId !== this.#turnId) return;
        this.#showItems(snapshot);
        this.#over({
          status,
          ...(finishReason ? { finishReason } : {}),
          ...(error ? { error } : {}),
          ...(usage ? { usage } : {}),
        });
        return;
      }
      default:
        return;
    }
  }

  /** Locates the input in a snapshot, which may have skipped events. */
  #reconcile(snapshot: SessionSnapshot): void {
    if (this.#result || this.#failure) return;
    // A command that is not accepted yet is resent, and its reply states its place.
    if (!this.#isAccepted || snapshot.queue.some((item) => item.commandId === this.commandId)) return;
    const path = snapshot.path.entries;
    const place = path.findIndex((entry) => entry.entryId === this.#inputId);
    const rest = place < 0 ? [] : path.slice(place + 1);
    const next = rest.findIndex((entry) => entry.type === "message" && entry.role === "user");
    for (const entry of next < 0 ? rest : rest.slice(0, next)) this.#add(entry);
    if (this.#turnId === null && place >= 0 && next < 0) this.#turnId = snapshot.turn?.turnId ?? null;
    if (snapshot.turn && snapshot.turn.turnId === this.#turnId) return;
    const ended = snapshot.unansweredTurns.find((turn) => turn.turnId === this.#turnId);
    if (!ended && place < 0) {
      const words = "the turn ended while the connection was down, and the newest entries do not say how";
      return this.#refused(new ConnectionLost(`${words}; fetch older ones`));
    }
    if (ended) return this.#over({ status: ended.status, ...(ended.error ? { error: ended.error } : {}) });
    const finishReason = this.#lastMessage()?.stopReason;
    this.#over({ status: "completed", ...(finishReason ? { finishReason } : {}) });
  }

  /** Copies what is shown of the running items. */
  #showItems({ items }: SessionSnapshot): void {
    for (const item of items) {
      if (item.turnId !== this.#turnId || item.aborted) continue;
      const shown = this.#message(item.itemId);
      if (!shown.isWhole) shown.parts = item.parts;
    }
  }

  #add(entry: Entry): void {
    const isKnown = this.#entries.some((known) => known.entryId === entry.entryId);
    if (isKnown || entry.entryId === this.#inputId) return;
    this.#entries.push(entry);
    if (entry.type !== "message" || entry.role === "user") return;
    const shown = this.#message(entry.entryId);
    shown.parts = entry.content;
    shown.isWhole = true;
  }

  #message(itemId: EntryId): Shown {
    const known = this.#shown.find((shown) => shown.itemId === itemId);
    if (known) return known;
    const fresh: Shown = { itemId, parts: [], isVoid: false, isWhole: false };
    this.#shown.push(fresh);
    return fresh;
  }

  #over(end: Omit<AnswerResult, "text" | "entries">): void {
    this.#unlisten();
    this.#result = { ...end, text: textOf(this.#lastMessage()?.content ?? []), entries: this.#entries };
    this.#end(this.#result);
  }

  /** Returns the last message of the model. */
  #lastMessage(): Extract<Entry, { type: "message" }> | undefined {
    const last = this.#entries.findLast((entry) => entry.type === "message" && entry.role === "assistant");
    return last?.type === "message" ? last : undefined;
  }
}

/** The turn that should have answered failed. */
export class TurnFailed extends Error {
  override readonly name = "TurnFailed";
  /** The error reported by the server. */
  readonly error: ErrorBody | undefined;

  /** Creates the error from the server's report. */
  constructor(error: ErrorBody | undefined) {
    super(error?.message ?? "the turn failed");
    this.error = error;
  }
}

/** Returns the text of a message, without reasoning. */
export function textOf(parts: readonly Part[]): string {
  return parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
}

/** A reader's position in an answer. */
class Cursor {
  readonly #read = new Map<string, number>();
  readonly #voided = new Set<EntryId>();

  hasNews(shown: readonly Shown[]): boolean {
    return !this.news(shown, true).next().done;
  }

  *news(shown: readonly Shown[], peek = false): Generator<AnswerPiece, void, void> {
    for (const { itemId, parts, isVoid, isWhole } of shown) {
      if (isVoid) {
        if (this.#voided.has(itemId)) continue;
        if (!peek) this.#voided.add(itemId);
        yield { type: "void", itemId };
        continue;
      }
      for (const [part, content] of parts.entries()) {
        // A tool call is reported once its arguments are complete.
        if (isWhole || content.type !== "tool_call") yield* this.#part(itemId, part, content, peek);
      }
    }
  }

  *#part(
    itemId: EntryId,
    part: number,
    content: RunningPart | Part,
    peek: boolean,
  ): Generator<AnswerPiece, void, void> {
    const place = `${itemId} ${part}`;
    const read = this.#read.get(place) ?? 0;
    const isText = content.type === "text" || content.type === "reasoning";
    const length = isText ? content.text.length : 1;
    if (length <= read) return;
    if (!peek) this.#read.set(place, length);
    if (isText) yield { type: content.type, itemId, part, text: content.text.slice(read) };
    else if (content.type === "tool_result") {
      const { toolCallId, output, isError = false } = content;
      yield { type: "tool_result", toolCallId, output, isError };
    } else if (content.type === "tool_call" && "toolCallId" in content) {
      yield { type: "tool_call", toolCallId: content.toolCallId, name: content.name, arguments: content.arguments };
    }
  }
}
