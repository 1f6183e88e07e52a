//! The address of a model server, with the key that it gets, validated once.

use reqwest::{
    Url,
    header::{HeaderName, HeaderValue},
};
use secrecy::{ExposeSecret, SecretString};

/// The address of a model server, without a trailing slash.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    base_url: String,
    url: Url,
}

/// The settings that name a server and its key, for errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variables {
    /// The setting with the address.
    pub(crate) address: &'static str,
    /// The setting with the key.
    pub(crate) key: &'static str,
}

/// The reason why options cannot be used. It contains no key, and no address that might contain a password.
#[derive(Debug, thiserror::Error)]
pub enum InvalidOptions {
    /// The address is invalid.
    #[error("{variable} `{value}` is not a valid address: {reason}")]
    BaseUrl {
        /// The setting.
        variable: &'static str,
        /// The given value.
        value: String,
        /// The reason why it is invalid.
        reason: &'static str,
    },
    /// The address contains a user name or password, which would end up in logs.
    #[error("{variable} must not contain a user name or password; use {key}")]
    BaseUrlWithPassword {
        /// The setting with the address.
        variable: &'static str,
        /// The setting for the key.
        key: &'static str,
    },
    /// The key cannot be sent in a header.
    #[error("{variable} contains a character that cannot be sent in a header")]
    ApiKey {
        /// The setting.
        variable: &'static str,
    },
    /// The HTTP client could not be created, for example because the machine has no trusted certificates.
    #[error("the HTTP client could not be created")]
    HttpClient(#[source] reqwest::Error),
}

impl Address {
    /// Parses the address of an API.
    pub(crate) fn parse(text: &str, variables: Variables) -> Result<Self, InvalidOptions> {
        let text = text.trim().trim_end_matches('/');
        let Variables { address: variable, key } = variables;
        let malformed = |reason| Err(InvalidOptions::BaseUrl { variable, value: text.to_owned(), reason });
        match Url::parse(text) {
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                Err(InvalidOptions::BaseUrlWithPassword { variable, key })
            }
            Err(_) if text.contains('@') => Err(InvalidOptions::BaseUrlWithPassword { variable, key }),
            Err(_) => malformed("it must look like https://host/v1"),
            Ok(url) if !matches!(url.scheme(), "http" | "https") => malformed("it must begin with http:// or https://"),
            Ok(url) if url.query().or(url.fragment()).is_some() => malformed("it must not have a query or fragment"),
            Ok(url) => Ok(Self { base_url: text.to_owned(), url }),
        }
    }

    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }
}

/// Returns the header with a key, such as `Bearer KEY`; `None` if there is no key.
pub(crate) fn key_header(
    name: HeaderName,
    scheme: &str,
    key: Option<&SecretString>,
    variables: Variables,
) -> Result<Option<(HeaderName, HeaderValue)>, InvalidOptions> {
    let Some(key) = key.map(ExposeSecret::expose_secret).filter(|key| !key.is_empty()) else { return Ok(None) };
    let invalid = |_| InvalidOptions::ApiKey { variable: variables.key };
    let mut value = HeaderValue::from_str(&format!("{scheme}{key}")).map_err(invalid)?;
    value.set_sensitive(true);
    Ok(Some((name, value)))
}
