//! The frames that nodes exchange in addition to the client's.
//!
//! The edge parses every command that it passes on, and none of these frames is a command. So a client cannot send
//! them.

use crate::{
    config::{Scope, Scopes},
    server::auth::{Auth, Draft, Grant, Source, Valid},
};
use reseed_protocol::{ConnectionId, SessionId, session::Software};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, sync::Arc, time::Duration};

/// A frame from the edge to the holder.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type")]
pub(in crate::server) enum ToHolder {
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
pub(in crate::server) struct Greeting {
    /// The intended node. If the receiver is a different one, it has taken over the address.
    pub(in crate::server) node: i64,
    /// The node that relays.
    pub(in crate::server) from: i64,
    /// The public name of the client's connection.
    pub(in crate::server) connection_id: ConnectionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::server) client_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::server) client: Option<Software>,
    pub(in crate::server) name: String,
    pub(in crate::server) rights: Rights,
}

/// What the client's credentials allow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::server) struct Rights {
    /// The names of scopes. A node of another version may know more of them.
    pub(in crate::server) scopes: Vec<String>,
    /// The only session that the client may use, if it is bound to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::server) session_id: Option<SessionId>,
    /// The remaining time; absent if the credentials do not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::server) expires_in_ms: Option<u64>,
    /// The class of budgets that the user's token names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::server) class: Option<String>,
    /// True if an operator acts for the user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::server) operator: bool,
}

impl Rights {
    /// Returns the rights of a grant at this moment.
    pub(in crate::server) fn of(grant: &Grant) -> Self {
        Self {
            scopes: grant.scopes().names().map(str::to_owned).collect(),
            session_id: grant.session().cloned(),
            expires_in_ms: grant.remaining().map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            class: grant.class().map(str::to_owned),
            operator: grant.is_operator(),
        }
    }

    /// Returns the scopes that this version knows.
    fn scopes(&self) -> Scopes {
        self.scopes.iter().filter_map(|name| Scope::named(name)).collect()
    }

    /// Makes a grant with these rights, for this user.
    pub(in crate::server) fn grant(&self, auth: &Auth, name: String) -> Arc<Grant> {
        auth.of_checked(Draft {
            name,
            scopes: self.scopes(),
            session: self.session_id.clone(),
            valid: self.expires_in_ms.map_or(Valid::Indefinitely, |left| Valid::For(Duration::from_millis(left))),
            source: if self.operator { Source::Operator } else { Source::Node },
            id: None,
            class: self.class.clone(),
        })
    }
}

/// The envelope of a holder's frame, which is all that the edge reads of it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::server) struct Peek<'a> {
    /// The command that it answers.
    #[serde(borrow, default)]
    pub(in crate::server) re: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(in crate::server) session_id: Option<Cow<'a, str>>,
    #[serde(rename = "type", borrow)]
    pub(in crate::server) kind: Cow<'a, str>,
}

impl<'a> Peek<'a> {
    /// Reads a frame's envelope; `None` if it is not a frame.
    pub(in crate::server) fn of(frame: &'a str) -> Option<Self> {
        serde_json::from_str(frame).ok()
    }
}

/// Serializes a frame.
pub(in crate::server) fn encoded(frame: &impl Serialize) -> String {
    serde_json::to_string(frame).expect("frames between nodes have text keys")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn frames_are_read_as_they_were_written_and_no_command_is_one() {
        let rights = Rights { scopes: vec!["read".into(), "new".into()], expires_in_ms: Some(5), ..Rights::default() };
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
    }

    #[test]
    fn an_envelope_is_read_and_its_payload_is_not() {
        let table = [
            (r#"{"re":"1","sessionId":"s","type":"ok","payload":{"type":"y"}}"#, Some((Some("1"), Some("s"), "ok"))),
            (r#"{"sessionId":"s","seq":7,"type":"x","payload":{"re":"no"}}"#, Some((None, Some("s"), "x"))),
            (r#"{ "type":"\u0078", "extra":[1,{"re":"no"}] }"#, Some((None, None, "x"))),
            (r#"{"re":"1"}"#, None),
            (r#"{"type":"x"} x"#, None),
        ];
        for (frame, expected) in table {
            let peek = Peek::of(frame);
            let read = peek.as_ref().map(|peek| (peek.re.as_deref(), peek.session_id.as_deref(), peek.kind.as_ref()));
            assert_eq!(read, expected, "{frame}");
        }
    }
}
