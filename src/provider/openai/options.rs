//! Connection options of a model server, validated once when the provider is created.

use crate::{config::ApiChoice, provider::retry::RetryPolicy};
use secrecy::SecretString;
use std::time::Duration;

/// OpenAI's own address.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";
/// OpenAI's own host. Only this host receives fields that only OpenAI knows.
pub(super) const OPENAI_HOST: &str = "api.openai.com";

/// The time limit for opening a connection. Beyond ten seconds, a server is down rather than slow.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for the first event. A small machine takes minutes to read a large prompt.
const FIRST_EVENT_TIMEOUT: Duration = Duration::from_secs(300);

/// The options of [`super::OpenAi::new`].
#[derive(Debug, Clone)]
pub struct OpenAiOptions {
    /// The address including the version, such as `https://api.openai.com/v1`. A trailing slash is optional.
    pub base_url: String,
    /// The bearer token. Most self-hosted servers need none.
    pub api_key: Option<SecretString>,
    /// The API to speak.
    pub api: ApiChoice,
    /// The time limit for opening a connection, including TLS.
    pub connect_timeout: Duration,
    /// The time limit from sending a request to the first event of its answer (`UPSTREAM_FIRST_EVENT_TIMEOUT_SECS`). A
    /// small machine takes minutes to read a large prompt.
    pub first_event_timeout: Duration,
    /// The maximum silence within an answer.
    pub idle_timeout: Duration,
    /// The conditions for retrying a failed request.
    pub retry: RetryPolicy,
}

impl Default for OpenAiOptions {
    fn default() -> Self {
        Self {
            base_url: OPENAI_BASE_URL.to_owned(),
            api_key: None,
            api: ApiChoice::Auto,
            connect_timeout: CONNECT_TIMEOUT,
            first_event_timeout: FIRST_EVENT_TIMEOUT,
            idle_timeout: idle_timeout(FIRST_EVENT_TIMEOUT),
            retry: RetryPolicy::default(),
        }
    }
}

/// The silence within an answer that is always allowed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the maximum silence within an answer of a server with this time limit for the first event. It is a minute,
/// or a fifth of that limit if this is longer, and never more than the limit. A machine that is slow to read a prompt
/// is also slow to write, and a pause for thought is shorter than a minute.
#[must_use]
pub fn idle_timeout(first_event_timeout: Duration) -> Duration {
    first_event_timeout.min(IDLE_TIMEOUT).max(first_event_timeout / 5)
}

/// An API of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// `POST /responses`.
    Responses,
    /// `POST /chat/completions`.
    Chat,
}

impl Api {
    /// Returns the API's name, as in `OPENAI_API`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Responses => "responses",
            Self::Chat => "chat",
        }
    }
}

impl ApiChoice {
    /// Resolves the choice for a server.
    pub(super) fn at(self, at_openai: bool) -> Api {
        match self {
            Self::Responses => Api::Responses,
            Self::Auto if at_openai => Api::Responses,
            Self::Auto | Self::Chat => Api::Chat,
        }
    }
}

/// The reason why options cannot be used. It contains no key, and no address that might contain a password.
#[derive(Debug, thiserror::Error)]
pub enum InvalidOptions {
    /// The address is invalid.
    #[error("OPENAI_BASE_URL `{value}` is not a valid address: {reason}")]
    BaseUrl {
        /// The given value.
        value: String,
        /// The reason why it is invalid.
        reason: &'static str,
    },
    /// The address contains a user name or password, which would end up in logs.
    #[error("OPENAI_BASE_URL must not contain a user name or password; use OPENAI_API_KEY")]
    BaseUrlWithPassword,
    /// The key cannot be sent in a header.
    #[error("OPENAI_API_KEY contains a character that cannot be sent in a header")]
    ApiKey,
    /// The HTTP client could not be created, for example because the machine has no trusted certificates.
    #[error("the HTTP client could not be created")]
    HttpClient(#[source] reqwest::Error),
}
