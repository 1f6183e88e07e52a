//! Builds the parts of a server from its settings: provider, windows, webhooks, deployment.

use super::model::{List, is_same};
use crate::{
    clock::{Clock, SystemClock},
    config::{ProviderKind, Settings},
    core::{
        agent_loop::{
            Deployment, HOOK_TIMEOUT_MS, HistoryTools, INSTRUCTIONS_WINDOW_PART, Summaries, TOOL_PARALLEL_MAX,
            TOOL_TIMEOUT_MS, Tools,
        },
        approval::Policy,
        compaction::{
            Writing,
            cut_rules::ByStrategy,
            strategy::Options,
            summary::{FileTools, INSTRUCTIONS_BYTES_MAX},
        },
        context::{counter::Counter, windows::Windows},
        model::Takes,
    },
    hooks::webhook::{self, Webhook},
    provider::{
        Provider,
        anthropic::{Anthropic, AnthropicOptions},
        by_model::ByModel,
        offline::{Offline, OfflineOptions},
        openai::{OpenAi, OpenAiOptions, idle_timeout},
    },
    shares::budgets::Rules,
    tools::mcp::McpFile,
};
use anyhow::Context as _;
use reseed_protocol::tools::ApprovalPolicy;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Maximum bytes of the file with the approval policy, which is many times what its rules need.
const APPROVALS_BYTES_MAX: u64 = 1024 * 1024;

/// Tokens of the built-in model's window if none is set. It is small, so that a compaction comes soon.
const OFFLINE_WINDOW: u64 = 8_000;

/// Creates the provider that the settings name, or both of two.
///
/// # Errors
/// An invalid address or option.
pub fn provider(settings: &Settings) -> anyhow::Result<Arc<dyn Provider>> {
    let first = provider_of(settings, settings.model.provider(), "")?;
    Ok(match settings.model.other_provider() {
        Some(other) => {
            let prefix = other.prefix();
            Arc::new(ByModel::new(first, provider_of(settings, other, prefix)?, prefix))
        }
        None => first,
    })
}

/// Creates one provider, the names of whose models begin with `prefix`.
fn provider_of(settings: &Settings, kind: ProviderKind, prefix: &'static str) -> anyhow::Result<Arc<dyn Provider>> {
    let (model, upstream) = (&settings.model, &settings.upstream);
    let first_event_timeout = Duration::from_secs(upstream.upstream_first_event_timeout_secs);
    let idle_timeout = idle_timeout(first_event_timeout);
    Ok(match kind {
        ProviderKind::Offline => {
            let (pause, context) = (model.offline_word_millis, &settings.context);
            let named = context.model_windows.get(model.model_name());
            Arc::new(Offline::new(OfflineOptions {
                window_tokens: named.copied().or(context.context_window).unwrap_or(OFFLINE_WINDOW),
                pace: (pause > 0).then(|| Duration::from_millis(pause)),
            }))
        }
        ProviderKind::OpenAi => {
            let mut options = OpenAiOptions {
                api_key: model.openai_api_key.clone(),
                api: model.openai_api,
                diagnostics: model.cache_diagnostics,
                first_event_timeout,
                idle_timeout,
                prefix,
                ..OpenAiOptions::default()
            };
            if let Some(address) = &model.openai_base_url {
                options.base_url.clone_from(address);
            }
            Arc::new(OpenAi::new(options).context("reach the model's server")?)
        }
        ProviderKind::Anthropic => {
            let mut options = AnthropicOptions {
                api_key: model.anthropic_api_key.clone(),
                cache_ttl: model.anthropic_cache_ttl,
                diagnostics: model.cache_diagnostics,
                first_event_timeout,
                idle_timeout,
                prefix,
                ..AnthropicOptions::default()
            };
            if let Some(address) = &model.anthropic_base_url {
                options.base_url.clone_from(address);
            }
            Arc::new(Anthropic::new(options).context("reach the model's server")?)
        }
    })
}

