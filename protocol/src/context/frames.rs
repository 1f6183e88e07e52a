//! The commands, replies and events about the context.

use super::{envelope::ContextEnvelope, info::ContextInfo};
use crate::{ids::TurnId, receipt::Receipt};

closed! {
    /// Payload of `get_context`.
    struct GetContext {
        /// `envelope` (the default) or `markdown`.
        format?: ContextFormat,
        /// Includes what hooks last added for a single request; calls no hook.
        ephemeral?: bool,
    }
}

words! {
    /// The format of `get_context`.
    enum ContextFormat {
        /// The envelope as JSON.
        Envelope,
        /// The envelope as readable text.
        Markdown,
    }
}

open! {
    /// Payload of `context`.
    struct Context {
        /// The next request's envelope.
        envelope?: ContextEnvelope,
        /// The same as readable text.
        markdown?: String,
        /// Its tokens.
        tokens: u64,
        /// The receipt that it would get, compared with the session's previous request.
        receipt?: Receipt,
        /// The receipt of the newest answer, which may have the provider's verdict.
        answered?: Receipt,
    }

    /// Payload of `context_warning`.
    struct ContextWarning {
        /// The request's share of the window, not clamped.
        usage_ratio: f64,
        /// A sentence for the user.
        message: String,
        /// The cause, for programs; older servers leave it out.
        code?: ContextWarningCode,
    }

    /// Payload of `context_updated`.
    struct ContextUpdated {
        /// The running turn.
        turn_id: TurnId,
        /// The size of the context. A slow reader only receives the newest.
        context_info: ContextInfo,
    }
}

words! {
    /// The cause of a `context_warning`.
    enum ContextWarningCode {
        /// The window is 90 % full, and the strategy does nothing about it.
        NearlyFull,
        /// The window of the chosen model is unknown, so a default is assumed.
        WindowUnknown,
        /// The model server seems to cut requests silently, or reports more tokens than the window has.
        ContextTruncatedUpstream,
    }
}
