//! How full a session's window is, and what its next request would send. What was said is shown only where operators may
//! read content; who said it, the names of parts and tools, and what each costs are shown to all of them.

use super::{answer_of, refuse_strangers, session_id};
use crate::{core::context::envelope::markdown, server::app::App};
use axum::{
    extract::{Path, Query, State},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use reseed_protocol::{
    ErrorBody, Message,
    command::{ContextFormat, GetContext},
    context::{ContextEnvelope, ToolDefinition},
    reply::Context,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Debug, Deserialize)]
pub(in crate::server) struct Wanted {
    format: Option<ContextFormat>,
    ephemeral: Option<bool>,
}

/// The answer of `get_context`, with a word where it is not all of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    #[serde(flatten)]
    context: Context,
    /// What was said is left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    without_content: bool,
}

/// As the session's own client would be told, the same whether it is open or not: without a `format` how full the window
/// is, else what the next request would send.
pub(in crate::server) async fn session_context(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Response {
    if let Some(refused) = refuse_strangers(&app, &headers) {
        return refused;
    }
    let id = match session_id(&id) {
        Ok(id) => id,
        Err(error) => return answer_of::<()>(Err(error)),
    };
    let mut response = match wanted.format {
        None => answer_of(app.registry.peek(&id).await.map(|snapshot| snapshot.context_info)),
        Some(format) => {
            // Text without content is made here, of what is left of the envelope.
            let asked = if app.operators_read_content { format } else { ContextFormat::Envelope };
            let get = GetContext { format: Some(asked), ephemeral: wanted.ephemeral };
            shown(&app, app.registry.next_request(&id, &get).await, format)
        }
    };
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}

fn shown(app: &App, context: Result<Context, ErrorBody>, format: ContextFormat) -> Response {
    let without_content = !app.operators_read_content;
    let context = context.map(|mut context| {
        if without_content {
            context.envelope.iter_mut().for_each(leave_out_content);
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

/// Leaves of an envelope its shape: who said something, how parts and tools are called, the options, and the counts.
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