/// Returns the known windows, from the settings and from the provider's list. The list counts even if the window of the
/// deployment's own model is set, because a summariser and the models that sessions choose have their own windows.
pub(crate) fn windows(settings: &Settings, listed: &List) -> Windows {
    let own = settings.model.model_name();
    let mut listed: Vec<(String, Option<u64>)> = match listed {
        Ok(models) => models.iter().map(|model| (model.id.clone(), model.window_tokens)).collect(),
        Err(fault) => {
            let why = format!("the model server does not list its models ({}): {}", fault.code, fault.message);
            if windows_of(settings, Vec::new()).window(own).is_some() {
                tracing::info!("{why}");
            } else {
                tracing::warn!("{why}");
            }
            Vec::new()
        }
    };
    if settings.model.provider() == ProviderKind::Offline
        && let Some((_, window)) = listed.first().cloned()
    {
        // It accepts any name, and its window is always the same.
        listed.push((own.to_owned(), window));
    }
    if !listed.iter().any(|(id, _)| id == own)
        && let Some((_, window)) = listed.iter().find(|(id, _)| is_same(id, own)).cloned()
    {
        listed.push((own.to_owned(), window));
    }
    windows_of(settings, listed)
}

/// Returns what each listed model accepts besides text. The deployment's model is also listed under its own name.
pub(crate) fn models_take(settings: &Settings, listed: &List) -> BTreeMap<String, Takes> {
    let listed = listed.as_deref().unwrap_or_default();
    let own = settings.model.model_name();
    let is_offline = settings.model.provider() == ProviderKind::Offline;
    let same = listed.iter().find(|model| is_offline || is_same(&model.id, own));
    let own = same.map(|model| (own.to_owned(), model.takes));
    own.into_iter().chain(listed.iter().map(|model| (model.id.clone(), model.takes))).collect()
}

/// Returns the windows in the settings, which override this list from the provider.
pub(crate) fn windows_of(settings: &Settings, listed: Vec<(String, Option<u64>)>) -> Windows {
    let context = &settings.context;
    let windows = Windows::new(context.context_window, listed).with_own(settings.model.model_name());
    windows.with_named(context.model_windows.clone())
}

/// Reads the webhooks that the settings name.
///
/// # Errors
/// A file that cannot be used.
pub(crate) fn webhooks(settings: &Settings) -> anyhow::Result<Vec<Webhook>> {
    let Some(file) = settings.hooks_path() else { return Ok(Vec::new()) };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    Ok(webhook::read(&file, &|name| settings.variables.get(name).cloned(), &clock)?)
}

/// Reads the file of budgets that the settings name. Without a file, nothing is limited.
///
/// # Errors
/// A file that cannot be used.
pub(crate) fn budgets(settings: &Settings) -> anyhow::Result<Rules> {
    let Some(file) = settings.budgets_path() else { return Ok(Rules::default()) };
    Rules::read(&file).map_err(|why| anyhow::anyhow!(why))
}

/// Reads the file of MCP servers that the settings name. Without a file there are no servers.
///
/// # Errors
/// A file that cannot be used, or commands without a sandbox where there may be several users.
pub(crate) fn mcp_file(settings: &Settings) -> anyhow::Result<McpFile> {
    let Some(file) = settings.mcp_path() else { return Ok(McpFile::default()) };
    let file = McpFile::read(&file, &settings.store.working_directory, &settings.variables)?;
    if let Some(name) = file.unconfined() {
        anyhow::ensure!(
            !settings.has_several_users(),
            "the server `{name}` in MCP_FILE has the flag `--no-sandbox`, and there may be several users: each could \
             read and change what belongs to the others; remove the flag or the server"
        );
        tracing::warn!(
            server = name,
            "`--no-sandbox`: the model's commands have all rights of this server's user, its files and keys included"
        );
    }
    Ok(file)
}

/// Returns the settings for every session.
///
/// # Errors
/// A file that the settings name cannot be used.
pub fn deployment(settings: &Settings, windows: Windows) -> anyhow::Result<Deployment> {
    let model = settings.model.model_name();
    if windows.window(model).is_none() {
        tracing::warn!(
            "the window of MODEL `{model}` is unknown: neither its server nor the table of known models has it; \
             {} tokens are assumed; set CONTEXT_WINDOW",
            windows.tokens(model)
        );
    }
    if let Some(warning) = settings.summaries.summary_model.as_deref().and_then(|model| windows.warning(model)) {
        tracing::warn!("SUMMARY_MODEL: {warning}");
    }
    let mut deployment = deployment_of(settings, windows);
    deployment.summaries.writing.prompt = summary_prompt(settings, &deployment)?;
    deployment.approvals = approval_policy(settings)?;
    Ok(deployment)
}

