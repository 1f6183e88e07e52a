//! Options of the Messages API, validated once when the provider is created.

use crate::{
    config::{CacheTtl, DiagnosticsChoice},
    provider::{
        retry::RetryPolicy,
        upstream::{CONNECT_TIMEOUT, FIRST_EVENT_TIMEOUT, Variables, idle_timeout},
    },
};
use secrecy::SecretString;
use std::time::Duration;

/// Anthropic's own address.
pub const ANTHROPIC_BASE_URL: &str = "https://api.anthropic.com";
/// The settings that name the server.
pub(super) const VARIABLES: Variables = Variables { address: "ANTHROPIC_BASE_URL", key: "ANTHROPIC_API_KEY" };

/// The options of [`super::Anthropic::new`].
#[derive(Debug, Clone)]
pub struct AnthropicOptions {
    /// The address without the version, such as `https://api.anthropic.com`. `/v1` at its end is ignored.
    pub base_url: String,
    /// The API key. A proxy may need none.
    pub api_key: Option<SecretString>,
    /// How long the provider's cache keeps what a request writes to it.
    pub cache_ttl: CacheTtl,
    /// Whether the provider is asked to compare each request with the previous one.
    pub diagnostics: DiagnosticsChoice,
    /// The time limit for opening a connection, including TLS.
    pub connect_timeout: Duration,
    /// The time limit from sending a request to the first event of its answer.
    pub first_event_timeout: Duration,
    /// The maximum silence within an answer.
    pub idle_timeout: Duration,
    /// The conditions for retrying a failed request.
    pub retry: RetryPolicy,
    /// The beginning of the models' names, which is not sent; empty for none.
    pub prefix: &'static str,
}

impl Default for AnthropicOptions {
    fn default() -> Self {
        Self {
            base_url: ANTHROPIC_BASE_URL.to_owned(),
            api_key: None,
            cache_ttl: CacheTtl::Minutes,
            diagnostics: DiagnosticsChoice::Auto,
            connect_timeout: CONNECT_TIMEOUT,
            first_event_timeout: FIRST_EVENT_TIMEOUT,
            idle_timeout: idle_timeout(FIRST_EVENT_TIMEOUT),
            retry: RetryPolicy::default(),
            prefix: "",
        }
    }
}
