//! The addresses of the dialects over HTTP, as OpenAPI. `openapi.json` beside this file is generated from here and from
//! the types of requests; `UPDATE=1 cargo test --workspace --lib -- openapi` writes it again.
//!
//! Clients and their authors need it, the server does not: so it is compiled with the tests only, and the tests in
//! `tests/it/doors/` compare the answers that they get with it.

mod answers;
mod chat;

use self::{
    answers::{
        Branch, BranchList, CompactedConversation, CompactedResponse, Context, Conversation, Deleted, Error, Event,
        InputTokens, Item, ItemList, Model, ModelList, Preview, Response,
    },
    chat::{ChatCompletion, ChatCompletionChunk, ChatRequest, UiMessage},
};
use crate::responses::{ConversationRequest, CreateRequest as Create};
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(title = "reseed", description = "LLM conversations that stay inside the model's context window.", version = "1"),
    paths(
        create_response, response_socket, compact_response, input_tokens, get_response, delete_response,
        cancel_response, input_items, models, model, create_conversation, get_conversation, update_conversation,
        delete_conversation, list_items, add_items, get_item, delete_item, context, compact, preview, undo, branches,
        go_to_branch, chat_completions, ui_socket, ui_messages,
    ),
    security(("bearer" = [])),
    modifiers(&Bearer),
)]
struct Description;

/// Adds the user's token. Without `AUTH_TOKENS` any is accepted.
struct Bearer;

impl utoipa::Modify for Bearer {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        api.components.get_or_insert_default().add_security_scheme("bearer", scheme);
    }
}

/// Describes an address: its method, path and tag, then what `utoipa::path` takes, and the errors that all have.
macro_rules! address {
    ($(#[doc = $doc:literal])* $name:ident: $method:ident $path:literal $tag:literal, [$($params:tt)*], [$($body:tt)*],
        [$($responses:tt)*]) => {
        $(#[doc = $doc])*
        #[utoipa::path(
            $method, path = $path, tag = $tag, params($($params)*), $($body)*
            responses($($responses)*, (status = "default", description = "An error in OpenAI's form.", body = Error)),
        )]
        #[expect(dead_code, reason = "it carries its description only")]
        fn $name() {}
    };
}

