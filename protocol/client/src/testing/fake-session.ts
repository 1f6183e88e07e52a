/** A session of the fake server: a log of durable events, and the connections that follow it. */

import { newId } from "../connection/ids.js";
import type {
  CommandId,
  DurableFrame,
  Entry,
  EntryId,
  EphemeralEvent,
  Event,
  Part,
  LeafId,
  Resume,
  ServerFrame,
  SessionId,
  SessionOpened,
  TurnFinished,
  TurnId,
} from "../wire.js";
import { payload } from "./frames.js";
import type { FakeSocket } from "./socket.js";

/** A session of the fake server. */
export class FakeSession {
  /** Its id. */
  readonly id: SessionId;
  /** Its durable events. */
  readonly log: DurableFrame[] = [];

  readonly #followers = new Set<FakeSocket>();
  readonly #opened: SessionOpened;
  #leafId: LeafId = "root";

  /** Creates an empty session. Other fields of its first snapshot may be given. */
  constructor(id: SessionId = newId().slice(0, 16), opened: Partial<SessionOpened> = {}) {
    this.id = id;
    const { more: _, ...example } = payload("replies/session_opened", "session_opened");
    this.#opened = {
      ...example,
      sessionId: id,
      role: "writer",
      asOfSeq: 0,
      leafId: "root",
      state: "idle",
      entries: [],
      queue: [],
      pending: [],
      ...opened,
    };
  }

  /** The number of connections that follow it. */
  get followers(): number {
    return this.#followers.size;
  }

  /** Adds a follower. Returns the content of `session_opened` and the events that follow it. */
  open(socket: FakeSocket, resume: Resume | undefined): { opened: SessionOpened; missed: readonly ServerFrame[] } {
    this.#followers.add(socket);
    const canReplay = resume?.epoch === this.#opened.epoch && resume.seq <= this.log.length;
    if (!resume || !canReplay)
      return { opened: { ...this.#opened, ...(resume ? { resumed: "snapshot" } : {}) }, missed: this.log };
    const { entries: _, ...opened } = this.#opened;
    const missed = this.log.filter((frame) => frame.seq > resume.seq);
    return { opened: { ...opened, asOfSeq: this.log.length, leafId: this.#leafId, resumed: "replay" }, missed };
  }

  /** Removes a follower. */
  leave(socket: FakeSocket): void {
    this.#followers.delete(socket);
  }

  /** Stores an event and sends it to all followers. */
  append(event: Event): DurableFrame {
    const frame: DurableFrame = { sessionId: this.id, seq: this.log.length + 1, ...event };
    this.log.push(frame);
    if (event.type === "entry_appended") this.#leafId = event.payload.entry.entryId;
    this.#tell(frame);
    return frame;
  }

  /** Sends all followers an event that is not stored. */
  show(event: EphemeralEvent): void {
    this.#tell({ sessionId: this.id, ...event });
  }

  /** Appends a user message and starts its turn. */
  ask(text: string, commandId: CommandId, { entryId, turnId }: { entryId: EntryId; turnId: TurnId }): void {
    const content: Part[] = [{ type: "text", text }];
    const entry: Entry = { ...this.#place(entryId), type: "message", role: "user", content };
    this.append({ type: "entry_appended", payload: { entry, turnId, commandId } });
    this.append({ type: "turn_started", payload: { turnId, commandIds: [commandId], generation: 1 } });
  }

  /** Streams an answer in pieces, appends it and ends the turn. */
  answer(turnId: TurnId, pieces: readonly string[]): void {
    const itemId = newId().slice(0, 12);
    this.show({ type: "item_started", payload: { itemId, turnId, kind: "message" } });
    let offset = 0;
    for (const text of pieces) {
      this.show({ type: "item_delta", payload: { itemId, part: 0, offset, text } });
      offset += text.length;
    }
    const content: Part[] = [{ type: "text", text: pieces.join("") }];
    const entry: Entry = { ...this.#place(itemId), type: "message", role: "assistant", content, stopReason: "stop" };
    this.append({ type: "entry_appended", payload: { entry, turnId } });
    this.finish(turnId);
  }

  /** Ends a turn. */
  finish(turnId: TurnId, end: Partial<TurnFinished> = {}): void {
    const { finishReason = "stop", ...finished } = payload("events/turn_finished", "turn_finished");
    const reason = (end.status ?? "completed") === "completed" ? { finishReason } : {};
    this.append({ type: "turn_finished", payload: { ...finished, ...reason, turnId, ...end } });
  }

  #place(entryId: EntryId): { entryId: EntryId; parentId: EntryId | null; timestamp: string } {
    return { entryId, parentId: this.#leafId === "root" ? null : this.#leafId, timestamp: new Date(0).toISOString() };
  }

  #tell(frame: ServerFrame): void {
    for (const socket of this.#followers) socket.deliver(frame);
  }
}
