/** A chat with assistant-ui: its runtime over `useChat`, and its unstyled parts. */

import { useChat } from "@ai-sdk/react";
import { AssistantRuntimeProvider, ComposerPrimitive, MessagePrimitive, ThreadPrimitive } from "@assistant-ui/react";
import { useAISDKRuntime } from "@assistant-ui/react-ai-sdk";
import { type UIMessage, WebSocketChatTransport } from "ai";
import { createRoot } from "react-dom/client";

const get = async (path: string, method = "GET") => (await fetch(path, { method })).text();
const server = await get("server");
const ticket = async () => ({ ticket: await get("ticket", "POST") });
const transport = new WebSocketChatTransport({ url: `${server}ai`, params: ticket });

function Message() {
  return (
    <MessagePrimitive.Root className="message">
      <MessagePrimitive.Parts />
    </MessagePrimitive.Root>
  );
}

function Chat({ id, messages }: { id: string; messages: UIMessage[] }) {
  const chat = useChat({ id, messages, transport, resume: true });
  return (
    <AssistantRuntimeProvider runtime={useAISDKRuntime(chat)}>
      <ThreadPrimitive.Root>
        <ThreadPrimitive.Messages components={{ Message }} />
        <ComposerPrimitive.Root>
          <ComposerPrimitive.Input aria-label="Message" />
          <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

const id = (location.hash ||= `#${crypto.randomUUID()}`).slice(1);
const stored = await fetch(`${server}ai/chats/${id}?${new URLSearchParams(await ticket())}`);
const messages = stored.ok ? await stored.json() : [];
createRoot(document.querySelector("main")!).render(<Chat id={id} messages={messages} />);
