//! `reseed serve`: builds the server from its settings and runs it until a signal.

use crate::{
    clock::{Clock, SystemClock},
    config::{
        AuthSettings, ContextCutRule, ContextEstimator, FileTool, NamedToken, OpenAiApi, ProviderKind, Settings,
        SummaryForm as FormSetting, SummaryKind as KindSetting, SummaryPlace,
    },
    core::{
        agent_loop::{Deployment, INSTRUCTIONS_WINDOW_PART, Summaries, usage_percent},
        context::{
            compaction::{SummaryRequest, Writing},
            counter::{Counter, Estimator},
            cut::CutRule,
            strategy::Options,
            summary::{FileTools, INSTRUCTIONS_BYTES_MAX},
            windows::Windows,
        },
        session::IdSource,
    },
    hooks::{
        Hook, Hooks,
        webhook::{self, Webhook},
    },
    metrics::{self, hooks::HookKind},
    provider::{
        Provider,
        offline::{Offline, OfflineOptions},
        openai::{ApiChoice, OpenAi, OpenAiOptions},
    },
    runtime::{Registry, RegistryOptions, fork},
    server::{
        App, AppOptions, Limits, LimitsOptions, Patience, Running,
        auth::{Auth, AuthOptions, Name},
        serve,
    },
    store::{self, SessionStore},
    telemetry,
};
use anyhow::Context as _;
use reseed_protocol::{command::SummaryKind, context::CompactAtRule, entry::SummaryForm};
use secrecy::SecretString;
use std::{
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};

/// Time limit for the provider's model list at startup; without it the table of known models is used.
const LIST_TIME: Duration = Duration::from_secs(5);

/// How long sockets may take to close after being asked to.
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

/// Creates the provider that the settings name.
///
/// # Errors
/// An invalid address or option.
pub fn provider(settings: &Settings) -> anyhow::Result<Arc<dyn Provider>> {
    let (model, upstream) = (&settings.model, &settings.upstream);
    Ok(match model.provider() {
        ProviderKind::Offline => {
            let pause = settings.offline.offline_word_millis;
            Arc::new(Offline::new(OfflineOptions {
                window_tokens: settings.offline.offline_window,
                pace: (pause > 0).then(|| Duration::from_millis(pause)),
            }))
        }
        ProviderKind::OpenAi => {
            let mut options = OpenAiOptions {
                api_key: model.openai_api_key.clone(),
                api: match model.openai_api {
                    OpenAiApi::Auto => ApiChoice::Auto,
                    OpenAiApi::Responses => ApiChoice::Responses,
                    OpenAiApi::Chat => ApiChoice::Chat,
                },
                connect_timeout: Duration::from_secs(upstream.upstream_connect_timeout_secs),
                first_event_timeout: Duration::from_secs(upstream.upstream_first_event_timeout_secs),
                idle_timeout: Duration::from_secs(upstream.upstream_idle_timeout_secs),
                ..OpenAiOptions::default()
            };
            if let Some(address) = &model.openai_base_url {
                options.base_url.clone_from(address);
            }
            Arc::new(OpenAi::new(options).context("reach the model's server")?)
        }
    })
}

/// Returns the known windows: those in the settings and those in the provider's list. The list is requested even if the
/// window of the deployment's own model is set: a summariser and the models that sessions choose have their own.
pub async fn windows(settings: &Settings, provider: &dyn Provider) -> Windows {
    let own = settings.model.model_name();
    let is_set = windows_of(settings, Vec::new()).window(own).is_some();
    let unlisted = |why: String| {
        if is_set {
            tracing::info!("{why}");
        } else {
            tracing::warn!("{why}");
        }
        Vec::new()
    };
    let mut listed: Vec<(String, Option<u64>)> = match tokio::time::timeout(LIST_TIME, provider.models()).await {
        Ok(Ok(models)) => models.into_iter().map(|model| (model.id, model.window_tokens)).collect(),
        Ok(Err(fault)) => {
            unlisted(format!("the model server does not list its models ({}): {}", fault.code, fault.message))
        }
        Err(_) => unlisted(format!("the model server did not list its models within {} s", LIST_TIME.as_secs())),
    };
    if settings.model.provider() == ProviderKind::Offline
        && let Some((_, window)) = listed.first().cloned()
    {
        // It accepts any name and always has its own window.
        listed.push((own.to_owned(), window));
    }
    windows_of(settings, listed)
}

/// Returns the windows in the settings, which override this list from the provider.
pub(super) fn windows_of(settings: &Settings, listed: Vec<(String, Option<u64>)>) -> Windows {
    let context = &settings.context;
    let windows = Windows::new(context.context_window, listed).with_own(settings.model.model_name());
    windows.with_named(context.model_windows.clone())
}

/// Reads the webhooks that the settings name.
///
/// # Errors
/// A file that cannot be used.
pub fn webhooks(settings: &Settings) -> anyhow::Result<Vec<Webhook>> {
    let Some(file) = settings.hooks_path() else { return Ok(Vec::new()) };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    Ok(webhook::read(&file, &|name| settings.variables.get(name).cloned(), &clock)?)
}

/// Returns what the settings say for every session.
///
/// # Errors
/// The window of the model is unknown.
pub fn deployment(settings: &Settings, windows: Windows) -> anyhow::Result<Deployment> {
    let model = settings.model.model_name();
    anyhow::ensure!(
        windows.knows(model),
        "the window of MODEL `{model}` is unknown: neither its server nor the table of known models has it; set CONTEXT_WINDOW"
    );
    if let Some(warning) = settings.summaries.summary_model.as_deref().and_then(|model| windows.warning(model)) {
        tracing::warn!("SUMMARY_MODEL: {warning}");
    }
    let mut deployment = deployment_of(settings, windows);
    deployment.summaries.writing.prompt = summary_prompt(settings, &deployment)?;
    Ok(deployment)
}

