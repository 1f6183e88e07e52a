//! `reseed serve`: builds the server from its settings and runs it until a signal.

mod parts;

pub use parts::{deployment, provider, webhooks, windows};
pub(super) use parts::{deployment_of, windows_of};

use crate::{
    clock::SystemClock,
    config::{ProviderKind, Settings},
    core::{
        agent_loop::{Deployment, usage_percent},
        context::counter::Counter,
        session::IdSource,
    },
    hooks::{Hook, Hooks},
    metrics::{self, hooks::HookKind},
    provider::Provider,
    runtime::{Registry, RegistryOptions, fork},
    server::{App, AppOptions, Limits, LimitsOptions, Patience, Running, serve},
    store::{self, SessionStore},
    telemetry,
};
use anyhow::Context as _;
use parts::auth;
use reseed_protocol::context::CompactAtRule;
use std::{
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};

/// The time limit for sockets to close after being asked to.
const CLOSE_TIME: Duration = Duration::from_secs(3);

/// A running server with all of its parts.
pub struct Service {
    /// The listening server.
    pub running: Running,
    app: Arc<App>,
    registry: Arc<Registry>,
    store: Arc<dyn SessionStore>,
    grace: Duration,
}

impl Service {
    /// Finishes what it can, then closes every socket with 1012, and the store.
    pub async fn stop(&self) {
        self.app.drain();
        self.registry.stop(self.grace).await;
        self.running.stop(CLOSE_TIME).await;
        if let Err(error) = self.store.close().await {
            tracing::error!(%error, "close the store");
        }
    }
}

/// Starts a server with these parts.
///
/// # Errors
/// The address is in use, the model's window is unknown, or the system has no randomness.
pub async fn start(
    settings: &Settings,
    provider: Arc<dyn Provider>,
    store: Arc<dyn SessionStore>,
) -> anyhow::Result<Service> {
    start_with_hooks(settings, provider, store, Vec::new()).await
}

/// Like [`start`], with the program's own hooks, which are called before those in the settings.
///
/// # Errors
/// As [`start`]; an invalid hook, or a file of webhooks that cannot be used.
pub async fn start_with_hooks(
    settings: &Settings,
    provider: Arc<dyn Provider>,
    store: Arc<dyn SessionStore>,
    hooks: Vec<Arc<dyn Hook>>,
) -> anyhow::Result<Service> {
    let hooks = Hooks::new(hooks)?.with_webhooks(webhooks(settings)?)?;
    let listen = &settings.listen;
    let listener = TcpListener::bind((listen.host, listen.ws_port)).await.with_context(|| {
        format!("listen on {}:{}; another program may use it, set WS_PORT", listen.host, listen.ws_port)
    })?;
    let port = listener.local_addr().context("read the local address")?.port();
    let windows = windows(settings, &*provider).await;
    let deployment = deployment(settings, windows)?;
    let counter = Counter::for_model(&deployment.model);
    // Loading a tokenizer takes a moment, so load it in the background, not with the first request.
    tokio::task::spawn_blocking(move || counter.warm());
    let limits = &settings.limits;
    let registry = Registry::new(RegistryOptions {
        store: store.clone(),
        provider: provider.clone(),
        clock: Arc::new(SystemClock),
        hooks,
        deployment,
        sessions_open_max: limits.sessions_open_max as usize,
        detached_turn: Duration::from_secs(settings.turns.detached_turn_secs),
    });
    // Forks that cannot be settled stay hidden, and are tried again at the next start.
    if let Err(error) = fork::settle(&registry).await {
        tracing::error!(%error, "settle unfinished forks");
    }
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| anyhow::anyhow!("the system has no randomness: {error}"))?;
    let app = App::new(AppOptions {
        registry: registry.clone(),
        auth: auth(settings),
        limits: Limits::new(LimitsOptions {
            connections_max: limits.connections_max as usize,
            connections_per_address_max: limits.connections_per_address_max as usize,
            rate_limit_per_minute: limits.rate_limit_per_minute,
            message_bytes_max: usize::try_from(limits.message_bytes_max).context("MESSAGE_BYTES_MAX")?,
        }),
        patience: Patience {
            hello: Duration::from_secs(listen.hello_timeout_secs),
            heartbeat: Duration::from_secs(listen.heartbeat_secs),
            slow_reader: Duration::from_secs(listen.slow_reader_secs),
        },
        port,
        provider: provider.name(),
        notice: notice(settings),
        queue_items_max: settings.turns.queue_items_max as usize,
        operators_read_content: settings.auth.operators_read_content,
        metrics: metrics::install(),
        instance: IdSource::seeded(u64::from_le_bytes(seed)).next_text(),
    });
    let running = serve(listener, app.clone()).context("serve")?;
    Ok(Service { running, app, registry, store, grace: Duration::from_secs(listen.shutdown_grace_secs) })
}

