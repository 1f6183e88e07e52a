//! The whole server as one value, built from settings, a provider, a store and hooks. It is started and stopped.
//!
//! Programs that embed reseed call [`start`], as `reseed serve` does. [`provider`] and [`open_store`] build what the
//! settings name. A program can pass its own instead.

mod minutes;
pub(crate) mod model;
pub(crate) mod parts;
mod reload;
mod tools;

pub use parts::provider;
pub(crate) use parts::{budgets, deployment, deployment_of, mcp_file, models_take, webhooks, windows, windows_of};
pub use reload::Reloaded;
pub(crate) use reload::provider_with_key_of;

use self::{minutes::Minutes, tools::ServerTools};
use crate::{
    clock::SystemClock,
    config::{ProviderKind, Settings},
    core::{agent_loop::Deployment, context::counter::Counter, session::IdSource},
    hooks::{Hook, Hooks},
    metrics,
    provider::Provider,
    runtime::{Keeper, Registry, RegistryOptions, fork},
    server::{
        About, Admission, App, Audit, Backups, Identity, Patience, Peers, Repeats, Running, Stopping, Tls,
        address::Addresses,
        auth::{Auth, Jwt},
        retention, serve,
    },
    store::{self, NewNode, Secret, SessionStore},
    tools::Tool,
    trace::Exports,
};
use anyhow::Context as _;
use secrecy::{ExposeSecret as _, SecretString};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};
use tokio::net::TcpListener;

/// The time limit for sockets to close after being asked to.
const CLOSE_TIME: Duration = Duration::from_secs(3);

/// A running server with all of its parts.
pub struct Service {
    running: Running,
    app: Arc<App>,
    registry: Arc<Registry>,
    store: Arc<dyn SessionStore>,
    server_tools: Arc<ServerTools>,
    minutes: Arc<Minutes>,
    notice: Duration,
    grace: Duration,
    exports: Exports,
    /// The settings with which it was started. Locked while new settings are applied.
    settings: tokio::sync::Mutex<Settings>,
}

impl Service {
    /// Returns the address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.running.address
    }

    /// Returns the address of the operator's port, if it is not the same.
    #[must_use]
    pub fn operator_address(&self) -> Option<SocketAddr> {
        self.running.operator_address
    }

    /// Returns the settings that every session starts from.
    pub(crate) fn deployment(&self) -> Arc<Deployment> {
        self.registry.parts().deployment()
    }

    /// Returns the hooks: first the program's own, then those in the settings.
    pub(crate) fn hooks(&self) -> Hooks {
        self.registry.parts().hooks()
    }

    /// Describes the identity provider whose users are accepted. `None` if none is configured.
    pub(crate) fn signed_line(&self) -> Option<String> {
        self.app.signed_line()
    }

    /// Makes the sessions without a connection leave memory now. By themselves, they do so within 20 seconds.
    pub async fn unload_resting(&self) {
        self.registry.unload_resting().await;
    }

    /// Waits until an operator asks this server to stop, over HTTP or through the shared database.
    pub async fn asked_to_stop(&self) {
        let through_database = async {
            match self.registry.keeper() {
                Some(keeper) => keeper.asked_to_drain().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.app.stopping.asked() => {}
            () = through_database => {}
        }
    }

    /// Finishes running work, then closes every socket with 1012, and the store. If other servers share the database,
    /// clients are sent to them meanwhile, each as soon as nothing runs here for it.
    pub async fn stop(&self) {
        self.app.stopping.drain();
        self.app.admission.audit.server("drain", "begun");
        let keeper = self.registry.keeper();
        keeper.iter().for_each(|keeper| keeper.drain());
        if !self.notice.is_zero() {
            tracing::info!("serving for another {} s, so that load balancers notice", self.notice.as_secs());
            tokio::time::sleep(self.notice).await;
        }
        let has_others = match keeper {
            Some(keeper) => keeper.has_others().await,
            None => false,
        };
        if has_others {
            self.running.send_away();
        }
        self.registry.stop(self.grace).await;
        if has_others {
            self.running.all_away().await;
        }
        self.running.stop(CLOSE_TIME).await;
        self.server_tools.close().await;
        self.minutes.write_last().await;
        if let Some(keeper) = keeper {
            keeper.leave().await;
        }
        if let Err(error) = self.store.close().await {
            tracing::error!(%error, "close the store");
        }
        self.app.admission.audit.server("stop", "stopped");
        self.app.admission.audit.close().await;
        self.exports.stop().await;
    }

    /// Continues the audit log in a new file if AUDIT_FILE was moved away.
    ///
    /// # Errors
    /// The new file cannot be used. The old one stays in use.
    pub async fn rotate_audit(&self) -> Result<(), String> {
        self.app.admission.audit.rotate().await
    }
}