/// Reads the prompt for summaries that the settings name.
fn summary_prompt(settings: &Settings, deployment: &Deployment) -> anyhow::Result<Option<Arc<str>>> {
    let Some(file) = settings.summary_instructions_path() else { return Ok(None) };
    let named = format!("SUMMARY_INSTRUCTIONS_FILE names {}", file.display());
    let text = std::fs::read_to_string(&file).with_context(|| format!("{named}, which cannot be read as text"))?;
    anyhow::ensure!(
        !text.trim().is_empty(),
        "{named}, which is blank; put the prompt into it or unset it"
    );
    let bytes = text.len();
    anyhow::ensure!(
        bytes <= INSTRUCTIONS_BYTES_MAX,
        "{named}, which has {bytes} bytes; at most {INSTRUCTIONS_BYTES_MAX} are allowed"
    );
    let model = deployment.summaries.model.as_ref().unwrap_or(&deployment.model);
    let tokens = Counter::chosen(deployment.estimator, model).text(&text);
    let tokens_max = deployment.windows.tokens(model) / INSTRUCTIONS_WINDOW_PART;
    anyhow::ensure!(
        tokens <= tokens_max,
        "{named}, which has about {tokens} tokens; at most {tokens_max} are allowed, a quarter of the window of `{model}`"
    );
    Ok(Some(text.into()))
}

/// Like [`deployment`], for uses that do not need the model's window.
pub(super) fn deployment_of(settings: &Settings, windows: Windows) -> Deployment {
    let (context, summaries, turns) = (&settings.context, &settings.summaries, &settings.turns);
    Deployment {
        model: settings.model.model_name().to_owned(),
        strategy: context.context_strategy.to_owned(),
        strategies: settings.strategies.clone(),
        instructions: settings.model.instructions.clone(),
        options: Options {
            threshold: context.context_compaction_threshold,
            reserve_tokens: context.context_reserve_tokens,
            max_output_tokens: None,
            keep_recent_tokens: context.context_keep_recent_tokens,
            target: context.context_target,
            background: context.context_background,
            min_gain: context.context_min_gain,
            keep_turns: context.context_keep_turns,
            keep_tool_results: context.context_keep_tool_results,
            summarise: context.context_importance_summarise,
            steps: context.context_pipeline.clone(),
            summary_kind: match summaries.summary_kind {
                KindSetting::Auto => SummaryKind::Auto,
                KindSetting::Chat => SummaryKind::Chat,
                KindSetting::Code => SummaryKind::Code,
                KindSetting::Debugging => SummaryKind::Debugging,
                KindSetting::Research => SummaryKind::Research,
            },
        },
        summaries: Summaries {
            model: summaries.summary_model.clone(),
            request: match summaries.summary_request {
                SummaryPlace::Auto => SummaryRequest::Auto,
                SummaryPlace::Quoted => SummaryRequest::Quoted,
                SummaryPlace::CachedPrefix => SummaryRequest::CachedPrefix,
            },
            answer_tokens_max: summaries.summary_output_tokens,
            timeout_ms: summaries.compaction_timeout_secs * 1000,
            writing: Writing {
                form: match summaries.summary_form {
                    FormSetting::Sections => SummaryForm::Sections,
                    FormSetting::Free => SummaryForm::Free,
                },
                prompt: None,
                kind: SummaryKind::Auto,
            },
        },
        estimator: match context.context_estimator {
            ContextEstimator::Own => Estimator::Own,
            ContextEstimator::Pi => Estimator::Pi,
        },
        cut_rule: match context.context_cut_rule {
            ContextCutRule::Own => CutRule::Own,
            ContextCutRule::Pi => CutRule::Pi,
        },
        windows,
        prices: settings.model.model_prices.clone(),
        tool_timeout_ms: turns.tool_timeout_secs * 1000,
        tool_rounds_max: u64::from(turns.tool_rounds_max),
        queue_items_max: turns.queue_items_max as usize,
        file_tools: FileTools {
            reads: file_tools(&context.file_read_tools),
            writes: file_tools(&context.file_write_tools),
        },
        hooks: Vec::new(),
        hook_timeout_ms: settings.hooks.hook_timeout_secs * 1000,
        hook_away_ms: settings.hooks.hook_away_secs * 1000,
    }
}

fn file_tools(tools: &[FileTool]) -> Vec<(String, String)> {
    tools.iter().map(|named| (named.tool.clone(), named.argument.clone())).collect()
}

fn auth(settings: &Settings) -> Auth {
    let named = |tokens: &[NamedToken]| -> Vec<(Name, SecretString)> {
        tokens.iter().map(|token| (token.name.clone(), token.token.clone())).collect()
    };
    let AuthSettings { auth_tokens, operator_tokens, allowed_origins, ticket_secs, .. } = &settings.auth;
    Auth::new(AuthOptions {
        users: named(auth_tokens),
        operators: named(operator_tokens),
        origins: allowed_origins.iter().map(|origin| origin.as_str().to_owned()).collect(),
        host: settings.listen.host,
        ticket_life: Duration::from_secs(*ticket_secs),
    })
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
    let told = kinds.into_iter().map(|(kind, way)| (hooks.count(kind), way)).filter(|(count, _)| *count > 0);
    let told: Vec<String> = told.map(|(count, way)| format!("{count} {way}")).collect();
    if told.is_empty() { String::new() } else { format!("\n  hooks     {}", told.join(", ")) }
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
