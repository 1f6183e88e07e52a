//! `reseed health`: checks that the server with these settings is healthy. The image's health check runs it.

use crate::config::Settings;
use anyhow::Context as _;
use std::time::Duration;

/// Time limit of the response.
const ANSWER_TIME: Duration = Duration::from_secs(5);

pub(super) async fn run(settings: &Settings) -> anyhow::Result<()> {
    let address = settings.listen.local_address();
    let scheme = if settings.listen.uses_tls() { "https" } else { "http" };
    // Creating a client requires a crypto provider, even if it does not use TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The certificate names the server's public address, not this machine's. Nothing secret is sent.
    let builder = reqwest::Client::builder().timeout(ANSWER_TIME).no_proxy().tls_danger_accept_invalid_certs(true);
    let client = builder.build().context("create an HTTP client")?;
    let response =
        client.get(format!("{scheme}://{address}/healthz")).send().await.with_context(|| format!("ask {address}"))?;
    anyhow::ensure!(response.status().is_success(), "{address} answered {}", response.status());
    super::say("ok");
    Ok(())
}
