//! An MCP server over standard input and output with the tools `shell` and `apply_patch`, which work in a folder of the
//! session. `README.md` beside this file explains how commands are confined, and what that does not protect against.
//!
//! Invariants:
//! - a command never has more rights than the flags say: if the confinement cannot be set up, nothing runs;
//! - no process of a command remains when its call has ended, however it ended.
#![cfg(target_os = "linux")]

mod folders;
mod helper;
mod kept;
mod landlock;
mod limits;
mod mcp;
mod options;
mod order;
mod patch;
mod run;
mod shell;
mod syscalls;
mod tools;

use clap::Parser as _;
use options::Options;
use shell::Shell;
use std::{process::ExitCode, sync::Arc, time::Duration};

/// How long the end of the server waits for running removals.
const ENDING_MAX: Duration = Duration::from_secs(10);

/// Runs the server until its input ends; errors go to standard error.
#[must_use]
pub fn main() -> ExitCode {
    // The helper runs without a runtime, because the rights that it gives up are those of the calling thread.
    if std::env::args_os().nth(1).is_some_and(|first| first == run::HELPER) {
        return helper::run();
    }
    match serve(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reseed-shell: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &Options) -> Result<(), shell::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(shell::Error::Io)?;
    let served = runtime.block_on(async {
        mcp::serve(Arc::new(Shell::open(options).await?), options.shared).await.map_err(shell::Error::Io)
    });
    // Folders of deleted sessions are still removed. A pending read of standard input must not keep the process alive.
    runtime.shutdown_timeout(ENDING_MAX);
    served
}
