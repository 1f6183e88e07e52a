/** The commands about one session, one method each. Those that touch the snapshot or an answer are in `Session`. */

import type { CommandName, PayloadOf, ReplyPayload } from "../connection/commands.js";
import type { OnReply } from "../connection/connection.js";
import type {
  Approval,
  ApprovalId,
  CallId,
  CommandId,
  CompactionPreview,
  Context,
  ContextFormat,
  Decision,
  Done,
  Entry,
  EntryId,
  ForkPosition,
  Forked,
  HistoryHits,
  HookAnswer,
  InputContent,
  JobId,
  LeafId,
  Navigate,
  Navigated,
  PreviewCompaction,
  SearchHistory,
  SetOptions,
  SetTools,
  StartCompaction,
  StrategySettings,
  Tools,
  Tree,
  TurnId,
} from "../wire.js";

/** The commands about a session. A refusal rejects with a `CommandError`. */
export abstract class SessionCommands {
  /**
   * Sends a command about this session as soon as it is open; `onReply` gets the reply before the events that follow
   * it.
   */
  protected abstract ask<T extends CommandName>(
    type: T,
    payload: PayloadOf<T>,
    id?: CommandId,
    onReply?: OnReply<T>,
  ): Promise<ReplyPayload<T>>;

  // ---- turns and the queue

  /** Stops the named turn, or else the running one. What was shown of its answer is kept. */
  cancelTurn(turnId?: TurnId): Promise<Done> {
    return this.ask("cancel_turn", turnId === undefined ? {} : { turnId });
  }

  /** Removes queued inputs, or reorders all remaining ones, by their command ids. */
  editQueue(edit: { readonly remove?: CommandId[]; readonly order?: CommandId[] }): Promise<Done> {
    return this.ask("edit_queue", edit);
  }

  /** Decides on a tool call that needs a person's approval. The model reads the message of a rejection. */
  approve(approval: Pick<Approval, "approvalId" | "argumentsHash">, review: Decision, message?: string): Promise<Done> {
    const { approvalId, argumentsHash } = approval;
    const why = message === undefined ? {} : { customDenyMessage: message };
    return this.ask("approval_response", { approvalId, argumentsHash, review, ...why });
  }

  /** Withdraws a standing approval: the next such call is asked about again. */
  withdrawApproval(approvalId: ApprovalId): Promise<Done> {
    return this.ask("withdraw_approval", { approvalId });
  }

  /** Lists the session's tools with the tokens of each, including those that are switched off. */
  listTools(): Promise<Tools> {
    return this.ask("list_tools", {});
  }

  /** Switches tools off or on, and sets the session's own approval policy. Absent fields stay unchanged. */
  setTools(tools: SetTools): Promise<Done> {
    return this.ask("set_tools", tools);
  }

  // ---- the tree

  /** Continues from another place: an entry, or `"root"` for before the first one. */
  navigate(entryId: LeafId, options: Omit<Navigate, "entryId"> = {}): Promise<Navigated> {
    return this.ask("navigate", { entryId, ...options });
  }

  /** Creates a new session from the path to an entry. Resolves with its id. */
  fork(entryId: EntryId, position: ForkPosition = "at"): Promise<Forked> {
    return this.ask("fork_session", { entryId, position });
  }

  /** Returns the shape of the tree, without full texts. */
  tree(options: { readonly rootId?: EntryId; readonly depth?: number } = {}): Promise<Tree> {
    return this.ask("get_tree", options);
  }

  /** Labels an entry; without a label, removes its label. */
  setLabel(entryId: EntryId, label?: string): Promise<Done> {
    return this.ask("set_label", label === undefined ? { entryId } : { entryId, label });
  }

  /** Stores data of this client; the model never sees it. */
  appendCustom(customType: string, data: unknown): Promise<Done> {
    return this.ask("append_custom", { customType, data });
  }

