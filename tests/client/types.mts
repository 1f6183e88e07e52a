/** Uses the types of the package as they are meant. `package.test.mjs` compiles it, with the expected errors. */

import {
  connect,
  type Entry,
  type HookAnswerAt,
  hook,
  type Session,
  type SessionSnapshot,
  tool,
  type UserInput,
} from "reseed-client";
import type { ReseedBody, ReseedDataParts } from "reseed-client/ai-sdk";
import { useContextInfo, useSession, useSessions } from "reseed-client/react";
import { example, FakeServer } from "reseed-client/testing";

const weather = tool<{ place: string }>({
  description: "The weather at a place, now.",
  parameters: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
  timeoutMs: 20_000,
  async run({ place }, { signal, progress }) {
    progress("asking the station");
    // @ts-expect-error: the arguments have the type that was given
    place satisfies number;
    return (await fetch(`/weather/${place}`, { signal })).json() as unknown;
  },
});

const redact = hook({ point: "message", name: "redact", required: true }, ({ message, entryId }) => {
  entryId satisfies string;
  return { message };
});
// @ts-expect-error: a hook before a tool call cannot answer with a message
hook({ point: "tool_call" }, () => ({ message: { role: "user", content: [] } }) satisfies HookAnswerAt<"message">);
// @ts-expect-error: this point has no envelope
hook({ point: "message" }, ({ envelope }) => envelope);

const client = connect("ws://127.0.0.1:8080", { token: async () => "token" });
// @ts-expect-error: a new ticket is requested each time
connect("ws://127.0.0.1:8080", { ticket: "ticket" });

const session: Session = client.session("id", { tools: { weather }, hooks: [redact] });
const snapshot: SessionSnapshot | null = session.snapshot;
const entries: readonly Entry[] = snapshot?.path.entries ?? [];
// @ts-expect-error: snapshots are immutable
entries.push();
// @ts-expect-error: the root has a name
session.navigate(null);
const input: UserInput = { input: "hi", parentId: "root" };
session.send(input.input, { parentId: "root" }).text() satisfies AsyncIterable<string>;
client.request("get_tree", { depth: 1 }, { session: "id" }).then(({ nodes }) => nodes.length satisfies number);

export function Shown(): string {
  const { status } = useSession(client, "id");
  return `${status.phase} ${useContextInfo(client, "id")?.tokenCount} ${useSessions(client).items.length}`;
}

const server = new FakeServer();
server.on("rename_session", ({ payload }) => {
  payload.name satisfies string;
  return { error: { code: "read_only", message: "no", retriable: false } };
});
example("events/turn_finished.failed").type satisfies string;

export const body: ReseedBody = { strategy: "manual", strategySettings: { keepRecentTokens: 100 }, onAbort: "cancel" };
// @ts-expect-error: nothing else can be done
export const wrong: ReseedBody = { onAbort: "explode" };

export function saved(compaction: ReseedDataParts["reseed-compaction"]) {
  // @ts-expect-error: it may be running
  compaction.tokensBefore satisfies number;
  return compaction.state === "done" ? compaction.tokensBefore - (compaction.tokensAfter ?? 0) : 0;
}
