/** The commands about one session, each as a method. Those that concern the snapshot or an answer are in `Session`. */

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
  /** Sends a command about this session as soon as it is open; `onReply` gets the reply before the events behind it. */
  protected abstract ask<T extends CommandName>(
    type: T,
    payload: PayloadOf<T>,
    id?: CommandId,
    onReply?: OnReply<T>,
  ): Promise<ReplyPayload<T>>;

  // ---- turns and the queue

  /** Stops a turn, the running one unless it is named. What was shown of its answer is kept. */
  cancelTurn(turnId?: TurnId): Promise<Done> {
    return this.ask("cancel_turn", turnId === undefined ? {} : { turnId });
  }

  /** Takes inputs out of the queue, or puts all that stay in another order, by the ids of their commands. */
  editQueue(edit: { readonly remove?: CommandId[]; readonly order?: CommandId[] }): Promise<Done> {
    return this.ask("edit_queue", edit);
  }

  /** Decides on a tool call that a person must allow. The model reads the message of a refusal. */
  approve(approval: Pick<Approval, "approvalId" | "argumentsHash">, review: Decision, message?: string): Promise<Done> {
    const { approvalId, argumentsHash } = approval;
    const why = message === undefined ? {} : { customDenyMessage: message };
    return this.ask("approval_response", { approvalId, argumentsHash, review, ...why });
  }

  /** Withdraws a lasting answer: the next such call is asked about again. */
  withdrawApproval(approvalId: ApprovalId): Promise<Done> {
    return this.ask("withdraw_approval", { approvalId });
  }

  /** Lists the tools of the session with the tokens of each, also those that are switched off. */
  listTools(): Promise<Tools> {
    return this.ask("list_tools", {});
  }

  /** Switches tools off or on, and sets the session's own approval policy. What is absent does not change. */
  setTools(tools: SetTools): Promise<Done> {
    return this.ask("set_tools", tools);
  }

  // ---- the tree

  /** Continues from another place: an entry, or `"root"` for before the first. */
  navigate(entryId: LeafId, options: Omit<Navigate, "entryId"> = {}): Promise<Navigated> {
    return this.ask("navigate", { entryId, ...options });
  }

  /** Makes a session of its own out of the path to an entry. Resolves with its id. */
  fork(entryId: EntryId, position: ForkPosition = "at"): Promise<Forked> {
    return this.ask("fork_session", { entryId, position });
  }

  /** Returns the shape of the tree, without the texts. */
  tree(options: { readonly rootId?: EntryId; readonly depth?: number } = {}): Promise<Tree> {
    return this.ask("get_tree", options);
  }

  /** Labels an entry, or without a label takes its label away. */
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

  /** Fetches one entry whole: `cut.whole` is all of a tool result that was cut. */
  async getEntry(entryId: EntryId): Promise<Entry | undefined> {
    return (await this.ask("get_entries", { entryId })).items[0];
  }

  /** Searches what was said in this session, newest first, whatever the branch. */
  searchHistory(query: string, options: Omit<SearchHistory, "query"> = {}): Promise<HistoryHits> {
    return this.ask("search_history", { query, ...options });
  }

  // ---- the context window

  /** Returns exactly what the next request would send. */
  getContext(options: { readonly format?: ContextFormat; readonly ephemeral?: boolean } = {}): Promise<Context> {
    return this.ask("get_context", options);
  }

  /** Compacts the context. Resolves when it has begun; `snapshot.compaction` and the path show how it goes. */
  startCompaction(options: StartCompaction = {}): Promise<Done> {
    return this.ask("start_compaction", options);
  }

  /** Makes a compaction and shows it, without changing anything. `startCompaction({ previewId })` then applies it. */
  previewCompaction(options: PreviewCompaction = {}): Promise<CompactionPreview> {
    return this.ask("preview_compaction", options);
  }

  /** Stops a compaction, the running one unless it is named, or drops the one that is held. */
  cancelCompaction(jobId?: JobId): Promise<Done> {
    return this.ask("cancel_compaction", jobId === undefined ? {} : { jobId });
  }

  /** Brings back what a compaction has taken out, the one in effect unless it is named. */
  undoCompaction(entryId?: EntryId): Promise<Done> {
    return this.ask("undo_compaction", entryId === undefined ? {} : { entryId });
  }

  /** Keeps an entry word for word through every compaction. */
  pin(entryId: EntryId): Promise<Done> {
    return this.ask("pin_entry", { entryId });
  }

  /** Lets go of a pinned entry. */
  unpin(entryId: EntryId): Promise<Done> {
    return this.ask("unpin_entry", { entryId });
  }

  // ---- settings

  /** Gives the session a name. */
  rename(name: string): Promise<Done> {
    return this.ask("rename_session", { name });
  }

  /** Deletes the session for good. */
  delete(): Promise<Done> {
    return this.ask("delete_session", {});
  }

  /** Chooses how the context is kept small. */
  setStrategy(strategy: string, settings?: StrategySettings): Promise<Done> {
    return this.ask("set_context_strategy", settings === undefined ? { strategy } : { strategy, settings });
  }

  /** Chooses the model. */
  setModel(model: string, reasoningEffort?: string): Promise<Done> {
    return this.ask("set_model", reasoningEffort === undefined ? { model } : { model, reasoningEffort });
  }

  /** Sets the system prompt; empty for none, absent for the server's own. */
  setInstructions(instructions?: string): Promise<Done> {
    return this.ask("set_instructions", instructions === undefined ? {} : { instructions });
  }

  /** Sets both options; what is absent goes back to the default. */
  setOptions(options: SetOptions): Promise<Done> {
    return this.ask("set_options", options);
  }

  // ---- tools and hooks

  /** Becomes the host: the tools and hooks of this client are asked from now on. */
  takeOverHost(): Promise<Done> {
    return this.ask("take_over_host", {});
  }

  /** Answers a tool call that this client has run elsewhere. Handlers of `tools` are answered for by themselves. */
  sendToolResult(toolCallId: CallId, output: string, isError = false): Promise<Done> {
    return this.ask("tool_result", { toolCallId, output, ...(isError ? { isError } : {}) });
  }

  /** Answers a hook call that this client has looked at elsewhere. */
  sendHookResult(hookCallId: CallId, answer: HookAnswer): Promise<Done> {
    return this.ask("hook_result", { hookCallId, ...answer });
  }
}
