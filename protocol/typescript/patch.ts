// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { EntryId, Timestamp } from "./basics.js";
import type { Message, Part, Role } from "./content.js";
import type { SystemPart, ToolDefinition } from "./context.js";

/** An op as a hook may answer it. */
export type SubmittedOp = PatchOp | ProposedOp;

/**
 * A change to the context envelope. All but `messages_uncached_append` touch what a provider may have in its cache, and
 * say why: `invalidateCacheReason` must not be blank.
 */
export type PatchOp =
  | {
      op: "system_part_set";
      /** The part. */
      partName: string;
      /** Its text. */
      text: string;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    }
  | {
      op: "system_part_remove";
      /** The part. */
      partName: string;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    }
  | {
      op: "system_parts_replace";
      /** The parts, in order. */
      parts: Array<SystemPart>;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    }
  | {
      op: "tools_replace";
      /** The definitions, in order. */
      tools: Array<ToolDefinition>;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    }
  | {
      op: "tools_remove";
      /** The tools' names. */
      toolNames: Array<string>;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_cached_replace";
      /** The messages, in the order in which the model is to see them: entries, and whole messages between them. */
      messages: Array<PatchMessage>;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_cached_edit";
      /** The changes. */
      edits: Array<MessageEdit>;
      /** Why the provider's cache is given up. */
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
      /** Most tokens the answer may have. */
      maxOutputTokens?: number;
      /** How long the model should think: the provider's own word. */
      reasoningEffort?: string;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    }
  | {
      op: "compaction_apply";
      /** The summary. */
      summary: string;
      /** The first entry that is kept; absent when none is. */
      firstKeptEntryId?: EntryId;
      /** Older entries that are kept, between the summary and the first kept one. */
      keptEntryIds?: Array<EntryId>;
      /** When it was made. */
      timestamp: Timestamp;
      /** Tokens of the request before. */
      tokensBefore: number;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    };

/**
 * A message of a replacement: an entry as the model sees it, another message in that entry's place, or a message that no
 * entry holds.
 */
export interface PatchMessage {
  /** The entry that it stands for. */
  entryId?: EntryId;
  /** What it says; absent for what the entry says. */
  message?: Message;
}

/** A change of one cached message. */
export interface MessageEdit {
  /** The entry whose message it is. */
  entryId: EntryId;
  /** What it says now; absent to take it out. */
  message?: Message;
}

/** An op as the proposal writes it: it may say its scope, and its messages may be bare, with a plain string as content. */
export type ProposedOp =
  | {
      op: "system_part_set";
      /** What it touches. */
      scope?: Cached;
      /** The part. */
      partName: string;
      /** Its text. */
      text: string;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    }
  | {
      op: "system_part_remove";
      /** What it touches. */
      scope?: Cached;
      /** The part. */
      partName: string;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    }
  | {
      op: "system_parts_replace";
      /** What it touches. */
      scope?: Cached;
      /** The parts, in order. */
      parts: Array<SystemPart>;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    }
  | {
      op: "tools_replace";
      /** What it touches. */
      scope?: Cached;
      /** The definitions, in order. */
      tools: Array<ToolDefinition>;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    }
  | {
      op: "tools_remove";
      /** What it touches. */
      scope?: Cached;
      /** The tools' names. */
      toolNames: Array<string>;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_cached_replace";
      /** What it touches. */
      scope?: Cached;
      /** The messages, in order. */
      messages: Array<ProposedItem>;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_cached_edit";
      /** What it touches. */
      scope?: Cached;
      /** The changes. */
      edits: Array<ProposedEdit>;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_uncached_append";
      /** What it touches. */
      scope?: Uncached;
      /** The messages. */
      messages: Array<ProposedMessage>;
    }
  | {
      op: "options_set";
      /** What it touches. */
      scope?: Cached;
      /** 0 to 2. */
      temperature?: number;
      /** The same as `maxOutputTokens`. */
      maxTokens?: number;
      /** The same as `reasoningEffort`. */
      reasoning?: string;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    }
  | {
      op: "compaction_apply";
      /** What it touches. */
      scope?: Cached;
      /** The summary. */
      summary: string;
      /** The first entry that is kept; absent when none is. */
      firstKeptEntryId?: EntryId;
      /** Older entries that are kept, between the summary and the first kept one. */
      keptEntryIds?: Array<EntryId>;
      /** When it was made. */
      timestamp: Timestamp;
      /** Tokens of the request before. */
      tokensBefore: number;
      /** Why the provider's cache is given up. */
      invalidateCacheReason: string;
    };

/** The scope of an op on what a provider can cache. */
export type Cached = "cached";

/** A message of a replacement. */
export type ProposedItem = ProposedNamed | ProposedMessage;

/** A message of a replacement, named. */
export interface ProposedNamed {
  /** The entry that it stands for. */
  entryId?: EntryId;
  /** What it says; absent for what the entry says. */
  message?: ProposedMessage;
}

/** A message of a patch; its other fields are ignored. */
export interface ProposedMessage {
  /** Who says it. */
  role: Role;
  /** What is said: a text, or parts. */
  content: ProposedContent;
}

/** What a message of a patch says. */
export type ProposedContent = string | Array<Part>;

/** A change of one cached message. */
export interface ProposedEdit {
  /** The entry whose message it is. */
  entryId: EntryId;
  /** What it says now; absent to take it out. */
  message?: ProposedMessage;
}

/** The scope of an op on one request's own messages. */
export type Uncached = "uncached";

/** How a transform is shown to people. Means nothing to the server. */
export interface TransformDisplay {
  /** A heading. */
  title: string;
  /** A sentence. */
  summary?: string;
  /** More to read. */
  markdown?: string;
  /** What a client draws it with. */
  rendererId?: string;
  /** What it is given. */
  rendererProps?: unknown;
  /** Whether it stands in the chat. */
  showInChat?: boolean;
}

/**
 * A patch that every later request on this branch is made with, at its place. What is of another version, or has a field
 * that this one does not know, is not read as one: half of a patch is another patch.
 */
export interface ContextTransform {
  /** The version of the patch's form: 1. */
  schemaVersion: number;
  /** Who made it. */
  transformerName: string;
  /** The changes, in order. */
  patch: Array<PatchOp>;
  /** How it is shown to people. */
  display?: TransformDisplay;
}

/** What one request was made with beyond what the session's history says. Logged, never replayed. */
export interface EphemeralChange {
  /** The hook that made it. */
  transformerName: string;
  /** The changes, in order. */
  patch: Array<PatchOp>;
}
