//! The frames that nodes exchange in addition to the client's.
//!
//! The edge parses every command that it passes on, and none of these frames is a command. So a client cannot send
//! them.

use crate::{
    config::{Scope, Scopes},
    server::auth::Grant,
};
use reseed_protocol::{CommandId, ConnectionId, SessionId, session::Software};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A frame from the edge to the holder.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type")]
pub(super) enum ToHolder {
    /// The first frame, which identifies the client.
    #[serde(rename = "relay_greeting")]
    Greeting(Box<Greeting>),
    /// The client has renewed its credentials.
    #[serde(rename = "relay_renewal")]
    Renewal(Rights),
}

/// The client of a relayed connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Greeting {
    /// The intended node. If the receiver is a different one, it has taken over the address.
    pub(super) node: i64,
    /// The node that relays.
    pub(super) from: i64,
    /// The public name of the client's connection.
    pub(super) connection_id: ConnectionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client: Option<Software>,
    pub(super) name: String,
    pub(super) rights: Rights,
}

/// What the client's credentials allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rights {
    /// The names of scopes. A node of another version may know more of them.
    pub(super) scopes: Vec<String>,
    /// The only session that the client may use, if it is bound to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<SessionId>,
    /// The remaining time; absent if the credentials do not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires_in_ms: Option<u64>,
}

impl Rights {
    /// Returns the rights of a grant at this moment.
    pub(super) fn of(grant: &Grant) -> Self {
        Self {
            scopes: grant.scopes().names().map(str::to_owned).collect(),
            session_id: grant.session().cloned(),
            expires_in_ms: grant.remaining().map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    /// Returns the scopes that this version knows.
    pub(super) fn scopes(&self) -> Scopes {
        self.scopes.iter().filter_map(|name| Scope::named(name)).collect()
    }

    /// Returns the remaining time.
    pub(super) fn left(&self) -> Option<Duration> {
        self.expires_in_ms.map(Duration::from_millis)
    }
}

/// The type of [`WrongNode`].
pub(super) const WRONG_NODE: &str = "wrong_node";

/// The holder's answer to a command about a session that it does not hold. The edge looks the session up again.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase", tag = "type", rename = "wrong_node")]
pub(super) struct WrongNode<'a> {
    pub(super) re: &'a CommandId,
    pub(super) session_id: &'a SessionId,
}

/// Serializes a frame.
pub(super) fn encoded(frame: &impl Serialize) -> String {
    serde_json::to_string(frame).expect("frames between nodes have text keys")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn frames_are_read_as_they_were_written_and_no_command_is_one() {
        let rights = Rights { scopes: vec!["read".into(), "new".into()], session_id: None, expires_in_ms: Some(5) };
        assert_eq!(rights.scopes(), Scopes::from(Scope::Read), "an unknown scope is left out");
        let greeting = json!({
            "type": "relay_greeting", "node": 2, "from": 1, "connectionId": "i-1", "name": "ann", "rights": rights,
        });
        let ToHolder::Greeting(read) = serde_json::from_value(greeting.clone()).expect("a greeting") else {
            panic!("{greeting}")
        };
        assert_eq!(serde_json::to_value(ToHolder::Greeting(read)).expect("a greeting"), greeting);
        let renewal = encoded(&ToHolder::Renewal(rights));
        assert!(renewal.starts_with(r#"{"type":"relay_renewal""#), "{renewal}");
        assert!(reseed_protocol::frame::parse_v2(&renewal).is_err());
        let (re, session) = ("a".parse().expect("an id"), "s".parse().expect("an id"));
        let astray = encoded(&WrongNode { re: &re, session_id: &session });
        assert_eq!(astray, r#"{"type":"wrong_node","re":"a","sessionId":"s"}"#);
    }
}
