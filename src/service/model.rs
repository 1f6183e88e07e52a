//! Determines the model and its window from the settings and the model server's list.
//!
//! A self-hosted server is queried at the start if the settings leave the model or its window open. If it is down or
//! still loading, the start waits for it, because every guess would be wrong. Other servers are queried too, but the
//! start never waits for their list.
//!
//! | MODEL | the server's list | what follows |
//! | --- | --- | --- |
//! | unset | one model | it is taken |
//! | unset | several, and `gpt-4.1-mini` is one of them | that one, as with OpenAI itself |
//! | unset | several others, or none | the start ends and names them |
//! | set | has it | it is taken |
//! | set | lacks it, and its window is known | it is taken, with a warning: routers take unlisted names |
//! | set | lacks it | the start ends and names what is listed |
//! | any | cannot be read | what the settings say is taken, with a warning |

use crate::{
    config::{ProviderKind, Settings},
    core::{context::windows::Windows, model::ModelFault},
    provider::{
        ListedModel, Provider, anthropic::is_dated, fault::fault, openai::OPENAI_BASE_URL, retry::is_transient,
    },
    server::{Closed, Tls},
};
use reseed_protocol::ErrorCode;
use std::{sync::Arc, time::Duration};
use tokio::{net::TcpListener, time::Instant};

/// The time limit for the provider's model list. Without the list, the table of known models is used.
const LIST_TIME: Duration = Duration::from_secs(5);

/// The interval between queries while waiting for a server. Loading a model takes seconds to minutes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The interval between log lines while waiting for a server.
const WAIT_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of models that an error or a warning names.
const NAMED_MAX: usize = 20;

/// The models that the server lists, or the reason why it lists none.
pub(crate) type List = Result<Vec<ListedModel>, ModelFault>;

/// Fetches the model list.
pub(crate) async fn list(provider: &dyn Provider) -> List {
    let timed_out = || fault(ErrorCode::UpstreamTimeout, &format!("no list within {} s", LIST_TIME.as_secs()));
    tokio::time::timeout(LIST_TIME, provider.models()).await.unwrap_or_else(|_| Err(timed_out()))
}

/// Fetches the model list. If a self-hosted server that must be queried is down, this waits for it, and tells clients
/// that connect meanwhile.
pub(super) async fn list_once_there(
    settings: &Settings,
    provider: &dyn Provider,
    listeners: &[TcpListener],
    tls: Option<Arc<Tls>>,
) -> List {
    let mut listed = list(provider).await;
    if !must_be_asked(settings) {
        return listed;
    }
    let scheme = if tls.is_some() { "https" } else { "http" };
    let closed = Closed::new(tls);
    let waiting = async {
        let mut told_at: Option<Instant> = None;
        loop {
            let fault = match listed {
                Err(fault) if is_transient(fault.code) || fault.code == ErrorCode::UpstreamTimeout => fault,
                listed => return listed,
            };
            if told_at.is_none_or(|told_at| told_at.elapsed() >= WAIT_LOG_INTERVAL) {
                let open_at = listeners.first().and_then(|listener| listener.local_addr().ok());
                let open_at = open_at.map_or_else(String::new, |at| format!(" {scheme}://{at} says so meanwhile."));
                tracing::warn!(
                    "waiting for the model server at {}, which is asked for its models every {} s: {}{open_at} The \
                     start does not wait if MODEL and CONTEXT_WINDOW are set",
                    address(settings),
                    LOOK_EVERY.as_secs(),
                    absence(&fault)
                );
                told_at = Some(Instant::now());
            }
            closed.because(format!("waiting for the model server: {}", absence(&fault)));
            tokio::time::sleep(LOOK_EVERY).await;
            listed = list(provider).await;
            if listed.is_ok() {
                tracing::info!("the model server is up");
            }
        }
    };
    tokio::select! {
        listed = waiting => listed,
        never = closed.answer(listeners) => match never {},
    }
}

/// Explains why the start waits for a server.
fn absence(fault: &ModelFault) -> &str {
    match fault.code {
        // llama.cpp, vLLM and LM Studio give this answer until their model is loaded.
        ErrorCode::UpstreamOverloaded => "It is not ready: it is still loading its model, or is overloaded.",
        _ => &fault.message,
    }
}

