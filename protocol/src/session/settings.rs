//! The settings of a session, and the models that it may choose.

use crate::{
    compaction::{HeldCompaction, Pin, StrategySettings},
    context::AnswerOptions,
    hooks::HookOffer,
    ids::{CommandId, EntryId},
    tools::{ApprovalPolicy, StandingApproval},
};

closed! {
    /// Payload of `set_model`.
    struct SetModel {
        /// The model's name, as used by the provider.
        model: String,
        /// The reasoning effort, in the provider's terms.
        reasoning_effort?: String,
    }

    /// Payload of `set_instructions`.
    struct SetInstructions {
        /// The system prompt; empty for none, absent for the deployment's own.
        instructions?: String,
    }

    /// Payload of `set_options`. Absent fields return to the provider's default.
    #[derive(Default)]
    struct SetOptions {
        /// 0 to 2.
        temperature?: f64,
        /// 0 to 1.
        top_p?: f64,
        /// The maximum number of tokens of an answer, at least 1.
        max_output_tokens?: u64,
        /// The form of answers.
        answer?: AnswerOptions,
    }
}

open! {
    /// Settings of a session besides model and strategy.
    #[derive(Default)]
    struct SessionSettings {
        /// The system prompt; absent to use the deployment's.
        instructions?: String,
        /// 0 to 2; absent to use the provider's default.
        temperature?: f64,
        /// 0 to 1; absent to use the provider's default.
        top_p?: f64,
        /// The maximum number of tokens in an answer.
        max_output_tokens?: u64,
        /// The form of answers; absent for the provider's default.
        answer?: AnswerOptions,
        /// The reasoning effort.
        reasoning_effort?: String,
        /// The strategy's settings that differ from the deployment's.
        strategy_settings?: StrategySettings,
        /// The window learned from a provider's refusal, if smaller than the configured one.
        learned_window_tokens?: u64,
        /// The tools that are switched off in this session.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<String>>"))]
        tools_off: Vec<String>,
        /// The session's own approval policy. It can only be stricter than the deployment's.
        approvals?: ApprovalPolicy,
    }

    /// Payload of `models`.
    struct Models {
        /// The model for new sessions.
        model: String,
        /// True if a session may also choose a model that is not in the list, by its name.
        others: bool,
        /// The models: first the one for new sessions, then the others in the deployment's or the provider's order.
        items: Vec<ModelItem>,
    }

    /// A model. Unknown properties are absent.
    struct ModelItem {
        /// Its name, for `set_model`.
        id: String,
        /// Its window in tokens.
        window_tokens?: u64,
        /// Its price.
        price?: ModelPrice,
        /// True if its server says that it accepts tools. False if it does not accept them, has refused them, or the
        /// deployment has switched them off.
        tools?: bool,
        /// True if its server says that it accepts images; false if it does not, or has refused them.
        images?: bool,
    }

    /// A price, in billionths of a US dollar per million tokens.
    #[derive(Copy, Eq)]
    struct ModelPrice {
        /// The price of input tokens.
        input_nano_usd: u64,
        /// The price of input tokens read from the provider's cache.
        cached_nano_usd: u64,
        /// The price of input tokens written to the provider's cache.
        cache_write_nano_usd: u64,
        /// The price of input tokens that the provider's cache keeps for an hour; absent if it is `cacheWriteNanoUsd`.
        cache_write_hour_nano_usd?: u64,
        /// The price of output tokens.
        output_nano_usd: u64,
    }

    /// Payload of `session_updated`: absent fields have not changed.
    #[derive(Default)]
    struct SessionUpdated {
        /// The session's name.
        name?: String,
        /// The model.
        model?: String,
        /// The strategy's short name.
        strategy?: String,
        /// All other settings.
        settings?: SessionSettings,
        /// The session's leaf, from which it continues.
        #[serde(default, with = "crate::leaf::stored", skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", schemars(with = "Option<crate::leaf::LeafId>"))]
        #[cfg_attr(feature = "codegen", ts(as = "Option<crate::leaf::LeafId>"))]
        leaf_id: Option<Option<EntryId>>,
        /// All entries that every compaction keeps verbatim.
        pins?: Vec<Pin>,
        /// All lasting answers to approvals.
        standing_approvals?: Vec<StandingApproval>,
        /// The number of times that the loop was seeded.
        generation?: u64,
        /// The compaction that is now held. Only the server uses it, after a restart.
        held?: HeldCompaction,
        /// All required client hooks that the session's work now needs: their names and extension points. Only the
        /// server uses them, after a restart.
        hooks?: Vec<HookOffer>,
        /// The command that caused it.
        command_id?: CommandId,
    }
}
