//! The command line: `serve` (the default), `chat`, `check`, `health`, `sessions`, `inspect`, `import`, `export`,
//! `usage`, `audit`, `nodes`, `migrate`, `backup`, `restored`, `vacuum`, `replay`.

mod audit;
mod backup;
mod chat;
mod check;
mod descriptors;
pub(crate) mod export;
mod health;
pub(crate) mod import;
mod inspect;
mod migrate;
mod nodes;
mod replay;
mod restored;
mod serve;
mod sessions;
mod terminal;
mod tree;
mod usage;
mod vacuum;

use crate::config::{self, Settings};
use clap::{Parser, Subcommand};
use std::{io::Write as _, process::ExitCode};

/// A WebSocket server that keeps LLM conversations inside the model's context window indefinitely.
///
/// Without an API key it runs on a built-in offline model: start it and open the page that it prints.
#[derive(Debug, Parser)]
#[command(name = "reseed", version, after_long_help = config::help())]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server. This is the default command. Settings come from the environment and `.env`; `reseed --help`
    /// lists them.
    Serve,
    /// Check the settings and the model with one short request, and print what was found, including its window.
    Check,
    /// Check that a running server is healthy; the exit code says so. For containers.
    Health,
    /// List the sessions in the database, newest first; also while a server uses it.
    Sessions(sessions::SessionsOptions),
    /// Show what requests to models cost, by user, model, day or session, deleted sessions included; also while a
    /// server uses the database.
    Usage(usage::UsageOptions),
    /// Show the last lines of the audit log (AUDIT_FILE), or verify its chain.
    Audit(audit::AuditCommand),
    /// List the servers that share the database (PostgreSQL). One that was killed stays listed for an hour, as silent.
    Nodes(nodes::NodesOptions),
    /// Show the tree of a session, or what its next request would send; also while a server uses its database.
    Inspect(inspect::InspectOptions),
    /// Import sessions from pi's session files. On SQLite the server must not be running; on PostgreSQL servers may be.
    Import(import::ImportCommand),
    /// Export a session as a file that pi can read; also while the server is running.
    Export(export::ExportCommand),
    /// Carry all sessions from one database to another, such as from SQLite to PostgreSQL, and verify them. The servers
    /// must not be running.
    ///
    /// Make a backup of the source first, and stop every server that uses either database. The target must be new or
    /// empty. Everything that a session holds is copied, read back and compared; only the search index is left to the
    /// server that starts on the target. The source's sessions stay as they are. Clients load their sessions anew once.
    ///
    /// If this is interrupted or fails, the target cannot be used: no server starts on it. Delete the file or drop the
    /// schema, and run the command again: it starts over, into an empty database.
    ///
    /// Addresses are those of DATABASE_URL, such as sqlite://data/reseed.db or postgres://user:password@host/reseed.
    /// `@FILE` reads one from a file, so that its password is not in the list of processes. STORE_PATIENCE_SECS
    /// holds for both.
    Migrate(migrate::MigrateCommand),
    /// Write a backup of the database into a new file (SQLite); also while a server uses it.
    ///
    /// The backup is of one moment, and can be used as the database. It has no text of deleted sessions, and no search
    /// index, which the server builds again. It needs twice the space of the database for a while.
    Backup(backup::BackupOptions),
    /// Record that the database was restored from a backup, so that clients load their sessions again. The servers must
    /// not be running.
    ///
    /// A client may have seen more than the backup holds. Once a session has grown past the client's place, nothing
    /// shows that its records differ. So every session gets a new epoch, the name of its log, and clients take a
    /// snapshot instead of what follows their place. Of a PostgreSQL database, the servers and tickets of the backup's
    /// time are removed too. Doing this twice is harmless.
    Restored,
    /// Rewrite the database so that it is as short as it can be, and can shrink while it is in use. The server must not
    /// be running. Needed once for a database that an older version created.
    Vacuum,
    /// Replay recorded conversations under one or more policies, and report what became of them. Nothing is sent or
    /// stored.
    ///
    /// The conversations are played through the server's own code: what is counted, compacted and kept is what the
    /// server would count, compact and keep. Each policy is played with each window and each summariser. The recorded
    /// answers are given, whatever the context.
    Replay(replay::ReplayOptions),
    /// Chat with a running server in the terminal, or through pipes.
    Chat(chat::ChatOptions),
}

/// Runs the command; errors go to standard error.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("start the runtime: {error}")),
    };
    let outcome = runtime.block_on(async {
        match cli.command.unwrap_or(Command::Serve) {
            Command::Serve => serve::run(Settings::load()?).await,
            Command::Check => check::run(&Settings::load()?).await,
            Command::Import(command) => import::run(&Settings::load()?, command).await,
            Command::Export(command) => export::run(&Settings::load()?, command).await,
            Command::Migrate(command) => migrate::run(&Settings::load()?, command).await,
            Command::Restored => restored::run(&Settings::load()?).await,
            Command::Nodes(options) => nodes::run(&Settings::load()?, options).await,
            Command::Vacuum => vacuum::run(&Settings::load()?).await,
            Command::Health => health::run(&Settings::load()?).await,
            Command::Sessions(options) => sessions::run(&Settings::load()?, options).await,
            Command::Usage(options) => usage::run(&Settings::load()?, options).await,
            Command::Replay(options) => replay::run(&Settings::load()?, options).await,
            Command::Backup(options) => backup::run(&Settings::load()?, options).await,
            // It reads files, and errors in other settings do not stop it.
            Command::Audit(command) => audit::run(command),
            Command::Inspect(options) => inspect::run(&Settings::load()?, options).await,
            // A client: it reads only where the server listens, and errors in other settings do not stop it.
            Command::Chat(options) => chat::run(options).await,
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{error:#}")),
    }
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "reseed: {error}");
    ExitCode::FAILURE
}

/// Formats an amount of money: to a hundredth of a cent, or if less than a cent, to a ten-thousandth.
fn dollars(nano_usd: u64) -> String {
    const CENT: u64 = 10_000_000;
    let decimals = if nano_usd < CENT { 6 } else { 4 };
    let unit = 10_u64.pow(9 - decimals);
    let units = nano_usd / unit + u64::from(nano_usd % unit >= unit / 2);
    let one = 10_u64.pow(decimals);
    format!("${}.{:0width$}", units / one, units % one, width = decimals as usize)
}

/// Prints a line of a command's output; a reader that has gone away is not an error.
fn say(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{}", terminal::marked(&line.to_string()));
}

/// Prints a value as a line of JSON.
fn say_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let _ = writeln!(std::io::stdout(), "{}", terminal::escaped(&serde_json::to_string(value)?));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::dollars;

    #[test]
    fn small_amounts_have_more_decimals() {
        for (nano, expected) in [
            (0, "$0.000000"),
            (1_499, "$0.000001"),
            (1_500, "$0.000002"),
            (9_999_999, "$0.010000"),
            (10_000_000, "$0.0100"),
            (12_345_678_901, "$12.3457"),
            (u64::MAX, "$18446744073.7096"),
        ] {
            assert_eq!(dollars(nano), expected, "{nano}");
        }
    }
}
