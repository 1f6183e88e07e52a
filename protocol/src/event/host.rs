//! The events about the connections of a session, and about the one that hosts its tools and hooks.

use crate::{
    CallId, ConnectionId,
    command::{SessionRole, Software},
};
use serde::{Deserialize, Serialize};

/// The connection that hosts a session's tools and hooks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// The connection; the last one if it is away.
    pub connection_id: ConnectionId,
    /// Its `clientId`. A new connection of this client hosts in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// True if it is not connected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
    pub away: bool,
}

/// A connection that is subscribed to a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct Participant {
    /// The connection.
    pub connection_id: ConnectionId,
    /// Its `clientId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The client program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Software>,
    /// Its role.
    pub role: SessionRole,
    /// True if it offers tools or hooks: it hosts the session, or is on standby.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
    pub offers: bool,
}

/// Payload of `host_changed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct HostChanged {
    /// The host; absent if there is none any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
}

/// Payload of `presence_changed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct PresenceChanged {
    /// The connection, as it is now.
    pub connection: Participant,
    /// True if it has left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
    pub left: bool,
}

/// Payload of `run_tool`. The call itself is the durable event `tool_call`, which comes first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct RunTool {
    /// The call.
    pub tool_call_id: CallId,
    /// True if this client was asked before, on an earlier connection: it ignores this if the tool is still running.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
    pub again: bool,
}
