//! Receipts: cache diagnostics for one request. A receipt says how much of the request the provider could read from its
//! cache, and where the prefix broke.

open! {
    /// Stored with the answer to the request.
    #[derive(Default, Eq)]
    struct Receipt {
        /// The number of the request within its turn, from 1.
        request: u64,
        /// Its tokens, as counted before it was sent.
        tokens: u64,
        /// The tokens of the longest prefix shared with the session's previous answered request.
        prefix_tokens: u64,
        /// The first difference, if the earlier one is not a prefix of this one.
        broke?: PrefixBreak,
        /// The hooks called for this request, in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<HookRun>>"))]
        hooks: Vec<HookRun>,
        /// Names that a stored patch refers to but that are unavailable, such as a tool that was removed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<String>>"))]
        notes: Vec<String>,
        /// The parts that the model server refuses or that its API does not have, by name. They were left out of this
        /// request or written differently.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<String>>"))]
        adapted: Vec<String>,
        /// The provider's own comparison with the previous answered request, if it was asked for one.
        provider?: ProviderVerdict,
        /// The provider's id of the answer. The next request asks for a comparison with it.
        response?: ResponseId,
        /// Fingerprints of what was sent. After a restart, the next request is compared with them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<SentPart>>"))]
        sent: Vec<SentPart>,
    }

    /// The first difference between a request and the previous one.
    #[derive(Eq)]
    struct PrefixBreak {
        /// The first part that differs: `model`, `tools`, `system:NAME`, or `message:ID` with the entry whose message
        /// is now there; `message` if it has no entry.
        part: String,
        /// The reason.
        reason: BreakReason,
        /// Further detail: the patch's own reason, the hook's or the model's name.
        detail?: String,
        /// Tokens of the previous request that this one does not start with.
        lost_tokens: u64,
    }
}

open! {
    /// A provider's comparison of a request with the previous answered one. It is about what was sent, and not about
    /// whether the cache still had it.
    #[derive(Eq)]
    struct ProviderVerdict {
        /// The outcome.
        verdict: CacheVerdict,
        /// The provider's own word for the reason, such as `tools_changed`.
        reason?: String,
        /// The first part that differs for the provider: `model`, `tools`, `system`, `messages`; `input` for the system
        /// prompt or the messages; `options` for settings that `broke` does not cover.
        part?: String,
        /// Tokens that the provider could not reuse, as it estimates.
        lost_tokens?: u64,
        /// Whether it agrees with this receipt's `prefixTokens` and `broke`; absent if that is unknown.
        agrees?: bool,
    }

    /// A provider's id of an answer.
    #[derive(Eq)]
    struct ResponseId {
        /// The id.
        id: String,
        /// Identifies the server that gave it, without its address.
        server: String,
    }
}

words! {
    /// The outcome of a provider's comparison.
    enum CacheVerdict {
        /// The request starts with the previous one.
        Hit,
        /// It does not.
        Miss,
        /// The provider could not say.
        Unknown,
    }
}

words! {
    /// The reason a request does not start with the previous one.
    enum BreakReason {
        /// A patch changed what was sent.
        Patch,
        /// The context was compacted.
        Compaction,
        /// A compaction was undone.
        CompactionUndone,
        /// The session moved in its tree.
        Navigation,
        /// Another model is used.
        Model,
        /// Other tools are offered.
        Tools,
        /// The instructions changed, or a hook's system prompt for one turn.
        Instructions,
        /// Messages added for one request are not sent again.
        Uncached,
        /// Another strategy was chosen.
        Strategy,
        /// An entry was pinned or unpinned, and became visible or invisible.
        Pins,
        /// Unknown: a part of the prompt changes by itself, such as a clock.
        Unknown,
    }
}

open! {
    /// A hook called for a request.
    #[derive(Eq)]
    struct HookRun {
        /// The hook.
        hook: String,
        /// The point at which it was called: `context:before_request`, `message` and the like.
        #[serde(alias = "event")]
        point: String,
        /// The outcome.
        outcome: HookOutcome,
        /// Its duration in milliseconds.
        duration_ms: u64,
        /// An error code, if it failed.
        code?: crate::error::ErrorCode,
    }
}

words! {
    /// The outcome of a hook call.
    enum HookOutcome {
        /// It changed nothing.
        Unchanged,
        /// It changed something.
        Changed,
        /// It was not connected and is not required.
        Skipped,
        /// It failed.
        Failed,
    }
}

open! {
    /// A part of a request with its fingerprint.
    #[derive(Eq)]
    struct SentPart {
        /// `tools`, `system:NAME`, `messages`, or `uncached` for messages sent once.
        part: String,
        /// Its fingerprint.
        hash: String,
    }
}
