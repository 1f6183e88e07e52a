//! SIGHUP: reads the settings again, and applies those that can change while the server runs.

use crate::{
    config::Settings,
    metrics,
    service::{Reloaded, Service, provider_with_key_of},
    telemetry::{self, LogLevel},
};
use std::io::{IsTerminal as _, stderr};
use tokio::signal::unix::Signal;

/// The settings with the providers' keys.
const KEYS: [&str; 2] = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"];

/// The data needed to read the settings again.
pub(super) struct Reloading<'a> {
    pub(super) service: &'a Service,
    pub(super) log_level: LogLevel,
    /// The settings at the start.
    pub(super) first: &'a Settings,
    /// The settings in use.
    pub(super) last: Settings,
    /// True if the server was started in a terminal.
    pub(super) has_terminal: bool,
}

impl Reloading<'_> {
    /// Reads the settings again on each signal, until the terminal that the server was started in is closed, which
    /// sends the same signal.
    pub(super) async fn run(mut self, mut hangup: Signal) {
        while hangup.recv().await.is_some() {
            if self.has_terminal && !stderr().is_terminal() {
                return;
            }
            if let Err(error) = self.service.rotate_audit().await {
                tracing::error!("AUDIT_FILE cannot be continued in a new file; the old one stays in use: {error}");
            }
            let reloaded = self.reload().await;
            metrics::SETTINGS_RELOADS_TOTAL.add([if reloaded.is_ok() { "ok" } else { "failed" }], 1);
            match reloaded {
                Ok(Reloaded { closed, wants_restart }) => {
                    tracing::info!(closed, "settings were read again; `closed` sockets had credentials that are gone");
                    if !wants_restart.is_empty() {
                        tracing::warn!("changed, but only a restart takes it up: {}", wants_restart.join(", "));
                    }
                }
                Err(error) => tracing::error!("settings were read again and not taken up; all is as before: {error:#}"),
            }
        }
    }

    /// Checks all settings before applying any, so that an error changes nothing.
    async fn reload(&mut self) -> anyhow::Result<Reloaded> {
        let settings = Settings::load()?;
        let filter = telemetry::filter(&settings.log)?;
        let provider = provider_with_key_of(self.first, &settings)?;
        let mut reloaded = self.service.reload(&settings).await?;
        match provider {
            Some(provider) if KEYS.iter().any(|key| settings.differs_in(key, &self.last)) => {
                self.service.replace_provider(provider);
            }
            Some(_) => {}
            // The keys choose the kinds of providers, so the old ones, or none, stay in use.
            None => {
                let changed = KEYS.iter().filter(|key| settings.differs_in(key, self.first));
                reloaded.wants_restart.extend(changed.map(|key| (*key).to_owned()));
            }
        }
        self.log_level.change(filter)?;
        for warning in settings.warnings.iter().filter(|warning| !self.last.warnings.contains(warning)) {
            tracing::warn!("{warning}");
        }
        self.last = settings;
        Ok(reloaded)
    }
}
