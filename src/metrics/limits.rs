//! The limits on what clients can consume, as labels of the metric that counts refusals.

use super::declared::LIMITS_REFUSED_TOTAL;

macro_rules! limits {
    ($($(#[$doc:meta])* $limit:ident = $label:literal,)*) => {
        /// A limit.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Limit {
            $($(#[$doc])* $limit,)*
        }

        impl Limit {
            pub(super) const ALL: &[Self] = &[$(Self::$limit),*];

            pub(crate) fn as_str(self) -> &'static str {
                match self {
                    $(Self::$limit => $label,)*
                }
            }

            /// Counts one refusal.
            pub(crate) fn refused(self) {
                LIMITS_REFUSED_TOTAL.add([self.as_str()], 1);
            }
        }
    };
}

limits! {
    /// Connections at a time: `CONNECTIONS_MAX`.
    Connections = "connections",
    /// Connections that are not sockets of known users: `guests_max`.
    Guests = "guests",
    /// The same from one address, which may have an eighth of them.
    GuestsPerAddress = "guests_per_address",
    /// Bytes of a message from a client that has not authenticated yet.
    GuestMessage = "guest_message_bytes",
    /// Bytes of partially received messages: `partial_bytes_max`.
    PartialBytes = "partial_bytes",
    /// Bytes of replies that wait for a connection.
    ReplyBytes = "reply_bytes",
    /// Unused tickets of all users.
    Tickets = "tickets",
    /// Unused tickets of one user: `tickets_per_user_max`.
    TicketsPerUser = "tickets_per_user",
    /// Unused tickets of one backend: `tickets_per_service_max`.
    TicketsPerService = "tickets_per_service",
    /// Connections of one user: its `USER_SHARE`.
    ConnectionsPerUser = "connections_per_user",
    /// Sessions in memory: `SESSIONS_OPEN_MAX`.
    OpenSessions = "sessions_open",
    /// Sessions in memory of one user: its `USER_SHARE`.
    OpenSessionsPerUser = "sessions_open_per_user",
    /// Forks of one user.
    ForksPerUser = "forks_per_user",
    /// Bytes of tools that one user offers: `offered_bytes_per_user_max`.
    OfferedBytesPerUser = "offered_bytes_per_user",
    /// Wrong credentials per minute from one address: `wrong_credentials_per_minute`.
    WrongCredentials = "wrong_credentials_per_minute",
    /// Sessions that one user has stored: `stored_sessions_per_user_max`.
    StoredSessionsPerUser = "stored_sessions_per_user",
    /// Sessions that one user has stored and that contain no messages: `empty_sessions_per_user_max`.
    EmptySessionsPerUser = "empty_sessions_per_user",
    /// Bytes of conversations that one user has stored: `STORED_BYTES_PER_USER_MAX`.
    StoredBytesPerUser = "stored_bytes_per_user",
    /// Points of commands per minute: `RATE_LIMIT_PER_MINUTE`.
    Commands = "commands_per_minute",
    /// Bytes of a signed token.
    TokenBytes = "token_bytes",
    /// Requests for an identity provider's keys that tokens cause.
    JwksFetches = "jwks_fetches",
}
