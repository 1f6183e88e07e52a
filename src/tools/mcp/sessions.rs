//! An extension of MCP for servers that keep something for each session, such as a folder. A server asks for it with
//! the experimental capability [`CAPABILITY`]. Servers without it, and all servers with an address, get nothing of it.

use reseed_protocol::SessionId;
use rmcp::model::{CustomNotification, CustomRequest, JsonObject, MetaObject, RequestMetaObject};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The experimental capability of a server that keeps something for each session.
const CAPABILITY: &str = "reseed/sessions";

/// The session of a call, in its `_meta`.
const SESSION: &str = "reseed/session";

/// The mark in the `_meta` of a tool whose calls must not run beside others of the same answer.
const SEQUENTIAL: &str = "reseed/sequential";

/// The notification that a session was deleted.
const DELETED: &str = "notifications/reseed/session_deleted";

/// The request for the sessions that a server keeps something for.
const LIST: &str = "reseed/sessions/list";

/// Maximum sessions that are read from its answer: each is looked up in the store.
const LISTED_MAX: usize = 10_000;

/// Returns true if a server with these experimental capabilities wants to know of sessions.
pub(super) fn are_wanted(experimental: Option<&BTreeMap<String, JsonObject>>) -> bool {
    experimental.is_some_and(|experimental| experimental.contains_key(CAPABILITY))
}

/// Returns the `_meta` of a call in a session.
pub(super) fn meta(session: &SessionId) -> RequestMetaObject {
    let mut meta = RequestMetaObject::default();
    meta.0.0.insert(SESSION.to_owned(), json!(session));
    meta
}

/// Returns the notification that a session was deleted.
pub(super) fn deleted(session: &SessionId) -> CustomNotification {
    CustomNotification::new(DELETED, Some(json!({ "sessionId": session })))
}

/// Returns the request for the sessions that a server keeps something for.
pub(super) fn list() -> CustomRequest {
    CustomRequest::new(LIST, None)
}

/// Returns the sessions in its answer, without invalid ids.
pub(super) fn listed(answer: &Value) -> Vec<SessionId> {
    let ids = answer["sessionIds"].as_array().into_iter().flatten().take(LISTED_MAX);
    ids.filter_map(|id| id.as_str()?.parse().ok()).collect()
}

/// Returns whether a tool says that its calls must not run beside others; `None` if it says nothing.
pub(super) fn is_sequential(meta: Option<&MetaObject>) -> Option<bool> {
    meta?.0.get(SEQUENTIAL)?.as_bool()
}
