//! `reseed replay`: plays recorded conversations under one or more policies and reports the results.

use super::{say, say_json};
use crate::{
    config::Settings,
    core::agent_loop::Deployment,
    replay::{
        Replay, Run,
        policy::{OTHERS, Policy},
        read, report,
        summariser::{Named, Summariser},
    },
    service,
};
use anyhow::Context as _;
use clap::Args;
use reseed_protocol::SessionId;
use std::{
    io::{IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

/// The policies that are compared if none are named.
const POLICIES: &[&str] = &["none", "threshold", "pi", "codex", "truncation", "sliding"];

/// The interval between updates of the progress line.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Maximum number of notes that are printed one by one. Of the others, only the number is printed.
const NOTES_MAX: usize = 20;

/// The options of `reseed replay`.
#[derive(Debug, Args)]
pub(super) struct ReplayOptions {
    /// What to replay: files of JSON lines (the corpus form, arrays of OpenAI's messages), session files of pi,
    /// databases (sqlite://… or postgres://…, or a file), and `-` for standard input. Files may be gzipped.
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<String>,
    /// A policy: a strategy, such as `threshold`, alone or with settings of `set_context_strategy`, such as
    /// `threshold:keepRecentTokens=8000,target=0.5`; or the rules of another system: pi, codex, truncation, sliding.
    /// Repeat it for several; `none` never compacts.
    #[arg(long = "policy", value_name = "POLICY[:SETTING=VALUE,…]")]
    policies: Vec<String>,
    /// The context windows, in tokens. Without them, the window of the model.
    #[arg(long = "window", value_name = "TOKENS,…", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(512..))]
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
    let mut progress = Progress::new();
    let mut notes = Vec::new();
    let limit = options.limit.unwrap_or(u64::MAX);
    let mut told = |progress: &mut Progress, note: String| {
        if notes.len() < NOTES_MAX {
            progress.tell(&note);
        }
        notes.push(note);
    };
    for source in &options.sources {
        let mut source = read::open(source, &options.only, counter).await?;
        while replay.sessions < limit
            && let Some(read) = source.next().await
        {
            let recorded = match read {
                Ok(recorded) => recorded,
                Err(why) => {
                    told(&mut progress, why);
                    continue;
                }
            };
            let name = recorded.name.clone();
            recorded.notes.iter().for_each(|note| told(&mut progress, format!("{name}: {note}")));
            let (number, runs) = (replay.sessions + 1, replay.runs.len());
            let mut at = 0;
            replay
                .play(&recorded, |run| {
                    at += 1;
                    progress.show(source.name(), number, &name, run, (at, runs));
                })
                .with_context(|| format!("replay {name}"))?;
        }
    }
    progress.end();
    if notes.len() > NOTES_MAX {
        progress.tell(&format!("and {} more remarks; --json lists all", notes.len() - NOTES_MAX));
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

/// A line on the terminal with the replay's progress. Nothing is shown if standard error is not a terminal.
struct Progress {
    is_shown: bool,
    changed_at: Option<Instant>,
}

impl Progress {
    fn new() -> Self {
        Self { is_shown: std::io::stderr().is_terminal(), changed_at: None }
    }

    fn show(&mut self, source: &str, number: u64, name: &str, run: &Run, (at, runs): (usize, usize)) {
        let is_due = self.changed_at.is_none_or(|at| at.elapsed() >= PROGRESS_EVERY);
        if !self.is_shown || !is_due {
            return;
        }
        self.changed_at = Some(Instant::now());
        const WIDTH: usize = 20;
        let done = WIDTH * (at - 1) / runs.max(1);
        let bar = format!("{}{}", "#".repeat(done), ".".repeat(WIDTH - done));
        let line = format!("[{bar}] {source}: conversation {number} ({name}), {} in {}", run.policy, run.window_tokens);
        let line: String = super::terminal::marked(&line).chars().take(100).collect();
        let _ = write!(std::io::stderr(), "\r\u{1b}[K{line}");
    }

    /// Prints a remark.
    fn tell(&mut self, note: &str) {
        self.end();
        let _ = writeln!(std::io::stderr(), "reseed: {}", super::terminal::marked(note));
    }

    fn end(&mut self) {
        if self.is_shown && self.changed_at.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}
