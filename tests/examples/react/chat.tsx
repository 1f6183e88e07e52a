/** Chats in React: a live list, one chat at a time, and how full its context is. */

import { type FormEvent, StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
import { type Client, connect, type Entry, type RunningPart, textOf } from "reseed-client";
import { useContextInfo, useSession, useSessions } from "reseed-client/react";

function Chats({ client }: { client: Client }) {
  const { items, loading } = useSessions(client);
  const [id, setId] = useState<string>();
  const create = () => void client.createSession().then((session) => setId(session.id));
  return (
    <>
      <nav>
        <button onClick={create}>New chat</button>
        {loading
          ? "…"
          : items.map((item) => (
              <button key={item.sessionId} onClick={() => setId(item.sessionId)}>
                {item.name || "New chat"}
              </button>
            ))}
      </nav>
      {id && <Chat key={id} client={client} id={id} />}
    </>
  );
}

function Chat({ client, id }: { client: Client; id: string }) {
  const { session, snapshot, status } = useSession(client, id);
  const [text, setText] = useState("");
  if (!snapshot) return <p role="status">{status.phase}</p>;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    session.send(text);
    setText("");
  };
  return (
    <section>
      <Gauge client={client} id={id} />
      {snapshot.path.more && <button onClick={() => session.loadOlder()}>Older messages</button>}
      <ol>
        {snapshot.path.entries.map((entry) => (
          <Message key={entry.entryId} entry={entry} />
        ))}
        {snapshot.items.map((item) => (
          <li key={item.itemId}>{item.parts.map(shown).join("")}</li>
        ))}
      </ol>
      <form onSubmit={submit}>
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} />
        <button>Send</button>
        {snapshot.turn && (
          <button type="button" onClick={() => session.cancelTurn()}>
            Stop
          </button>
        )}
      </form>
    </section>
  );
}

function Message({ entry }: { entry: Entry }) {
  if (entry.type === "compaction") return <li>The older part was summarised.</li>;
  return entry.type === "message" && entry.role !== "tool" ? (
    <li className={entry.role}>{textOf(entry.content)}</li>
  ) : null;
}

function shown(part: RunningPart) {
  return part.type === "tool_call" ? `${part.name}…` : part.text;
}

function Gauge({ client, id }: { client: Client; id: string }) {
  const info = useContextInfo(client, id);
  return info && <meter value={info.usageRatio} title={`${info.tokenCount} of ${info.maxTokens} tokens`} />;
}

const get = async (path: string, method = "GET") => (await fetch(path, { method })).text();
const client = connect(await get("server"), { ticket: () => get("ticket", "POST") });
createRoot(document.querySelector("main")!).render(
  <StrictMode>
    <Chats client={client} />
  </StrictMode>,
);
