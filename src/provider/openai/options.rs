//! How to reach a model's server, checked once when the provider is made.

use crate::provider::retry::RetryPolicy;
use secrecy::SecretString;
use std::{str::FromStr, time::Duration};

/// OpenAI's own address.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";
/// OpenAI's own host: only there are fields sent that only it knows.
pub(super) const OPENAI_HOST: &str = "api.openai.com";

/// What [`super::OpenAi::new`] takes.
#[derive(Debug, Clone)]
pub struct OpenAiOptions {
    /// The address up to the version, `https://api.openai.com/v1` for instance; with or without a slash at its end.
    pub base_url: String,
    /// Sent as bearer token; most servers of one's own need none.
    pub api_key: Option<SecretString>,
    /// Which of the two APIs to speak.
    pub api: ApiChoice,
    /// Longest time to open a connection, TLS included.
    pub connect_timeout: Duration,
    /// Longest time from sending a request to the first event of its answer (`UPSTREAM_FIRST_EVENT_TIMEOUT_SECS`): a large
    /// prompt on a small machine takes minutes to read.
    pub first_event_timeout: Duration,
    /// Longest silence within an answer (`UPSTREAM_IDLE_TIMEOUT_SECS`).
    pub idle_timeout: Duration,
    /// When a failed request is tried again.
    pub retry: RetryPolicy,
}

impl Default for OpenAiOptions {
    fn default() -> Self {
        Self {
            base_url: OPENAI_BASE_URL.to_owned(),
            api_key: None,
            api: ApiChoice::Auto,
            connect_timeout: Duration::from_secs(10),
            first_event_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(60),
            retry: RetryPolicy::default(),
        }
    }
}

/// `OPENAI_API`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ApiChoice {
    /// Responses at OpenAI's own address, Chat Completions elsewhere.
    #[default]
    Auto,
    /// Always Responses.
    Responses,
    /// Always Chat Completions.
    Chat,
}

/// An API that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// `POST /responses`.
    Responses,
    /// `POST /chat/completions`.
    Chat,
}

impl Api {
    /// The API's name, as in `OPENAI_API`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Responses => "responses",
            Self::Chat => "chat",
        }
    }
}

impl ApiChoice {
    /// What the choice comes to at an address.
    pub(super) fn at(self, at_openai: bool) -> Api {
        match self {
            Self::Responses => Api::Responses,
            Self::Auto if at_openai => Api::Responses,
            Self::Auto | Self::Chat => Api::Chat,
        }
    }
}

/// The text is none of the names of [`ApiChoice`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not one of auto, responses, chat")]
pub struct UnknownApi(pub String);

impl FromStr for ApiChoice {
    type Err = UnknownApi;

    fn from_str(text: &str) -> Result<Self, UnknownApi> {
        match text {
            "auto" => Ok(Self::Auto),
            "responses" => Ok(Self::Responses),
            "chat" => Ok(Self::Chat),
            other => Err(UnknownApi(other.to_owned())),
        }
    }
}

/// Why options cannot be used. Names no key, and no address that might hold a password.
#[derive(Debug, thiserror::Error)]
pub enum InvalidOptions {
    /// The address is not one.
    #[error("OPENAI_BASE_URL `{value}` is not an address: {reason}")]
    BaseUrl {
        /// What was given.
        value: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The address has a name and password in it, which would end up in logs.
    #[error("OPENAI_BASE_URL must not hold a user name or password; use OPENAI_API_KEY")]
    BaseUrlWithPassword,
    /// The key cannot be sent in a header.
    #[error("OPENAI_API_KEY has a character that cannot be sent in a header")]
    ApiKey,
    /// The HTTP client could not be made, for instance because the machine has no certificates to trust.
    #[error("the HTTP client could not be made")]
    HttpClient(#[source] reqwest::Error),
}