/// Returns what users of the page should know about the model.
fn notice(settings: &Settings) -> Option<String> {
    (settings.model.provider() == ProviderKind::Offline).then(|| {
        "The built-in offline model is answering, for trying things out. Set OPENAI_API_KEY or OPENAI_BASE_URL to use a real one."
            .to_owned()
    })
}

/// Opens the store that the settings name.
///
/// # Errors
/// The file is in use, not a reseed database, of a newer version, or cannot be created.
pub fn open_store(settings: &Settings) -> anyhow::Result<Arc<dyn SessionStore>> {
    let path = settings.store.database_path();
    // The store reports totals; the metrics count increments.
    let seen = Mutex::new(store::sqlite::CommitStats::default());
    let observer = move |stats: store::sqlite::CommitStats| {
        let before = std::mem::replace(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner), stats);
        if stats.failed > before.failed {
            metrics::store_commit_failed();
        }
        if stats.commits > before.commits {
            metrics::store_committed(stats.records.saturating_sub(before.records), stats.last_commit);
        }
    };
    let store = store::connect_observed(&format!("sqlite://{}", path.display()), observer)
        .with_context(|| format!("open the database {}", path.display()))?;
    Ok(store)
}

/// Runs until SIGINT or SIGTERM.
pub(super) async fn run(settings: Settings) -> anyhow::Result<()> {
    telemetry::install(&settings.log).context("set up logging")?;
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    let provider = provider(&settings)?;
    let store = open_store(&settings)?;
    let service = start(&settings, provider.clone(), store).await?;
    // Listen before announcing the server: whoever knows of it may ask it to stop.
    let mut signals = Signals::listen().context("listen for signals")?;
    super::say(start_line(&settings, &service));
    signals.received().await;
    tracing::info!("stopping: running turns may take {} s to finish", settings.listen.shutdown_grace_secs);
    tokio::select! {
        () = service.stop() => {}
        // A second signal means no waiting: what is running is recovered at the next start.
        () = signals.received() => tracing::warn!("stopped immediately by a second signal"),
    }
    Ok(())
}

/// Returns a few lines that say what is running and where.
fn start_line(settings: &Settings, service: &Service) -> String {
    let address = service.running.address;
    let deployment = service.registry.deployment();
    let window = deployment.windows.tokens(&deployment.model);
    let model = match settings.model.provider() {
        ProviderKind::Offline => {
            "the built-in offline model (set OPENAI_API_KEY or OPENAI_BASE_URL for a real one)".to_owned()
        }
        ProviderKind::OpenAi => {
            let at = settings.model.openai_base_url.as_deref().unwrap_or("https://api.openai.com/v1");
            format!("`{}` at {at}", deployment.model)
        }
    };
    let mut text =
        format!("reseed {} listens on http://{address} (WebSocket: ws://{address}/ws)", env!("CARGO_PKG_VERSION"));
    let _ = write!(text, "\n  model     {model}, window {window} tokens, strategy {}", deployment.strategy);
    let _ = write!(text, "\n  compacts  {}", compacts_line(deployment));
    let _ = write!(text, "{}", hooks_line(service.registry.hooks()));
    let _ = write!(text, "\n  database  {}", settings.store.database_path().display());
    text
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
        Some(CompactAtRule::ReserveTokens) => format!("set by CONTEXT_RESERVE_TOKENS: {room} are kept for an answer"),
        Some(CompactAtRule::MaxOutputTokens | CompactAtRule::AnswerRoom) => {
            format!("set by the room for an answer, {room} tokens; change it with CONTEXT_RESERVE_TOKENS")
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

/// The signals that stop the server, listened to from creation on.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
