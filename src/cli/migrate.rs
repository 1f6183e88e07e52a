//! `reseed migrate`: copies all sessions from one database to another.

use super::say;
use crate::{
    config::{Database, Settings},
    store::migrate::{Migrated, Options, Progress, Size, migrate},
};
use anyhow::Context as _;
use clap::Args;
use std::{
    fs,
    io::Write as _,
    time::{Duration, Instant},
};

/// The interval between two lines about the progress.
const INTERVAL: Duration = Duration::from_secs(2);

/// The options of `reseed migrate`.
#[derive(Debug, Args)]
pub(super) struct MigrateCommand {
    /// The database to read: its address, or @FILE.
    from: String,
    /// The database to write to: its address, or @FILE.
    to: String,
    /// Leave out sessions that are damaged, and name them. Without this, the migration fails and names them.
    #[arg(long)]
    skip_damaged: bool,
}

/// Copies the sessions and prints what was verified. Progress goes to standard error.
pub(super) async fn run(settings: &Settings, command: MigrateCommand) -> anyhow::Result<()> {
    let from = database(settings, &command.from).context("FROM")?;
    let to = database(settings, &command.to).context("TO")?;
    tell(&format!("from {from} to {to}; keep a backup of the source until the target has proven itself"));
    let began = Instant::now();
    let mut told = None;
    let mut progress = |progress: &Progress| match progress {
        Progress::Watching { side, servers, secs } => {
            tell(&format!("the {side} lists {servers}; watching for {secs} s whether it is still alive"));
        }
        // The first line comes at once: it says how much there is.
        Progress::Copying { of, done } if told.is_none_or(|told: Instant| told.elapsed() >= INTERVAL) => {
            told = Some(Instant::now());
            tell(&progress_line(*of, *done, began.elapsed()));
        }
        Progress::Copying { .. } => {}
    };
    let done = migrate(&from, &to, Options { skip_damaged: command.skip_damaged }, &mut progress).await;
    report(&done.context("the migration is not complete")?, &to);
    Ok(())
}

fn database(settings: &Settings, address: &str) -> anyhow::Result<Database> {
    let text = match address.strip_prefix('@') {
        Some(file) => fs::read_to_string(file).with_context(|| match file.contains([':', '@', '=']) {
            // This is an address with a superfluous `@`.
            true => "read the file whose name is behind `@`".to_owned(),
            false => format!("read the file {file}"),
        })?,
        None => address.to_owned(),
    };
    Ok(settings.store.database_at(&text.trim_end_matches(['\r', '\n']).parse()?))
}

fn progress_line(of: Size, done: Size, elapsed: Duration) -> String {
    // The minimum of a millisecond keeps the first rate finite.
    let rate = done.records as f64 / elapsed.as_secs_f64().max(0.001);
    format!(
        "{} of {} sessions, {} of {} records, {rate:.0} records/s",
        done.sessions, of.sessions, done.records, of.records
    )
}

fn report(done: &Migrated, to: &Database) {
    let Size { sessions, records, marks } = done.verified;
    say(format!(
        "verified    {sessions} sessions, {records} records, {marks} commands' marks: each was read back and is the \
         same in both databases"
    ));
    if done.damaged.count > 0 {
        say(format!("left out    {} damaged sessions: {}", done.damaged.count, done.damaged));
    }
    say(format!("complete    start the server with DATABASE_URL for {to}"));
}

/// Prints a line of progress; a reader that has gone away is not an error.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "reseed: {line}");
}
