//! Connection options of a model server, validated once when the provider is created.

use crate::{
    config::{ApiChoice, DiagnosticsChoice},
    provider::{
        retry::RetryPolicy,
        upstream::{CONNECT_TIMEOUT, FIRST_EVENT_TIMEOUT, Variables, idle_timeout},
    },
};
use secrecy::SecretString;
use std::time::Duration;

/// OpenAI's own address.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";
/// The settings that name the server.
pub(super) const VARIABLES: Variables = Variables { address: "OPENAI_BASE_URL", key: "OPENAI_API_KEY" };
/// OpenAI's own host. Only this host receives fields that only OpenAI knows.
pub(super) const OPENAI_HOST: &str = "api.openai.com";

/// The options of [`super::OpenAi::new`].
#[derive(Debug, Clone)]
pub struct OpenAiOptions {
    /// The address including the version, such as `https://api.openai.com/v1`. A trailing slash is optional.
    pub base_url: String,
    /// The bearer token. Most self-hosted servers need none.
    pub api_key: Option<SecretString>,
    /// The API to speak.
    pub api: ApiChoice,
    /// Whether the provider is asked to compare each request with the previous one, in the Responses API.
    pub diagnostics: DiagnosticsChoice,
    /// The time limit for opening a connection, including TLS.
    pub connect_timeout: Duration,
    /// The time limit from sending a request to the first event of its answer (`UPSTREAM_FIRST_EVENT_TIMEOUT_SECS`). A
    /// small machine takes minutes to read a large prompt.
    pub first_event_timeout: Duration,
    /// The maximum silence within an answer.
    pub idle_timeout: Duration,
    /// The conditions for retrying a failed request.
    pub retry: RetryPolicy,
    /// The beginning of the models' names, which is not sent; empty for none.
    pub prefix: &'static str,
}

impl Default for OpenAiOptions {
    fn default() -> Self {
        Self {
            base_url: OPENAI_BASE_URL.to_owned(),
            api_key: None,
            api: ApiChoice::Auto,
            diagnostics: DiagnosticsChoice::Auto,
            connect_timeout: CONNECT_TIMEOUT,
            first_event_timeout: FIRST_EVENT_TIMEOUT,
            idle_timeout: idle_timeout(FIRST_EVENT_TIMEOUT),
            retry: RetryPolicy::default(),
            prefix: "",
        }
    }
}

/// Returns true for OpenAI's models that take `prompt_cache_options`: GPT-5.6 and later.
pub(super) fn takes_cache_options(model: &str) -> bool {
    let version =
        model.strip_prefix("gpt-").and_then(|rest| rest.split(|c: char| c != '.' && !c.is_ascii_digit()).next());
    let mut numbers = version.unwrap_or_default().split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (5, 6)
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
