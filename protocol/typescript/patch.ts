// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { EntryId, Timestamp } from "./basics.js";
import type { Message, Part, Role } from "./content.js";
import type { SystemPart, ToolDefinition } from "./context.js";

/** An op in a hook's answer. */
export type SubmittedOp = PatchOp | ProposedOp;

/**
 * A change to the context envelope. All but `messages_uncached_append` affect what a provider may have cached, and
 * give a reason: `invalidateCacheReason` must not be blank.
 */
export type PatchOp =
  | {
      op: "system_part_set";
      /** The part. */
      partName: string;
      /** Its text. */
      text: string;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "system_part_remove";
      /** The part. */
      partName: string;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "system_parts_replace";
      /** The parts, in order. */
      parts: Array<SystemPart>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "tools_replace";
      /** The definitions, in order. */
      tools: Array<ToolDefinition>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "tools_remove";
      /** The tools' names. */
      toolNames: Array<string>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_cached_replace";
      /** The messages, in the order in which the model sees them: entries, and complete messages between them. */
      messages: Array<PatchMessage>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_cached_edit";
      /** The changes. */
      edits: Array<MessageEdit>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_uncached_append";
      /** The messages. */
      messages: Array<Message>;
    }
  | {
      op: "options_set";
      /** 0 to 2. */
      temperature?: number;
      /** The most tokens of the answer. */
      maxOutputTokens?: number;
      /** The reasoning effort, in the provider's own terms. */
      reasoningEffort?: string;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "compaction_apply";
      /** The summary. */
      summary: string;
      /** The first kept entry; absent if none is. */
      firstKeptEntryId?: EntryId;
      /** Older kept entries, between the summary and the first kept one. */
      keptEntryIds?: Array<EntryId>;
      /** The time of its creation. */
      timestamp: Timestamp;
      /** Tokens of the request before it. */
      tokensBefore: number;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    };

/**
 * A message of a replacement: an entry as the model sees it, another message in that entry's place, or a message
 * without an entry.
 */
export interface PatchMessage {
  /** The entry it comes from. */
  entryId?: EntryId;
  /** Its content; absent to use the entry's. */
  message?: Message;
}

/** A change of one cached message. */
export interface MessageEdit {
  /** The entry of the message. */
  entryId: EntryId;
  /** The new message; absent to remove it. */
  message?: Message;
}

/** An op in the proposal's form: it may have a scope, and its messages may be bare, with a plain string as content. */
export type ProposedOp =
  | {
      op: "system_part_set";
      /** The scope of the op. */
      scope?: Cached;
      /** The part. */
      partName: string;
      /** Its text. */
      text: string;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "system_part_remove";
      /** The scope of the op. */
      scope?: Cached;
      /** The part. */
      partName: string;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "system_parts_replace";
      /** The scope of the op. */
      scope?: Cached;
      /** The parts, in order. */
      parts: Array<SystemPart>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "tools_replace";
      /** The scope of the op. */
      scope?: Cached;
      /** The definitions, in order. */
      tools: Array<ToolDefinition>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "tools_remove";
      /** The scope of the op. */
      scope?: Cached;
      /** The tools' names. */
      toolNames: Array<string>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_cached_replace";
      /** The scope of the op. */
      scope?: Cached;
      /** The messages, in order. */
      messages: Array<ProposedItem>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_cached_edit";
      /** The scope of the op. */
      scope?: Cached;
      /** The changes. */
      edits: Array<ProposedEdit>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_uncached_append";
      /** The scope of the op. */
      scope?: Uncached;
      /** The messages. */
      messages: Array<ProposedMessage>;
    }
  | {
      op: "options_set";
      /** The scope of the op. */
      scope?: Cached;
      /** 0 to 2. */
      temperature?: number;
      /** The same as `maxOutputTokens`. */
      maxTokens?: number;
      /** The same as `reasoningEffort`. */
      reasoning?: string;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "compaction_apply";
      /** The scope of the op. */
      scope?: Cached;
      /** The summary. */
      summary: string;
      /** The first kept entry; absent if none is. */
      firstKeptEntryId?: EntryId;
      /** Older kept entries, between the summary and the first kept one. */
      keptEntryIds?: Array<EntryId>;
      /** The time of its creation. */
      timestamp: Timestamp;
      /** Tokens of the request before it. */
      tokensBefore: number;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    };

/** The scope of an op on cacheable content. */
export type Cached = "cached";

/** A message of a replacement. */
export type ProposedItem = ProposedNamed | ProposedMessage;

/** A message of a replacement, named. */
export interface ProposedNamed {
  /** The entry it comes from. */
  entryId?: EntryId;
  /** Its content; absent to use the entry's. */
  message?: ProposedMessage;
}

/** A message of a patch; its other fields are ignored. */
export interface ProposedMessage {
  /** Its author. */
  role: Role;
  /** Its content: a text, or parts. */
  content: ProposedContent;
}

/** The content of a message in a patch. */
export type ProposedContent = string | Array<Part>;

/** A change of one cached message. */
export interface ProposedEdit {
  /** The entry of the message. */
  entryId: EntryId;
  /** The new message; absent to remove it. */
  message?: ProposedMessage;
}

/** The scope of an op on messages of one request. */
export type Uncached = "uncached";

/** The presentation of a transform to users. Has no meaning for the server. */
export interface TransformDisplay {
  /** A heading. */
  title: string;
  /** A sentence. */
  summary?: string;
  /** Longer text. */
  markdown?: string;
  /** The renderer that a client uses. */
  rendererId?: string;
  /** The renderer's properties. */
  rendererProps?: unknown;
  /** True if it is shown in the chat. */
  showInChat?: boolean;
}

/**
 * A patch that applies to every later request on this branch, at its position. Data of another version, or with an
 * unknown field, is not parsed as one: half of a patch is a different patch.
 */
export interface ContextTransform {
  /** The version of the patch's form: 1. */
  schemaVersion: number;
  /** Its author. */
  transformerName: string;
  /** The changes, in order. */
  patch: Array<PatchOp>;
  /** Its presentation to users. */
  display?: TransformDisplay;
}

/** Changes to one request beyond the session's history. Logged, never replayed. */
export interface EphemeralChange {
  /** The hook that made them. */
  transformerName: string;
  /** The changes, in order. */
  patch: Array<PatchOp>;
}
