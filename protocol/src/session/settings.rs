//! The settings of a session, and the models that it may choose.

use crate::{
    compaction::{HeldCompaction, Pin, StrategySettings},
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
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning_effort: Option<String>,
    }

    /// Payload of `set_instructions`.
    struct SetInstructions {
        /// The system prompt; empty for none, absent for the deployment's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instructions: Option<String>,
    }

    /// Payload of `set_options`. Absent fields return to the provider's default.
    struct SetOptions {
        /// 0 to 2.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        temperature: Option<f64>,
        /// The maximum number of tokens of an answer, at least 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_output_tokens: Option<u64>,
    }
}

open! {
    /// Settings of a session besides model and strategy.
    #[derive(Default)]
    struct SessionSettings {
        /// The system prompt; absent to use the deployment's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instructions: Option<String>,
        /// 0 to 2; absent to use the provider's default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        temperature: Option<f64>,
        /// The most tokens of an answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_output_tokens: Option<u64>,
        /// The reasoning effort.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning_effort: Option<String>,
        /// The strategy's settings that differ from the deployment's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strategy_settings: Option<StrategySettings>,
        /// The window learned from a provider's refusal, if smaller than the configured one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        learned_window_tokens: Option<u64>,
        /// The tools that are switched off in this session.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<String>>"))]
        tools_off: Vec<String>,
        /// The session's own approval policy. It can only be stricter than the deployment's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approvals: Option<ApprovalPolicy>,
    }

    /// Payload of `models`.
    struct Models {
        /// The model of new sessions.
        model: String,
        /// True if a session may also choose a model that is not in the list, by its name.
        others: bool,
        /// The models: the one of new sessions first, the others in the order of the deployment or of the provider.
        items: Vec<ModelItem>,
    }

    /// A model. What nobody has said of it is absent.
    struct ModelItem {
        /// Its name, for `set_model`.
        id: String,
        /// Its window in tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window_tokens: Option<u64>,
        /// Its price.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        price: Option<ModelPrice>,
        /// True if it takes tools, as its server says. False if it does not, if it has refused them, or if the
        /// deployment has switched them off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tools: Option<bool>,
        /// True if it takes images, as its server says; false if it does not, or has refused them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        images: Option<bool>,
    }

    /// A price, in billionths of a dollar for a million tokens.
    #[derive(Copy, Eq)]
    struct ModelPrice {
        /// Of input.
        input_nano_usd: u64,
        /// Of input that is read from the provider's cache.
        cached_nano_usd: u64,
        /// Of input that is written to the provider's cache.
        cache_write_nano_usd: u64,
        /// Of output.
        output_nano_usd: u64,
    }

    /// Payload of `session_updated`: absent fields have not changed.
    #[derive(Default)]
    struct SessionUpdated {
        /// The session's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The strategy's short name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strategy: Option<String>,
        /// All of the other settings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settings: Option<SessionSettings>,
        /// The session's leaf, from which it continues.
        #[serde(default, with = "crate::leaf::stored", skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", schemars(with = "Option<crate::leaf::LeafId>"))]
        #[cfg_attr(feature = "codegen", ts(as = "Option<crate::leaf::LeafId>"))]
        leaf_id: Option<Option<EntryId>>,
        /// All entries that every compaction keeps verbatim.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pins: Option<Vec<Pin>>,
        /// All lasting answers to approvals.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        standing_approvals: Option<Vec<StandingApproval>>,
        /// The number of times that the loop was seeded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        generation: Option<u64>,
        /// The compaction that is now held. For the server, which reads it back after a restart.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<HeldCompaction>,
        /// All required client hooks that the session's work now needs: their names and extension points. For the
        /// server, which reads them back after a restart.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hooks: Option<Vec<HookOffer>>,
        /// The command that caused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_id: Option<CommandId>,
    }
}
