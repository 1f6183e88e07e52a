/** A chat with `useChat` of the AI SDK: its context, a tool of the page, approvals, stop, regenerate and edit. */

import { useChat } from "@ai-sdk/react";
import * as ai from "ai";
import { type FormEvent, useState } from "react";
import { createRoot } from "react-dom/client";
import type { ReseedBody, ReseedContext, ReseedDataParts, ReseedMetadata } from "reseed-client/ai-sdk";

type Message = ai.UIMessage<ReseedMetadata, ReseedDataParts, { language: { input: object; output: string } }>;

const get = async (path: string, method = "GET") => (await fetch(path, { method })).text();
const server = await get("server");
const ticket = async () => ({ ticket: await get("ticket", "POST") });
const tools = [{ name: "language", description: "The user's language.", parameters: { type: "object" } }];
const body: ReseedBody = { tools, onAbort: "cancel" };
const transport = new ai.WebSocketChatTransport<Message>({ url: `${server}ai`, params: ticket, body });

function Chat({ id, messages }: { id: string; messages: Message[] }) {
  const [draft, write] = useState<{ text: string; messageId?: string }>({ text: "" });
  const [context, setContext] = useState<ReseedContext>();
  const chat = useChat<Message>({
    id,
    messages,
    transport,
    resume: true,
    onData: (part) => part.type === "data-reseed-context" && setContext(part.data),
    onToolCall: ({ toolCall: { toolName, toolCallId } }) => {
      if (toolName === "language") void chat.addToolOutput({ tool: toolName, toolCallId, output: navigator.language });
    },
    sendAutomaticallyWhen: (chat) =>
      ai.lastAssistantMessageIsCompleteWithToolCalls(chat) ||
      ai.lastAssistantMessageIsCompleteWithApprovalResponses(chat),
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void chat.sendMessage(draft);
    write({ text: "" });
  };
  const edit = ({ id, parts }: Message) =>
    write({ text: parts.map((part) => (part.type === "text" ? part.text : "")).join(""), messageId: id });
  return (
    <form onSubmit={submit}>
      {context && <meter value={context.usageRatio} title={`${context.tokenCount} of ${context.maxTokens} tokens`} />}
      {chat.messages.map((message) => (
        <article key={message.id} id={message.id} className={message.role}>
          {message.parts.map((part, at) => (
            <Part key={at} part={part} decide={chat.addToolApprovalResponse} />
          ))}
          {message.role === "user" && <button type="button" onClick={() => edit(message)}>Edit</button>}
        </article>
      ))}
      {chat.error && <p role="alert">{chat.error.message}</p>}
      <input value={draft.text} onChange={({ target }) => write({ ...draft, text: target.value })} aria-label="Text" />
      <button disabled={chat.status !== "ready" && chat.status !== "error"}>Send</button>
      <button type="button" onClick={() => void chat.stop()}>Stop</button>
      <button type="button" onClick={() => void chat.regenerate()}>Again</button>
    </form>
  );
}

function Part({ part, decide }: { part: Message["parts"][number]; decide: ai.ChatAddToolApproveResponseFunction }) {
  if (part.type === "text") return <p>{part.text}</p>;
  if (part.type === "data-reseed-compaction") return <small>The older part is summarised: {part.data.state}.</small>;
  if (!ai.isToolUIPart(part)) return null;
  const { id } = (part.state === "approval-requested" && part.approval) || {};
  return (
    <p className="tool">
      {ai.getToolName(part)}: {part.state}
      {id && <button type="button" onClick={() => decide({ id, approved: true })}>Allow</button>}
      {id && <button type="button" onClick={() => decide({ id, approved: false })}>Reject</button>}
    </p>
  );
}

const id = (location.hash ||= `#${crypto.randomUUID()}`).slice(1);
const stored = await fetch(`${server}ai/chats/${id}?${new URLSearchParams(await ticket())}`);
const messages = stored.ok ? await stored.json() : [];
createRoot(document.querySelector("main")!).render(<Chat id={id} messages={messages} />);
