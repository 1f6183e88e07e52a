//! The order that the server sends to the helper on its standard input, and the helper's report.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Maximum bytes of an order: the arguments of a command, which the system limits to 2 MiB, escaped as JSON.
pub(super) const ORDER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Maximum bytes of a report: a message of the helper, which repeats at most one path.
pub(super) const REPORT_BYTES_MAX: u64 = 64 * 1024;

/// The order for the helper.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    /// The session's folder: an absolute path without symbolic links.
    pub(super) folder: PathBuf,
    /// True if the command is confined to the folder.
    pub(super) is_confined: bool,
    /// The limits of each process.
    pub(super) limits: Limits,
    /// The command; `None` only sets up the confinement, to find out whether that works here.
    pub(super) command: Option<Command>,
}

/// A command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Command {
    /// The program and its arguments.
    pub(super) argv: Vec<String>,
    /// The directory to start in, relative to the folder or an absolute path in it; `None` for the folder.
    pub(super) workdir: Option<String>,
}

/// Limits that the kernel enforces.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Limits {
    /// Bytes of memory of one process.
    pub(super) memory_bytes: u64,
    /// Bytes of the largest file.
    pub(super) file_bytes: u64,
    /// Processes and threads in addition to those that the user already has.
    pub(super) processes: u64,
    /// Seconds of processor time of one process.
    pub(super) cpu_secs: u64,
}

/// The outcome of an order. The helper writes it as one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Report {
    /// There was no command, and everything is set up.
    Ready,
    /// The command ended, with this exit code or with 128 plus the number of the signal.
    Ended(i32),
    /// The command could not be started.
    NotStarted(String),
    /// The confinement or a limit could not be set up, so nothing was started.
    NotConfined(String),
}
