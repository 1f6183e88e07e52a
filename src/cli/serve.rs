//! `reseed serve`: starts the server, says where it listens, and runs it until a signal.

mod reloading;

use self::reloading::Reloading;
use super::descriptors;
use crate::{
    config::{ProviderKind, Settings},
    core::agent_loop::{Deployment, usage_percent},
    hooks::Hooks,
    metrics::calls::HookKind,
    service::{self, Service},
    shares::FORKS_PER_USER_MAX,
    telemetry,
};
use anyhow::Context as _;
use reseed_protocol::context::CompactAtRule;
use std::{
    fmt::Write as _,
    io::{IsTerminal as _, stderr},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Runs until SIGINT or SIGTERM, or until the terminal is closed. SIGHUP reads the settings again.
pub(super) async fn run(mut settings: Settings) -> anyhow::Result<()> {
    let log_level = telemetry::install(&settings.log).context("set up logging")?;
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(lowered) = descriptors::fit(&mut settings.limits) {
        tracing::warn!("{lowered}");
    }
    let provider = service::provider(&settings)?;
    let store = service::open_store(&settings).await?;
    // Signals are caught before the server is announced, because from then on it may be asked to stop.
    let mut signals = Signals::listen().context("listen for signals")?;
    let service = tokio::select! {
        service = service::start(&settings, provider, store.clone()) => service?,
        () = signals.stop.received() => {
            tracing::info!("stopped before the start was complete");
            return store.close().await.context("close the store");
        }
    };
    let has_terminal = stderr().is_terminal();
    super::say(start_line(&settings, &service));
    let reloading = Reloading { log_level, service: &service, first: &settings, last: settings.clone(), has_terminal };
    let mut signalled = false;
    tokio::select! {
        () = reloading.run(signals.hangup) => {}
        () = signals.stop.received() => signalled = true,
        () = service.asked_to_stop() => {
            tracing::info!("an operator asked this server to drain (`reseed nodes --drain`)");
        }
    }
    tracing::info!("stopping: running turns may take {} s to finish", settings.listen.shutdown_grace_secs);
    let again = async {
        // After an operator's request to drain, the first signal is the usual stop. Only the next one ends the wait.
        if !signalled {
            signals.stop.received().await;
            tracing::info!("already stopping; another signal stops it immediately");
        }
        signals.stop.received().await;
    };
    tokio::select! {
        () = service.stop() => {}
        // A second signal ends the wait. The next start recovers what was running.
        () = again => tracing::warn!("stopped immediately by a second signal"),
    }
    Ok(())
}

/// Returns a few lines that say what is running and where.
fn start_line(settings: &Settings, service: &Service) -> String {
    let address = service.address();
    let deployment = service.deployment();
    let window = deployment.windows.tokens(&deployment.model);
    let model = match settings.model.provider() {
        ProviderKind::Offline => {
            "the built-in offline model (set OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY for a real one)"
                .to_owned()
        }
        kind => format!("`{}` at {}", deployment.model, settings.model.address_of(kind)),
    };
    let other = settings.model.other_provider().map_or_else(String::new, |other| {
        format!(
            "\n            models whose names begin with `{}` at {}",
            other.prefix(),
            settings.model.address_of(other)
        )
    });
    let (http, ws) = if settings.listen.uses_tls() { ("https", "wss") } else { ("http", "ws") };
    let mut text =
        format!("reseed {} listens on {http}://{address} (WebSocket: {ws}://{address}/ws)", env!("CARGO_PKG_VERSION"));
    if let Some(address) = service.operator_address() {
        let _ = write!(text, "\n  operators {http}://{address}");
    }
    let _ = write!(text, "\n  model     {model}, window {window} tokens, strategy {}{other}", deployment.strategy);
    let _ = write!(text, "\n  compacts  {}", compacts_line(&deployment));
    let _ = write!(text, "{}", hooks_line(&service.hooks()));
    if let Some(users) = service.signed_line() {
        let _ = write!(text, "\n  users     {users}");
    }
    if let Some(limits) = limits_line(settings) {
        let _ = write!(text, "\n  limits    {limits}");
    }
    let _ = write!(text, "\n  database  {}", settings.store.database());
    text
}

/// Returns the maximum that each user may take; `None` if there is only one user.
pub(super) fn limits_line(settings: &Settings) -> Option<String> {
    settings.has_several_users().then(|| {
        let limits = &settings.limits;
        let shares = [
            (limits.connections_per_user(), "connections"),
            (limits.sessions_open_per_user(), "sessions in memory"),
            (limits.model_requests_per_user(), "requests to the model"),
            (FORKS_PER_USER_MAX, "forks"),
            (limits.stored_sessions_per_user_max, "stored sessions"),
            (limits.points_per_minute(true), "points a minute"),
        ];
        let of = shares.map(|(most, what)| if most == 0 { format!("any {what}") } else { format!("{most} {what}") });
        format!("for each user {}", of.join(", "))
    })
}

/// Returns the count above which new sessions are compacted, and the setting that decides it.
pub(super) fn compacts_line(deployment: &Deployment) -> String {
    let window = deployment.windows.tokens(&deployment.model);
    let Ok(manager) = deployment.strategies.make(&deployment.strategy, None, &deployment.options) else {
        return format!("there is no strategy `{}`", deployment.strategy);
    };
    let Some(tokens) = manager.compact_at_tokens(window) else {
        return format!("only on request: the strategy is `{}`", deployment.strategy);
    };
    let room = deployment.options.reserve_in(window);
    let why = match manager.compact_at_rule(window) {
        Some(CompactAtRule::Threshold) => {
            format!("set by CONTEXT_COMPACTION_THRESHOLD {}", deployment.options.threshold)
        }
        Some(CompactAtRule::ReserveTokens) => {
            format!("set by `reserveTokens` of CONTEXT_STRATEGY: {room} are kept for an answer")
        }
        Some(CompactAtRule::MaxOutputTokens | CompactAtRule::AnswerRoom) => {
            format!("set by the room for an answer, {room} tokens; change it with `reserveTokens` of CONTEXT_STRATEGY")
        }
        None => format!("set by the strategy `{}`", deployment.strategy),
    };
    format!("above {tokens} tokens, {} % of the window; {why}", usage_percent(tokens, window))
}

/// Returns how many hooks there are of each kind; empty if there are none.
fn hooks_line(hooks: &Hooks) -> String {
    let kinds = [(HookKind::Rust, "in Rust"), (HookKind::Webhook, "by webhook")];
    let lines = kinds.into_iter().map(|(kind, way)| (hooks.count(kind), way)).filter(|(count, _)| *count > 0);
    let lines: Vec<String> = lines.map(|(count, way)| format!("{count} {way}")).collect();
    if lines.is_empty() { String::new() } else { format!("\n  hooks     {}", lines.join(", ")) }
}

/// The signals, caught from its creation on.
struct Signals {
    stop: StopSignals,
    hangup: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        let stop =
            StopSignals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? };
        Ok(Self { stop, hangup: signal(SignalKind::hangup())? })
    }
}

/// The signals that stop the server.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