/// Reads the approval policy that the settings name.
fn approval_policy(settings: &Settings) -> anyhow::Result<Policy> {
    let Some(file) = settings.approvals_path() else { return Ok(Policy::default()) };
    let named = format!("APPROVALS_FILE names {}", file.display());
    let bytes = std::fs::metadata(&file).with_context(|| format!("{named}, which cannot be read"))?.len();
    anyhow::ensure!(
        bytes <= APPROVALS_BYTES_MAX,
        "{named}, which has {bytes} bytes; at most {APPROVALS_BYTES_MAX} are allowed"
    );
    let text = std::fs::read_to_string(&file).with_context(|| format!("{named}, which cannot be read as text"))?;
    let policy: ApprovalPolicy =
        serde_json::from_str(&text).with_context(|| format!("{named}, which is not a policy"))?;
    Policy::compile(&policy).map_err(|(field, why)| anyhow::anyhow!("{named}: `{field}` {why}"))
}

/// Reads the prompt for summaries that the settings name.
fn summary_prompt(settings: &Settings, deployment: &Deployment) -> anyhow::Result<Option<Arc<str>>> {
    let Some(file) = settings.summary_instructions_path() else { return Ok(None) };
    let named = format!("SUMMARY_INSTRUCTIONS_FILE names {}", file.display());
    let text = std::fs::read_to_string(&file).with_context(|| format!("{named}, which cannot be read as text"))?;
    anyhow::ensure!(!text.trim().is_empty(), "{named}, which is blank; put the prompt into it or unset it");
    let bytes = text.len();
    anyhow::ensure!(
        bytes <= INSTRUCTIONS_BYTES_MAX,
        "{named}, which has {bytes} bytes; at most {INSTRUCTIONS_BYTES_MAX} are allowed"
    );
    let model = deployment.summaries.model.as_ref().unwrap_or(&deployment.model);
    let tokens = deployment.counter(model).text(&text);
    let tokens_max = deployment.windows.tokens(model) / INSTRUCTIONS_WINDOW_PART;
    anyhow::ensure!(
        tokens <= tokens_max,
        "{named}, which has about {tokens} tokens; at most {tokens_max} are allowed, a quarter of the window of \
         `{model}`"
    );
    Ok(Some(text.into()))
}

/// Like [`deployment`], for uses that do not need the model's window.
pub(crate) fn deployment_of(settings: &Settings, windows: Windows) -> Deployment {
    let (context, summaries) = (&settings.context, &settings.summaries);
    let (turns, tools) = (&settings.turns, &settings.tools);
    Deployment {
        model: settings.model.model_name().to_owned(),
        models_allowed: settings.model.models_allowed.clone(),
        output_tokens_max: settings.model.output_tokens_max,
        strategy: context.context_strategy.name.to_owned(),
        strategies: settings.strategies.clone(),
        instructions: settings.model.instructions.clone(),
        options: Options {
            threshold: context.context_compaction_threshold,
            max_output_tokens: settings.model.output_tokens_max,
            ..context.context_strategy.options.clone()
        },
        summaries: Summaries {
            model: summaries.summary_model.clone(),
            request: summaries.summary_request,
            timeout_ms: summaries.compaction_timeout_secs * 1000,
            writing: Writing::default(),
        },
        counter_of: Counter::for_model,
        cut_rules: &ByStrategy,
        windows,
        prices: settings.model.model_prices.clone(),
        prewarms: settings.model.cache_prewarm.is_on(),
        tool_timeout_ms: TOOL_TIMEOUT_MS,
        tool_rounds_max: u64::from(tools.tool_rounds_max),
        tool_parallel_max: TOOL_PARALLEL_MAX,
        turn_timeout_ms: (turns.turn_timeout_secs > 0).then(|| turns.turn_timeout_secs * 1000),
        models_take: BTreeMap::new(),
        tools_are_off: !tools.tools.is_on(),
        models_without_tools: BTreeSet::new(),
        models_writing_calls: BTreeSet::new(),
        server_tools: Tools::default(),
        history_tools: HistoryTools { offered: tools.history_tools, tools: Tools::default() },
        approvals: Policy::default(),
        approval_expiry_ms: tools.approval_expiry_secs * 1000,
        queue_items_max: turns.queue_items_max as usize,
        file_tools: FileTools::default(),
        hooks: Vec::new(),
        hook_timeout_ms: HOOK_TIMEOUT_MS,
        hook_away_ms: settings.hooks.hook_away_secs * 1000,
    }
}