/// Returns the settings. If they name no model, the server's list decides.
///
/// # Errors
/// The list leaves open which model is meant, or lacks the one that the settings name.
pub(crate) fn chosen(settings: &Settings, listed: &List) -> anyhow::Result<Settings> {
    let mut settings = settings.clone();
    if !is_own(&settings) {
        return Ok(settings);
    }
    let Ok(listed) = listed else {
        if settings.model.model.is_none() {
            let name = settings.model.model_name();
            tracing::warn!("MODEL is unset and the model server does not list its models: `{name}` is assumed");
        }
        return Ok(settings);
    };
    let at = address(&settings).to_owned();
    let Some(name) = settings.model.model.clone() else {
        let other = settings.model.other_provider();
        let is_own = |id: &str| other.is_none_or(|other| !id.starts_with(other.prefix()));
        let chatting: Vec<&ListedModel> =
            listed.iter().filter(|model| is_own(&model.id) && !only_embeds(&model.id)).collect();
        let usual = settings.model.model_name();
        match &chatting[..] {
            [] => anyhow::bail!("the model server at {at} lists no model: load one, or set MODEL"),
            [only] => settings.model.model = Some(only.id.clone()),
            several if several.iter().any(|model| model.id == usual) => {}
            several => anyhow::bail!(
                "the model server at {at} lists {} models; set MODEL to one of them: {}",
                several.len(),
                names(several)
            ),
        }
        return Ok(settings);
    };
    let all: Vec<&ListedModel> = listed.iter().collect();
    for (variable, name) in [("MODEL", Some(&name)), ("SUMMARY_MODEL", settings.summaries.summary_model.as_ref())] {
        let Some(name) = name.filter(|name| !all.is_empty() && !all.iter().any(|model| is_same(&model.id, name)))
        else {
            continue;
        };
        let unlisted =
            format!("{variable} is `{name}`, which the model server at {at} does not list; it lists {}", names(&all));
        anyhow::ensure!(
            variable != "MODEL" || has_window(&settings, name) || is_known(name),
            "{unlisted}. If it takes names that it does not list, set CONTEXT_WINDOW"
        );
        tracing::warn!("{unlisted}");
    }
    Ok(settings)
}

/// Returns true if a self-hosted server must be queried before sessions can start.
fn must_be_asked(settings: &Settings) -> bool {
    let is_told = settings.model.model.as_ref().is_some_and(|model| has_window(settings, model));
    is_own(settings) && !is_told
}

/// Returns true if the settings give this model's window.
fn has_window(settings: &Settings, model: &str) -> bool {
    settings.context.context_window.is_some() || settings.context.model_windows.contains_key(model)
}

/// Returns true if the table of known models contains this model's window.
fn is_known(model: &str) -> bool {
    Windows::new(None, Vec::new()).window(model).is_some()
}

/// Returns true if the model server is not OpenAI itself, whose models are known.
fn is_own(settings: &Settings) -> bool {
    let address = settings.model.openai_base_url.as_deref();
    settings.model.provider() == ProviderKind::OpenAi
        && address.is_some_and(|address| address.trim_end_matches('/') != OPENAI_BASE_URL)
}

fn address(settings: &Settings) -> &str {
    settings.model.address_of(settings.model.provider())
}

/// Returns true if a listed name means the given model. Ollama adds `:latest`, Anthropic a date, Gemini's list puts
/// `models/` before its names, and routers list patterns (`openai/*`) and accept variants of listed names
/// (`name:nitro`).
pub(super) fn is_same(listed: &str, name: &str) -> bool {
    let bare = listed.strip_prefix("models/").unwrap_or(listed);
    let matches = |name: &str| match bare.split_once('*') {
        Some((before, after)) => name.starts_with(before) && name.ends_with(after),
        None => bare == name || bare.strip_suffix(":latest") == Some(name),
    };
    listed == name
        || matches(name)
        || is_dated(bare, name)
        || name.rsplit_once(':').is_some_and(|(base, _)| bare == base)
}

/// Returns true if a model makes only embeddings. LM Studio lists one beside every model.
fn only_embeds(id: &str) -> bool {
    id.to_ascii_lowercase().contains("embed")
}

