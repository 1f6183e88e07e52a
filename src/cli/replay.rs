//! `reseed replay`: plays recorded conversations under one or more policies and reports the results.

use super::{say, say_json};
use crate::{
    config::Settings,
    core::agent_loop::Deployment,
    replay::{
        Replay,
        policy::{OTHERS, Policy},
        read, report,
        summariser::{Named, Summariser},
    },
    service,
};
use anyhow::Context as _;
use clap::Args;
use reseed_protocol::SessionId;
use std::io::{IsTerminal as _, Write as _};

/// The policies that are compared if none are named.
const POLICIES: &[&str] = &["none", "threshold", "pi", "codex", "truncation", "sliding"];

/// The options of `reseed replay`.
#[derive(Debug, Args)]
pub(super) struct ReplayOptions {
    /// The conversations: files of JSON lines (the corpus form, arrays of OpenAI's messages), databases (sqlite://… or
    /// postgres://…, or a file), and `-` for standard input. Files of JSON lines may be gzipped.
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<String>,
    /// A policy: a strategy, such as `threshold`, alone or with settings of `set_context_strategy`, such as
    /// `threshold:keepRecentTokens=8000,target=0.5`; or the rules of another system: pi, codex, truncation, sliding.
    /// Repeat it for several; `none` never compacts.
    #[arg(long = "policy", value_name = "POLICY[:SETTING=VALUE,…]")]
    policies: Vec<String>,
    /// The context windows, in tokens. Without them, the window of the model.
    #[arg(
        long = "window",
        value_name = "TOKENS,…",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u64).range(512..)
    )]
    windows: Vec<u64>,
    /// Who writes the summaries.
    #[arg(long = "summariser", value_name = "NAME,…", value_delimiter = ',', default_value = "empty")]
    summarisers: Vec<Named>,
    /// The model whose tokenizer and prices are used; without it, that of the settings.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Of databases, replay this session only; repeat it for several.
    #[arg(long = "session", value_name = "ID")]
    only: Vec<SessionId>,
    /// Stop after this many conversations.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Also print a table for each conversation, and with --json every compaction.
    #[arg(long)]
    sessions: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(settings: &Settings, options: ReplayOptions) -> anyhow::Result<()> {
    let deployment = deployment(settings, options.model.as_deref());
    let named = if options.policies.is_empty() {
        POLICIES.iter().map(|name| (*name).to_owned()).collect()
    } else {
        options.policies.clone()
    };
    let policies = named.iter().map(|name| Policy::parse(name, &deployment)).collect::<anyhow::Result<Vec<_>>>()?;
    let summarisers = options.summarisers.iter().map(|name| summariser(*name, settings));
    let summarisers = summarisers.collect::<anyhow::Result<Vec<_>>>()?;
    let windows = match &options.windows[..] {
        [] => vec![deployment.windows.tokens(&deployment.model)],
        windows => windows.to_vec(),
    };
    let counter = deployment.counter(&deployment.model);
    let mut replay = Replay::new(&deployment, &windows, &policies, &summarisers, options.sessions);
    let is_watched = std::io::stderr().is_terminal();
    let mut notes = Vec::new();
    let limit = options.limit.unwrap_or(u64::MAX);
    for source in &options.sources {
        let mut source = read::open(source, &options.only, counter).await?;
        while replay.sessions < limit
            && let Some(read) = source.next().await
        {
            let recorded = match read {
                Ok(recorded) => recorded,
                Err(why) => {
                    tell(&why);
                    notes.push(why);
                    continue;
                }
            };
            let name = &recorded.name;
            if is_watched {
                tell(&format!("{}: conversation {} ({name})", source.name(), replay.sessions + 1));
            }
            for note in recorded.notes.iter().map(|note| format!("{name}: {note}")) {
                tell(&note);
                notes.push(note);
            }
            replay.play(&recorded).with_context(|| format!("replay {name}"))?;
        }
    }
    anyhow::ensure!(replay.sessions > 0, "no conversation could be read");
    if options.json {
        return say_json(&report::document(&replay, &notes));
    }
    print(&replay, &deployment);
    Ok(())
}

fn print(replay: &Replay, deployment: &Deployment) {
    for (name, lines) in report::sessions(replay) {
        say(name);
        lines.iter().for_each(|line| say(format!("  {line}")));
    }
    let counter = deployment.counter(&deployment.model);
    say(format!(
        "{} conversations, {} texts of {} tokens, counted for `{}` ({})",
        replay.sessions,
        replay.texts,
        report::thousands(replay.tokens),
        deployment.model,
        counter.method().name()
    ));
    report::table(replay).iter().for_each(say);
    say(report::LEGEND);
    for rules in OTHERS {
        if replay.runs.iter().any(|run| run.policy == rules.name) {
            say(format!("{:<22} {}", rules.name, rules.about));
        }
    }
}

/// Returns the deployment of these settings. The model of the replay is never asked, except by the summariser `model`.
fn deployment(settings: &Settings, model: Option<&str>) -> Deployment {
    let mut deployment = service::deployment_of(settings, service::windows_of(settings, Vec::new()));
    if let Some(model) = model {
        model.clone_into(&mut deployment.model);
    }
    deployment
}

fn summariser(name: Named, settings: &Settings) -> anyhow::Result<Summariser> {
    Ok(match name {
        Named::Empty => Summariser::Empty,
        Named::Quote => Summariser::Quote,
        Named::Recorded => Summariser::Recorded,
        Named::Model => Summariser::Model(service::provider(settings)?),
    })
}

/// Prints a line to standard error; a reader that has gone away is not an error.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "reseed: {}", super::terminal::marked(line));
}
