// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { InputItem } from "./commands.js";
import type { ContextInfo } from "./context.js";
import type { ErrorDetails } from "./errors.js";
import type { ContextCompacted } from "./events.js";

/** A v1 command. */
export type Command =
  | { type: "user_input"; payload: UserInput }
  | { type: "get_context_info" }
  | { type: "manual_compact" }
  | { type: "approval_response"; payload: ApprovalResponse };

/** Payload of `user_input`. */
export interface UserInput {
  /** OpenAI Responses input items; unknown fields are ignored. */
  input: Array<InputItem>;
  /** Accepted and ignored. */
  previousResponseId?: string;
}

/** Payload of `approval_response`. */
export interface ApprovalResponse {
  /** The decision. */
  review: Review;
  /** An echo of the patch, which is ignored in favour of the server's own copy. */
  applyPatch?: unknown;
  /** The message to the model on a denial. */
  customDenyMessage?: string;
  /** A client's explanation. */
  explanation?: string;
}

/** A decision on an approval. Upper-case spellings are accepted. */
export type Review = "yes" | "no-exit" | "no-continue" | "always" | "explain";

/**
 * Events sent to a v1 client; `context_info` and `context_compacted` carry v2's payloads with class-style strategy
 * names.
 */
export type Event =
  | { type: "loading_state"; payload: LoadingState }
  | { type: "response_item"; payload: ResponseItem }
  | { type: "context_info"; payload: ContextInfo }
  | { type: "context_compacted"; payload: ContextCompacted }
  | { type: "agent_finished"; payload: AgentFinished }
  | { type: "error"; payload: Error };

/** Payload of `loading_state`. */
export interface LoadingState {
  /** True if a turn is running. */
  loading: boolean;
}

/** Payload of `response_item`: one item of OpenAI's Responses API. */
export type ResponseItem =
  | {
      type: "message";
      /** Its own id: the original client concatenates texts with the same id. */
      id: string;
      /** `assistant`. */
      role: string;
      /** The text. */
      content: Array<ItemContent>;
    }
  | {
      type: "function_call";
      /** Its own id. */
      id: string;
      /** The call. */
      call_id: string;
      /** The tool. */
      name: string;
      /** The arguments, JSON text. */
      arguments: string;
    }
  | {
      type: "function_call_output";
      /** Its own id. */
      id: string;
      /** The call. */
      call_id: string;
      /** JSON text of `{ output, metadata: { exit_code, duration_seconds } }`. */
      output: string;
    }
  | {
      type: "reasoning";
      /** Its own id. */
      id: string;
      /** The reasoning text. */
      content: Array<ItemContent>;
      /** Empty; newer clients read `summary`. */
      summary: Array<ItemContent>;
    };

/** Text within an item. */
export type ItemContent =
  | {
      type: "output_text";
      /** The text. */
      text: string;
    }
  | {
      type: "input_text";
      /** The text. */
      text: string;
    };

/** Payload of `agent_finished`: exactly this field, because the original client prints any other. */
export interface AgentFinished {
  /** The turn. */
  responseId: string;
}

/** Payload of `error`. */
export interface Error {
  /** The error, for people. */
  message: string;
  /** The code, and whether a retry may help. */
  details: ErrorDetails;
}
