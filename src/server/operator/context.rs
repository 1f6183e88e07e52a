//! A session's context: how full it is, and its next request. Content is shown only to operators who may read it. All
//! operators see roles, the names of parts and tools, and token counts.

use super::{answer_of, session_id};
use crate::{
    core::context::envelope::markdown,
    server::{answers::Parameters, app::App, auth::Operator},
};
use axum::{
    extract::{Path, State},
    http::header,
    response::{IntoResponse, Response},
};
use reseed_protocol::{
    ErrorBody, Message,
    context::{Context, ContextEnvelope, ContextFormat, GetContext, ToolDefinition},
    receipt::{BreakReason, PrefixBreak},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::server) struct Wanted {
    format: Option<ContextFormat>,
    ephemeral: Option<bool>,
}

/// The reply of `get_context`, and whether content was omitted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    #[serde(flatten)]
    context: Context,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    without_content: bool,
}

/// Returns what the session's own client would get, whether or not the session is open. Without a `format` this is the
/// context info, and otherwise the next request.
pub(in crate::server) async fn session_context(
    operator: Operator,
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Parameters(wanted): Parameters<Wanted>,
) -> Response {
    let id = match session_id(&id) {
        Ok(id) => id,
        Err(error) => return answer_of::<()>(Err(error)),
    };
    let mut response = match wanted.format {
        None => answer_of(app.registry.peek(&id).await.map(|snapshot| snapshot.context_info)),
        Some(format) => {
            // Text without content is rendered here, from what remains of the envelope.
            let asked = if operator.reads_content { format } else { ContextFormat::Envelope };
            let get = GetContext { format: Some(asked), ephemeral: wanted.ephemeral };
            shown(app.registry.next_request(&id, &get).await, format, !operator.reads_content)
        }
    };
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}

fn shown(context: Result<Context, ErrorBody>, format: ContextFormat, without_content: bool) -> Response {
    let context = context.map(|mut context| {
        if without_content {
            context.envelope.iter_mut().for_each(leave_out_content);
            let receipts = context.receipt.iter_mut().chain(&mut context.answered);
            receipts.filter_map(|receipt| receipt.broke.as_mut()).for_each(leave_out_words);
        }
        context
    });
    match (context, format) {
        (Ok(context), ContextFormat::Markdown) => {
            let text = context.markdown.or_else(|| context.envelope.as_ref().map(markdown)).unwrap_or_default();
            ([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], text).into_response()
        }
        (context, _) => answer_of(context.map(|context| Shown { context, without_content })),
    }
}

/// Removes the detail of a prefix break if a client wrote it, because a patch's reason may quote the conversation.
fn leave_out_words(broke: &mut PrefixBreak) {
    if !matches!(broke.reason, BreakReason::Model | BreakReason::Strategy) {
        broke.detail = None;
    }
}

/// Reduces an envelope to its shape: roles, names of parts and tools, options and counts.
fn leave_out_content(envelope: &mut ContextEnvelope) {
    envelope.system.compiled.clear();
    envelope.system.parts.iter_mut().for_each(|part| part.text.clear());
    for tool in &mut envelope.tools {
        let name = std::mem::take(&mut tool.name);
        *tool = ToolDefinition { name, description: String::new(), parameters: serde_json::json!({}) };
    }
    let messages = &mut envelope.messages;
    for message in messages.cached.iter_mut().chain(&mut messages.uncached) {
        message.message = Arc::new(Message::new(message.message.role, Vec::new()));
    }
}