/// Starts a server with these parts.
///
/// # Errors
/// The address is in use, the model is ambiguous, or the system has no randomness.
pub async fn start(
    settings: &Settings,
    provider: Arc<dyn Provider>,
    store: Arc<dyn SessionStore>,
) -> anyhow::Result<Service> {
    start_with_hooks(settings, provider, store, Vec::new()).await
}

/// Starts a service like [`start`], with the program's own hooks, which are called before those in the settings.
///
/// # Errors
/// As [`start`]; also an invalid hook, or a file of webhooks that cannot be used.
pub async fn start_with_hooks(
    settings: &Settings,
    provider: Arc<dyn Provider>,
    store: Arc<dyn SessionStore>,
    hooks: Vec<Arc<dyn Hook>>,
) -> anyhow::Result<Service> {
    start_with_extensions(settings, provider, store, Extensions { hooks, ..Extensions::default() }).await
}

/// A program's additions to the server.
#[derive(Default)]
pub struct Extensions {
    /// The hooks, which are called before those in the settings.
    pub hooks: Vec<Arc<dyn Hook>>,
    /// The tools, which are offered before those in the settings.
    pub tools: Vec<Arc<dyn Tool>>,
}

/// Starts a service like [`start`], with the program's own hooks and tools.
///
/// # Errors
/// As [`start`]; also an invalid hook or tool, or a file of webhooks that cannot be used.
pub async fn start_with_extensions(
    settings: &Settings,
    provider: Arc<dyn Provider>,
    store: Arc<dyn SessionStore>,
    extensions: Extensions,
) -> anyhow::Result<Service> {
    let hooks = Hooks::new(extensions.hooks)?.with_webhooks(webhooks(settings)?)?;
    let server_tools = ServerTools::open(settings, extensions.tools, &store).await?;
    let tools = server_tools.toolset()?;
    let audit = Audit::open(settings.audit_path().as_deref()).with_context(|| {
        let path = settings.audit_path().unwrap_or_default();
        format!("open AUDIT_FILE `{}`", path.display())
    })?;
    let listen = &settings.listen;
    let tls = Identity::read(settings)?.map(|identity| Arc::new(Tls::new(identity)));
    let mut listeners = Vec::new();
    for (port, variable) in [(Some(listen.ws_port), "WS_PORT"), (listen.operator_port, "OPERATOR_PORT")] {
        let Some(port) = port else { continue };
        listeners.push(TcpListener::bind((listen.host, port)).await.with_context(|| {
            format!("listen on {}:{port}; another program may use it, set {variable}", listen.host)
        })?);
    }
    let given = settings;
    let listed = model::list_once_there(settings, &*provider, &listeners, tls.clone()).await;
    let settings = &model::chosen(settings, &listed)?;
    let mut deployment = deployment(settings, windows(settings, &listed))?;
    deployment.models_take = models_take(settings, &listed);
    let counter = Counter::for_model(&deployment.model);
    // Loading a tokenizer takes a moment, and so do the tables of the first compaction. This happens in the background
    // instead of in a turn.
    tokio::task::spawn_blocking(move || counter.warm());
    let limits = &settings.limits;
    let budgets = parts::budgets(settings)?;
    let cluster = join(settings, store.clone(), settings.node.node_address.clone()).await?;
    let registry = Registry::new(RegistryOptions {
        store: store.clone(),
        provider: provider.clone(),
        clock: Arc::new(SystemClock),
        hooks,
        tools,
        deployment,
        limits: limits.clone(),
        has_several_users: settings.has_several_users(),
        detached_turn: Duration::from_secs(settings.turns.detached_turn_secs),
        host_away: Duration::from_secs(settings.turns.host_away_secs),
        cluster: cluster.clone(),
    });
    registry.budgets().replace(budgets);
    let metrics = metrics::install();
    metrics::begin_models(&registry.parts().deployment().configured_models());
    let endpoint = settings.traces.otel_exporter_otlp_endpoint.as_deref();
    let (exports, traces) = Exports::start(endpoint, &settings.node.name(), &metrics)?;
    registry.trace_with(traces);
    registry.retain(settings.store.retention_days.clone(), settings.jwt.auth_jwt_class_claim.is_some());
    // Forks that cannot be settled stay hidden, and are tried again at the next start.
    if let Err(error) = fork::settle(&registry).await {
        tracing::error!(%error, "settle unfinished forks");
    }
    fork::keep_settling(&registry);
    registry.keep_holding();
    registry.keep_watching();
    registry.keep_sweeping(settings.store.usage_retention_days);
    server_tools.keep_offering(&registry);
    let jwt = Jwt::open(settings, None).await?;
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| anyhow::anyhow!("the system has no randomness: {error}"))?;
    let addresses = Addresses::new(listen.trusted_proxies.clone());
    let app = Arc::new(App {
        registry: registry.clone(),
        mcp: server_tools.mcp(),
        auth: Auth::new(settings, jwt, Some(store.clone())),
        admission: Admission::new(limits, addresses, registry.shares().clone(), audit),
        patience: Patience {
            hello: Duration::from_secs(listen.hello_timeout_secs),
            heartbeat: Duration::from_secs(listen.heartbeat_secs),
            slow_reader: Duration::from_secs(listen.slow_reader_secs),
        },
        tls,
        about: About {
            provider: provider.name(),
            notice: notice(settings),
            queue_items_max: settings.turns.queue_items_max as usize,
            instance: IdSource::seeded(u64::from_le_bytes(seed)).next_text(),
            seal_keys: seal_keys(settings.node.seal_key.as_ref(), &*store).await?,
        },
        peers: Peers::new(settings.node.node_token.clone()),
        backups: Backups::new(settings.store.database(), settings.backup_path()),
        metrics,
        stopping: Stopping::default(),
        pages: Default::default(),
        repeats: Repeats::default(),
        origins: AtomicU64::new(0),
    });
    if let Some(keeper) = &cluster {
        let (registry, app) = (Arc::downgrade(&registry), Arc::downgrade(&app));
        keeper.counts_by(move || {
            let sessions = registry.upgrade().map_or(0, |registry| registry.open_count());
            let connections = app.upgrade().map_or(0, |app| app.stopping.connection_count());
            (sessions as u64, connections as u64)
        });
    }
    retention::keep(&app);
    let (node, process) = (settings.node.name(), app.about.instance.clone());
    let minutes = Arc::new(Minutes::new(store.clone(), app.metrics.clone(), node, process));
    minutes.keep(app.stopping.stop.clone());
    app.admission.audit.server("start", concat!("version ", env!("CARGO_PKG_VERSION")));
    let running = serve(listeners, app.clone()).context("serve")?;
    let notice = Duration::from_secs(listen.shutdown_notice_secs);
    let (grace, settings) = (Duration::from_secs(listen.shutdown_grace_secs), given.clone().into());
    Ok(Service { running, app, registry, store, server_tools, minutes, notice, grace, exports, settings })
}

