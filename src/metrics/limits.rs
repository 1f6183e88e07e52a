//! The limits on what clients can consume, as labels of the metric that counts refusals.

use super::declared::{LIMITS_REFUSED_TOTAL, MODEL_REQUESTS_WAITING};

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Connections at a time: `CONNECTIONS_MAX`.
    Connections,
    /// Connections that are not sockets of known users: `guests_max`.
    Guests,
    /// The same from one address, which may have an eighth of them.
    GuestsPerAddress,
    /// Bytes of a message from a client that has not authenticated yet.
    GuestMessage,
    /// Bytes of partially received messages: `partial_bytes_max`.
    PartialBytes,
    /// Bytes of replies that wait for a connection.
    ReplyBytes,
    /// Unused tickets of all users.
    Tickets,
    /// Unused tickets of one user: `tickets_per_user_max`.
    TicketsPerUser,
    /// Unused tickets of one backend: `tickets_per_service_max`.
    TicketsPerService,
    /// Connections of one user: its `USER_SHARE`.
    ConnectionsPerUser,
    /// Sessions in memory: `SESSIONS_OPEN_MAX`.
    OpenSessions,
    /// Sessions in memory of one user: its `USER_SHARE`.
    OpenSessionsPerUser,
    /// Forks of one user.
    ForksPerUser,
    /// Bytes of tools that one user offers: `offered_bytes_per_user_max`.
    OfferedBytesPerUser,
    /// Wrong credentials per minute from one address: `wrong_credentials_per_minute`.
    WrongCredentials,
    /// Sessions that one user has stored: `stored_sessions_per_user_max`.
    StoredSessionsPerUser,
    /// Sessions that one user has stored and that contain no messages: `empty_sessions_per_user_max`.
    EmptySessionsPerUser,
    /// Bytes of conversations that one user has stored: `STORED_BYTES_PER_USER_MAX`.
    StoredBytesPerUser,
    /// Points of commands per minute: `RATE_LIMIT_PER_MINUTE`.
    Commands,
    /// Bytes of a signed token.
    TokenBytes,
    /// Requests for an identity provider's keys that tokens cause.
    JwksFetches,
}

impl Limit {
    pub(super) const ALL: [Self; 21] = [
        Self::Connections,
        Self::Guests,
        Self::GuestsPerAddress,
        Self::GuestMessage,
        Self::PartialBytes,
        Self::ReplyBytes,
        Self::Tickets,
        Self::TicketsPerUser,
        Self::TicketsPerService,
        Self::ConnectionsPerUser,
        Self::OpenSessions,
        Self::OpenSessionsPerUser,
        Self::ForksPerUser,
        Self::OfferedBytesPerUser,
        Self::WrongCredentials,
        Self::StoredSessionsPerUser,
        Self::EmptySessionsPerUser,
        Self::StoredBytesPerUser,
        Self::Commands,
        Self::TokenBytes,
        Self::JwksFetches,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Guests => "guests",
            Self::GuestsPerAddress => "guests_per_address",
            Self::GuestMessage => "guest_message_bytes",
            Self::PartialBytes => "partial_bytes",
            Self::ReplyBytes => "reply_bytes",
            Self::Tickets => "tickets",
            Self::TicketsPerUser => "tickets_per_user",
            Self::TicketsPerService => "tickets_per_service",
            Self::ConnectionsPerUser => "connections_per_user",
            Self::OpenSessions => "sessions_open",
            Self::OpenSessionsPerUser => "sessions_open_per_user",
            Self::ForksPerUser => "forks_per_user",
            Self::OfferedBytesPerUser => "offered_bytes_per_user",
            Self::WrongCredentials => "wrong_credentials_per_minute",
            Self::StoredSessionsPerUser => "stored_sessions_per_user",
            Self::EmptySessionsPerUser => "empty_sessions_per_user",
            Self::StoredBytesPerUser => "stored_bytes_per_user",
            Self::Commands => "commands_per_minute",
            Self::TokenBytes => "token_bytes",
            Self::JwksFetches => "jwks_fetches",
        }
    }

    /// Counts one refusal.
    pub(crate) fn refused(self) {
        LIMITS_REFUSED_TOTAL.counter([self.as_str()]).increment(1);
    }
}

/// A request that waits for a place at the model, counted until dropped.
#[derive(Debug)]
pub(crate) struct WaitingRequest(());

impl WaitingRequest {
    /// Counts a request that begins to wait.
    pub(crate) fn new() -> Self {
        MODEL_REQUESTS_WAITING.gauge([]).increment(1.0);
        Self(())
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        MODEL_REQUESTS_WAITING.gauge([]).decrement(1.0);
    }
}