  /** Tells the model something without asking for an answer. */
  appendMessage(
    customType: string,
    content: InputContent,
    { display = true, details }: { readonly display?: boolean; readonly details?: unknown } = {},
  ): Promise<Done> {
    const more = details === undefined ? {} : { details };
    return this.ask("append_custom_message", { customType, content, display, ...more });
  }

  /** Fetches one entry in full: `cut.whole` holds the complete text of a tool result that was cut. */
  async getEntry(entryId: EntryId): Promise<Entry | undefined> {
    return (await this.ask("get_entries", { entryId })).items[0];
  }

  /** Searches what was said in this session on any branch, newest first. */
  searchHistory(query: string, options: Omit<SearchHistory, "query"> = {}): Promise<HistoryHits> {
    return this.ask("search_history", { query, ...options });
  }

  // ---- the context window

  /** Returns exactly what the next request would send. */
  getContext(options: { readonly format?: ContextFormat; readonly ephemeral?: boolean } = {}): Promise<Context> {
    return this.ask("get_context", options);
  }

  /** Starts a compaction. Resolves once it has started; `snapshot.compaction` and the path show its progress. */
  startCompaction(options: StartCompaction = {}): Promise<Done> {
    return this.ask("start_compaction", options);
  }

  /** Runs a compaction and returns it without changing anything. `startCompaction({ previewId })` then applies it. */
  previewCompaction(options: PreviewCompaction = {}): Promise<CompactionPreview> {
    return this.ask("preview_compaction", options);
  }

  /** Cancels the named compaction, or else the running one, or drops the held one. */
  cancelCompaction(jobId?: JobId): Promise<Done> {
    return this.ask("cancel_compaction", jobId === undefined ? {} : { jobId });
  }

  /** Restores what a compaction has removed: the named one, or else the one in effect. */
  undoCompaction(entryId?: EntryId): Promise<Done> {
    return this.ask("undo_compaction", entryId === undefined ? {} : { entryId });
  }

  /** Keeps an entry verbatim through every compaction. */
  pin(entryId: EntryId): Promise<Done> {
    return this.ask("pin_entry", { entryId });
  }

  /** Unpins an entry. */
  unpin(entryId: EntryId): Promise<Done> {
    return this.ask("unpin_entry", { entryId });
  }

  // ---- settings

  /** Renames the session. */
  rename(name: string): Promise<Done> {
    return this.ask("rename_session", { name });
  }

  /** Deletes the session for good. */
  delete(): Promise<Done> {
    return this.ask("delete_session", {});
  }

  /** Sets the compaction strategy. */
  setStrategy(strategy: string, settings?: StrategySettings): Promise<Done> {
    return this.ask("set_context_strategy", settings === undefined ? { strategy } : { strategy, settings });
  }

  /** Sets the model. */
  setModel(model: string, reasoningEffort?: string): Promise<Done> {
    return this.ask("set_model", reasoningEffort === undefined ? { model } : { model, reasoningEffort });
  }

  /** Sets the system prompt; empty for none, absent for the server's own. */
  setInstructions(instructions?: string): Promise<Done> {
    return this.ask("set_instructions", instructions === undefined ? {} : { instructions });
  }

  /** Sets both options; an absent one returns to its default. */
  setOptions(options: SetOptions): Promise<Done> {
    return this.ask("set_options", options);
  }

  // ---- tools and hooks

  /** Makes this client the host: its tools and hooks are called from now on. */
  takeOverHost(): Promise<Done> {
    return this.ask("take_over_host", {});
  }

  /** Answers a tool call that this client ran itself. Calls handled by `tools` are answered automatically. */
  sendToolResult(toolCallId: CallId, output: string, isError = false): Promise<Done> {
    return this.ask("tool_result", { toolCallId, output, ...(isError ? { isError } : {}) });
  }

  /** Answers a hook call that this client handled itself. */
  sendHookResult(hookCallId: CallId, answer: HookAnswer): Promise<Done> {
    return this.ask("hook_result", { hookCallId, ...answer });
  }
}