fn names(models: &[&ListedModel]) -> String {
    let shown: Vec<String> = models.iter().take(NAMED_MAX).map(|model| format!("`{}`", model.id)).collect();
    let more = models.len().saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    shown.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::Takes;

    fn settings(set: &[(&str, &str)]) -> Settings {
        let own = [("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")];
        let all = own.iter().chain(set).map(|(name, value)| (name.to_string(), value.to_string()));
        Settings::from_iter(all).unwrap()
    }

    fn listed(names: &[&str]) -> List {
        let takes = Takes::default();
        Ok(names.iter().map(|id| ListedModel { id: (*id).to_owned(), window_tokens: None, takes }).collect())
    }

    #[test]
    fn the_list_decides_what_the_settings_leave_open() {
        let (none, any): (&[(&str, &str)], &[&str]) = (&[], &["qwen3:8b", "smol"]);
        let many: Vec<String> = (0..30).map(|n| format!("m{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (set, names, expected) in [
            (none, &["smol"][..], Ok("smol")),
            (none, &["smol", "text-embedding-nomic-v1.5"], Ok("smol")),
            (none, &["other", "gpt-4.1-mini"], Ok("gpt-4.1-mini")),
            (none, any, Err("lists 2 models; set MODEL to one of them: `qwen3:8b`, `smol`")),
            (none, &[], Err("lists no model")),
            (none, &many, Err("`m19` and 10 more")),
            (&[("OPENAI_BASE_URL", OPENAI_BASE_URL), ("OPENAI_API_KEY", "k")], any, Ok("gpt-4.1-mini")),
            (&[("MODEL", "smol")], any, Ok("smol")),
            (
                &[("MODEL", "smoll")],
                any,
                Err(
                    "MODEL is `smoll`, which the model server at http://127.0.0.1:9/v1 does not list; it lists `qwen3:8b`, `smol`",
                ),
            ),
            (&[("MODEL", "gpt-4o")], any, Ok("gpt-4o")),
            (&[("MODEL", "smoll"), ("CONTEXT_WINDOW", "4096")], any, Ok("smoll")),
            (&[("MODEL", "smoll"), ("MODEL_WINDOWS", "smoll=4096")], any, Ok("smoll")),
            (&[("MODEL", "smoll"), ("MODEL_WINDOWS", "smol=4096")], any, Err("it lists")),
            (&[("MODEL", "smoll")], &[], Ok("smoll")),
            (&[("MODEL", "smol"), ("SUMMARY_MODEL", "other")], any, Ok("smol")),
            (&[("MODEL", "llama3")], &["llama3:latest"], Ok("llama3")),
            (&[("MODEL", "gemini-9")], &["models/gemini-9"], Ok("gemini-9")),
            (&[("MODEL", "openai/gpt-9")], &["openai/*"], Ok("openai/gpt-9")),
            (&[("MODEL", "a/b:nitro")], &["a/b"], Ok("a/b:nitro")),
            (&[("MODEL", "a/b-2")], &["a/b"], Err("does not list")),
            (&[("MODEL", "claude-9")], &["claude-9-20280101"], Ok("claude-9")),
            (&[("ANTHROPIC_API_KEY", "k")], &["smol", "anthropic/claude-9"], Ok("smol")),
        ] {
            let chosen = chosen(&settings(set), &listed(names));
            match (chosen, expected) {
                (Ok(chosen), Ok(expected)) => assert_eq!(chosen.model.model_name(), expected, "{set:?} {names:?}"),
                (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
                (chosen, expected) => panic!("{set:?} {names:?}: {chosen:?}, not {expected:?}"),
            }
        }
        let unread = || Err(fault(ErrorCode::UpstreamNotFound, "no list"));
        for (set, expected) in [(none, "gpt-4.1-mini"), (&[("MODEL", "smol")], "smol")] {
            assert_eq!(chosen(&settings(set), &unread()).unwrap().model.model_name(), expected);
        }
    }

    #[test]
    fn a_server_is_waited_for_only_if_it_must_be_asked() {
        let window = ("CONTEXT_WINDOW", "4096");
        for (set, expected) in [
            (&[][..], true),
            (&[("MODEL", "smol")], true),
            (&[("MODEL", "gpt-4o")], true),
            (&[window], true),
            (&[("MODEL", "smol"), window], false),
            (&[("MODEL", "smol"), ("MODEL_WINDOWS", "smol=4096")], false),
            (&[("MODEL", "offline")], false),
            (&[("OPENAI_BASE_URL", "https://api.openai.com/v1/"), ("OPENAI_API_KEY", "k")], false),
        ] {
            assert_eq!(must_be_asked(&settings(set)), expected, "{set:?}");
        }
    }
}