address!(
    /// Creates a response: with `stream`, as server-sent events.
    create_response: post "/v1/responses" "Responses",
    [("idempotency-key" = Option<String>, Header, description = "A repeated request returns the same response.")],
    [request_body = Create,],
    [(status = 200, description = "The response.", content(
        (Response = "application/json"), (Event = "text/event-stream")
    ))]
);
address!(
    /// Becomes a WebSocket of `response.create` frames, whose events are frames too.
    response_socket: get "/v1/responses" "Responses", [], [], [(status = 101, description = "A WebSocket.")]
);
address!(
    /// Summarises a chain, or the messages in `input`, as an item that a new chain can begin with.
    compact_response: post "/v1/responses/compact" "Responses", [], [request_body = Create,],
    [(status = 200, description = "The compaction.", body = CompactedResponse)]
);
address!(
    /// Counts the tokens of a request. Nothing is changed.
    input_tokens: post "/v1/responses/input_tokens" "Responses", [], [request_body = Create,],
    [(status = 200, description = "The count.", body = InputTokens)]
);
address!(
    /// Retrieves a response: with `stream=true`, its events after `starting_after`.
    get_response: get "/v1/responses/{id}" "Responses",
    [("id" = String, Path), ("stream" = Option<bool>, Query), ("starting_after" = Option<u64>, Query)], [],
    [(status = 200, description = "The response.", content(
        (Response = "application/json"), (Event = "text/event-stream")
    ))]
);
address!(
    /// Deletes a response. If others follow it, it can no longer be retrieved, but what was said stays.
    delete_response: delete "/v1/responses/{id}" "Responses", [("id" = String, Path)], [],
    [(status = 200, description = "It is deleted.", body = Deleted)]
);
address!(
    /// Cancels a response that is being made.
    cancel_response: post "/v1/responses/{id}/cancel" "Responses", [("id" = String, Path)], [],
    [(status = 200, description = "The response.", body = Response)]
);
address!(
    /// Lists the items that a response was made from.
    input_items: get "/v1/responses/{id}/input_items" "Responses",
    [("id" = String, Path), ("after" = Option<String>, Query), ("limit" = Option<u32>, Query, maximum = 100),
        ("order" = Option<String>, Query, description = "`desc` (the default) or `asc`.")], [],
    [(status = 200, description = "A page of items.", body = ItemList)]
);
address!(
    /// Lists the models.
    models: get "/v1/models" "Models", [], [], [(status = 200, description = "The models.", body = ModelList)]
);
address!(
    /// Retrieves a model.
    model: get "/v1/models/{id}" "Models", [("id" = String, Path)], [],
    [(status = 200, description = "The model.", body = Model)]
);
address!(
    /// Creates a conversation: a session.
    create_conversation: post "/v1/conversations" "Conversations", [], [request_body = Option<ConversationRequest>,],
    [(status = 200, description = "The conversation.", body = Conversation)]
);
address!(
    /// Retrieves a conversation.
    get_conversation: get "/v1/conversations/{id}" "Conversations", [("id" = String, Path)], [],
    [(status = 200, description = "The conversation.", body = Conversation)]
);
address!(
    /// Replaces the metadata of a conversation.
    update_conversation: post "/v1/conversations/{id}" "Conversations", [("id" = String, Path)],
    [request_body = ConversationRequest,], [(status = 200, description = "The conversation.", body = Conversation)]
);
address!(
    /// Deletes a conversation and all that was said in it.
    delete_conversation: delete "/v1/conversations/{id}" "Conversations", [("id" = String, Path)], [],
    [(status = 200, description = "It is deleted.", body = Deleted)]
);
address!(
    /// Lists the items of a conversation's current branch.
    list_items: get "/v1/conversations/{id}/items" "Conversations",
    [("id" = String, Path), ("after" = Option<String>, Query), ("limit" = Option<u32>, Query, maximum = 100),
        ("order" = Option<String>, Query, description = "`desc` (the default) or `asc`.")], [],
    [(status = 200, description = "A page of items.", body = ItemList)]
);
address!(
    /// Adds items to a conversation. The model is not asked.
    add_items: post "/v1/conversations/{id}/items" "Conversations", [("id" = String, Path)],
    [request_body = ConversationRequest,], [(status = 200, description = "The new items.", body = ItemList)]
);
address!(
    /// Retrieves an item.
    get_item: get "/v1/conversations/{id}/items/{item}" "Conversations", [("id" = String, Path), ("item" = String, Path)],
    [], [(status = 200, description = "The item.", body = Item)]
);
address!(
    /// Takes back the newest item. The history is not changed: the conversation goes on before it.
    delete_item: delete "/v1/conversations/{id}/items/{item}" "Conversations",
    [("id" = String, Path), ("item" = String, Path)], [],
    [(status = 200, description = "The conversation.", body = Conversation)]
);
address!(
    /// Says how full the window is, as `get_context_info` of v2.
    context: get "/v1/conversations/{id}/context" "Context", [("id" = String, Path)], [],
    [(status = 200, description = "The context.", body = Context)]
);
address!(
    /// Compacts now.
    compact: post "/v1/conversations/{id}/compact" "Context", [("id" = String, Path)],
    [request_body = Option<ConversationRequest>,],
    [(status = 200, description = "The summary.", body = CompactedConversation)]
);
address!(
    /// Shows what a compaction would do.
    preview: post "/v1/conversations/{id}/compact/preview" "Context", [("id" = String, Path)],
    [request_body = Option<ConversationRequest>,], [(status = 200, description = "The preview.", body = Preview)]
);
address!(
    /// Undoes the last compaction.
    undo: post "/v1/conversations/{id}/undo_compaction" "Context", [("id" = String, Path)], [],
    [(status = 204, description = "It is undone.")]
);
address!(
    /// Lists the ends of the branches, oldest first.
    branches: get "/v1/conversations/{id}/branches" "Context", [("id" = String, Path)], [],
    [(status = 200, description = "The branches.", body = BranchList)]
);
address!(
    /// Goes on from a branch, or from an item of any branch.
    go_to_branch: post "/v1/conversations/{id}/branches" "Context", [("id" = String, Path)],
    [request_body = ConversationRequest,], [(status = 200, description = "The branch.", body = Branch)]
);
address!(
    /// Answers a list of messages: with `stream`, as server-sent events.
    chat_completions: post "/v1/chat/completions" "Chat Completions",
    [
        ("x-session" = Option<String>, Header, description = "Names the conversation."),
        ("x-reseed-store" = Option<String>, Header, description = "With `none`, nothing is kept."),
        ("idempotency-key" = Option<String>, Header, description = "A repeated request gets the same answer."),
    ],
    [request_body = ChatRequest,],
    [(status = 200, description = "The answer.",
        headers(
            ("x-reseed-session" = String, description = "The session that the list was found in."),
            ("x-reseed-context" = String, description = "Tokens, window and compactions of its context."),
        ),
        content((ChatCompletion = "application/json"), (ChatCompletionChunk = "text/event-stream"))
    )]
);
address!(
    /// Becomes the WebSocket of the AI SDK's `WebSocketChatTransport`.
    ui_socket: get "/ai" "AI SDK", [("ticket" = Option<String>, Query), ("token" = Option<String>, Query)], [],
    [(status = 101, description = "A WebSocket.")]
);
address!(
    /// Reads the finished messages of a chat.
    ui_messages: get "/ai/chats/{id}" "AI SDK",
    [
        ("id" = String, Path),
        ("before" = Option<String>, Query, description = "The messages before this one."),
        ("limit" = Option<u32>, Query, description = "50 if absent.", maximum = 200),
        ("ticket" = Option<String>, Query), ("token" = Option<String>, Query),
    ], [],
    [(status = 200, description = "The messages, as `UIMessage`.", body = Vec<UiMessage>)]
);

