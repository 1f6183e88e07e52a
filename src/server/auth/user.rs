//! Users: their names, and why their credentials are refused.
//!
//! A user is identified by issuer and name. Names from AUTH_TOKENS have no issuer and are stored as they are. Other
//! names are stored as `issuer|name`. Neither an issuer nor a name from AUTH_TOKENS contains `|`, so no issuer can name
//! another issuer's user. A service is the issuer `service:NAME`. An identity provider is the issuer that its tokens
//! claim.

use reseed_protocol::{CloseCode, ErrorBody, ErrorCode};

/// The name of a user, who owns sessions under it. Empty if no credentials are required.
pub(crate) type Name = String;

pub(super) const ISSUER_END: char = '|';

/// The prefix of an issuer that stands for a service.
pub(super) const SERVICE: &str = "service:";

/// Maximum bytes of a name given by a service or an issuer. It is stored in the head of every session.
const NAME_BYTES_MAX: usize = 256;

/// The reason why credentials were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No credentials were given.
    Missing,
    /// They are wrong or expired. The reason goes to the log only.
    Wrong(&'static str),
    /// They are valid, but for something else.
    Forbidden(&'static str),
    /// They cannot be checked at the moment.
    Unavailable(&'static str),
}

impl Refusal {
    /// Returns the error for the client, and the reason for closing the connection.
    pub(crate) fn error(self) -> (ErrorBody, &'static str) {
        let (code, why) = match self {
            Self::Missing | Self::Wrong(_) => {
                (ErrorCode::Unauthenticated, "the credentials are missing, wrong or expired")
            }
            Self::Forbidden(why) => (ErrorCode::Forbidden, why),
            Self::Unavailable(why) => (ErrorCode::StoreFailed, why),
        };
        (ErrorBody::new(code, why), why)
    }

    /// Returns the code that closes a connection with these credentials.
    pub(crate) fn close_code(self) -> CloseCode {
        match self {
            Self::Missing | Self::Wrong(_) | Self::Forbidden(_) => CloseCode::Credentials,
            // The code for wrong credentials makes a client give up. After this one it reconnects.
            Self::Unavailable(_) => CloseCode::Overloaded,
        }
    }

    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Missing => "there are none",
            Self::Wrong(why) | Self::Forbidden(why) | Self::Unavailable(why) => why,
        }
    }
}

/// Returns true if a service or an issuer may use this name for a user.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control)
}
