// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

/** The code of an error. Clients handle unknown codes by `retriable`. */
export type ErrorCode =
  | "invalid_json"
  | "invalid_frame"
  | "invalid_id"
  | "unknown_command"
  | "unknown_field"
  | "missing_field"
  | "invalid_field"
  | "duplicate_key"
  | "too_deep"
  | "binary_frame"
  | "rate_limited"
  | "unsupported_version"
  | "already_greeted"
  | "not_greeted"
  | "unauthenticated"
  | "forbidden"
  | "no_session"
  | "session_already_open"
  | "too_many_subscriptions"
  | "session_not_found"
  | "read_only"
  | "nothing_offered"
  | "idempotency_conflict"
  | "entry_not_found"
  | "session_damaged"
  | "leaf_moved"
  | "navigation_cancelled"
  | "empty_input"
  | "input_too_large"
  | "queue_full"
  | "input_cancelled"
  | "not_queued"
  | "turn_running"
  | "no_turn"
  | "nothing_to_retry"
  | "unknown_call"
  | "too_late"
  | "no_pending_approval"
  | "turn_timeout"
  | "invalid_policy"
  | "invalid_tools"
  | "too_many_tool_rounds"
  | "interrupted"
  | "context_overflow"
  | "nothing_to_compact"
  | "compaction_running"
  | "no_compaction"
  | "compaction_cancelled"
  | "compaction_void"
  | "preview_not_found"
  | "history_moved"
  | "nothing_to_undo"
  | "too_many_pins"
  | "unknown_strategy"
  | "unknown_model"
  | "invalid_hooks"
  | "invalid_patch"
  | "hook_failed"
  | "hook_timeout"
  | "hook_unavailable"
  | "upstream_unreachable"
  | "upstream_timeout"
  | "upstream_auth"
  | "upstream_quota"
  | "upstream_rate_limited"
  | "upstream_overloaded"
  | "upstream_not_found"
  | "upstream_rejected"
  | "upstream_error"
  | "upstream_truncated"
  | "upstream_empty"
  | "upstream_malformed"
  | "content_filtered"
  | "budget_exhausted"
  | "store_failed"
  | "limit_reached"
  | "overloaded"
  | "shutting_down"
  | "internal";

/** Payload of `error`, and of `turn_finished.error`. */
export interface ErrorBody {
  /** The error code, for programs. */
  code: ErrorCode;
  /** The error, with the value and the remedy, for people. */
  message: string;
  /** True if the same command, sent again unchanged, may succeed. */
  retriable: boolean;
  /** The time to wait before sending it again. */
  retryAfterMs?: number;
  /** Further data for programs: the offending `field`, the running `jobId`. */
  details?: Record<string, unknown>;
}

/** `details` of a v1 error. */
export interface ErrorDetails {
  /** The error code, for programs. */
  code: ErrorCode;
  /** True if the same command, sent again unchanged, may succeed. */
  retriable: boolean;
  /** The offending field. */
  field?: string;
  /** The time to wait before. */
  retryAfterMs?: number;
}
