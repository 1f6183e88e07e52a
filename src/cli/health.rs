//! `reseed health`: checks that the server with these settings is healthy. The image's health check runs it.

use crate::config::Settings;
use anyhow::Context as _;
use std::time::Duration;

/// Time limit of the response.
const ANSWER_TIME: Duration = Duration::from_secs(5);

pub(super) async fn run(settings: &Settings) -> anyhow::Result<()> {
    let address = settings.listen.local_address();
    // The request uses plain HTTP and needs no certificates, but creating a client requires a crypto provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().timeout(ANSWER_TIME).no_proxy().tls_certs_only([]);
    let client = builder.build().context("create an HTTP client")?;
    let response =
        client.get(format!("http://{address}/healthz")).send().await.with_context(|| format!("ask {address}"))?;
    anyhow::ensure!(response.status().is_success(), "{address} answered {}", response.status());
    super::say("ok");
    Ok(())
}