mod tests {
    use super::Description;
    use serde_json::Value;
    use std::{collections::BTreeSet, fs, path::Path};
    use utoipa::OpenApi as _;

    #[test]
    fn the_committed_description_is_what_the_types_say() {
        let text = Description::openapi().to_pretty_json().unwrap() + "\n";
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&place, &text).unwrap();
        }
        let committed = fs::read_to_string(place).unwrap_or_default();
        assert!(committed == text, "run UPDATE=1 cargo test --workspace --lib -- openapi");
    }

    /// Returns the addresses that the sources route, as `METHOD path`.
    fn routed(folder: &Path, found: &mut BTreeSet<String>) {
        for file in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
            if file.is_dir() {
                routed(&file, found);
            } else if file.extension().is_some_and(|end| end == "rs") && !file.ends_with("openapi.rs") {
                let source = fs::read_to_string(&file).unwrap();
                for route in source.split(".route(").skip(1) {
                    let Some((path, handlers)) = route.trim_start().strip_prefix('"').and_then(|r| r.split_once('"'))
                    else {
                        continue;
                    };
                    let handlers = handlers.split(".route(").next().unwrap_or(handlers);
                    let handlers = handlers.lines().next().unwrap_or(handlers);
                    for method in ["get", "post", "delete"] {
                        let is_one = |before: char| matches!(before, ' ' | '.');
                        let named = handlers
                            .match_indices(&format!("{method}("))
                            .any(|(at, _)| handlers[..at].chars().next_back().is_none_or(is_one));
                        if named {
                            found.insert(format!("{method} {}", path.replace("{*", "{")));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_address_is_described_and_each_that_is_described_is_there() {
        let mut routes = BTreeSet::new();
        routed(Path::new(env!("CARGO_MANIFEST_DIR")), &mut routes);
        let described: Value = serde_json::to_value(Description::openapi()).unwrap();
        let paths = described["paths"].as_object().unwrap().iter();
        let described: BTreeSet<String> = paths
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().keys().map(move |method| format!("{method} {path}"))
            })
            .collect();
        assert_eq!(routes, described);
    }
}