/// Returns the keys of what clients keep for the server: the first one signs, and all are accepted. The last one is the
/// database's own, which signs if no other is set.
async fn seal_keys(secret: Option<&SecretString>, store: &dyn SessionStore) -> anyhow::Result<Vec<[u8; 32]>> {
    let mut keys = Vec::new();
    if let Some(secret) = secret {
        let digest = ring::digest::digest(&ring::digest::SHA256, secret.expose_secret().as_bytes());
        keys.push(digest.as_ref().try_into().expect("a digest of SHA-256 has 32 bytes"));
    }
    let mut new = [0; 32];
    getrandom::fill(&mut new).map_err(|error| anyhow::anyhow!("the system has no randomness: {error}"))?;
    let stored = store.secret("seal", Secret(new)).await;
    keys.push(stored.context("read or make the database's key for compactions that clients keep")?.0);
    Ok(keys)
}

/// Returns a notice about the model for users of the page.
fn notice(settings: &Settings) -> Option<String> {
    (settings.model.provider() == ProviderKind::Offline).then(|| {
        "The built-in offline model is answering, for trying things out. Set OPENAI_API_KEY, OPENAI_BASE_URL or \
         ANTHROPIC_API_KEY to use a real one."
            .to_owned()
    })
}

/// Joins the servers that share a store; `None` if the store is for one server. Without an address, the others cannot
/// reach the sessions that are open here.
///
/// # Errors
/// The store failed.
pub(crate) async fn join(
    settings: &Settings,
    store: Arc<dyn SessionStore>,
    address: Option<String>,
) -> anyhow::Result<Option<Arc<Keeper>>> {
    let (name, version) = (settings.node.name(), env!("CARGO_PKG_VERSION").to_owned());
    let node = NewNode { name, address, version, lease: settings.node.lease() };
    let patience = Duration::from_secs(settings.store.store_patience_secs);
    Keeper::start(store, node, patience).await.context("join the servers that share the database")
}

/// Opens the store that the settings name.
///
/// # Errors
/// The database is in use, does not belong to reseed, has a newer version, or cannot be created or reached.
pub async fn open_store(settings: &Settings) -> anyhow::Result<Arc<dyn SessionStore>> {
    let database = settings.store.database();
    // The store reports totals; the metrics count increments.
    let seen = Mutex::new(store::CommitStats::default());
    let observer = move |stats: store::CommitStats| {
        let before = std::mem::replace(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner), stats);
        if stats.failed > before.failed {
            metrics::STORE_COMMITS_TOTAL.add(["failed"], 1);
        }
        if stats.commits > before.commits {
            metrics::store_committed(stats.records.saturating_sub(before.records), stats.last_commit);
        }
    };
    store::open(&database, observer).await.with_context(|| format!("open the database {database}"))
}
