//! The process of an MCP server over stdio: its environment, its process group, and its end.
//!
//! Invariants:
//! - It gets the variables of [`INHERITED`] and those of its `env`, and therefore none of this server's own secrets.
//! - It leads its own process group, and the whole group ends with it, so a launcher such as `npx` leaves nothing
//!   behind. The exceptions are processes that leave the group (daemons), and a loss of power.
//! - Its standard error is read to the end and never logged, because it may contain keys and conversation text. The
//!   last bytes are kept in memory for `reseed check`.

use super::file::Program;
use std::{
    collections::VecDeque,
    io,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::AsyncReadExt as _,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
    time::timeout,
};

/// The variables that a server inherits. Programs need them to find themselves and their user. MCP's own libraries
/// choose the same ones; the language and the time zone are added.
#[cfg(not(windows))]
pub(super) const INHERITED: &[&str] =
    &["HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];
#[cfg(windows)]
pub(super) const INHERITED: &[&str] = &[
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
];

/// The time limit for a server to end after its input was closed, as MCP prescribes, before it gets SIGTERM.
const INPUT_GRACE: Duration = Duration::from_secs(2);

/// The time limit to end after SIGTERM, before SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// The time limit for reading the rest of standard error.
const STDERR_GRACE: Duration = Duration::from_millis(500);

/// The interval at which a group without its leader is checked.
#[cfg(unix)]
const LOOK: Duration = Duration::from_millis(20);

/// Bytes of standard error that are kept, enough for the end of a stack trace.
const STDERR_BYTES_MAX: usize = 4 * 1024;

/// The last bytes of a process's standard error.
#[derive(Debug, Clone, Default)]
pub(super) struct Stderr(Arc<Mutex<VecDeque<u8>>>);

impl Stderr {
    /// Returns the kept bytes as text.
    pub(super) fn text(&self) -> String {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(kept.make_contiguous()).trim().to_owned()
    }

    /// Reads until the last holder of the pipe has closed it.
    async fn read(self, mut pipe: ChildStderr) {
        let mut buffer = [0; 1024];
        while let Ok(bytes @ 1..) = pipe.read(&mut buffer).await {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(&buffer[..bytes]);
            let excess = kept.len().saturating_sub(STDERR_BYTES_MAX);
            kept.drain(..excess);
        }
    }
}

/// A running process, and its group.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    group: Group,
    stderr: Stderr,
    /// The task that reads standard error.
    reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a program.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn start(program: &Program) -> io::Result<(Self, ChildStdout, ChildStdin)> {
        let mut command = Command::new(&program.command);
        command.args(&program.args).current_dir(&program.cwd).env_clear();
        command.envs(INHERITED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)))).envs(&program.env);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        let missing = || io::Error::other("a pipe of the process is missing");
        let (stdin, stdout) = (child.stdin.take().ok_or_else(missing)?, child.stdout.take().ok_or_else(missing)?);
        let stderr = Stderr::default();
        let reader = child.stderr.take().map(|pipe| tokio::spawn(stderr.clone().read(pipe)));
        let group = Group::led_by(&child);
        Ok((Self { child, group, stderr, reader }, stdout, stdin))
    }

    /// Returns the last part of its standard error.
    pub(super) fn stderr(&self) -> Stderr {
        self.stderr.clone()
    }

    /// Waits until the process ends, and describes how it ended.
    pub(super) async fn ended(&mut self) -> String {
        self.child.wait().await.map_or_else(|error| format!("cannot be waited for: {}", error.kind()), how)
    }

    /// Ends the process, whose input is already closed. Sends SIGTERM after a while, and SIGKILL after another. Then
    /// ends the rest of its group in the same way. Takes some seconds at most.
    pub(super) async fn end(mut self) {
        if timeout(INPUT_GRACE, self.child.wait()).await.is_err() {
            self.group.terminate();
            if timeout(TERM_GRACE, self.child.wait()).await.is_err() {
                self.group.kill();
                // Without a group, this kills the process.
                let _ = self.child.start_kill();
                let _ = timeout(TERM_GRACE, self.child.wait()).await;
            }
        }
        self.group.end().await;
        if let Some(reader) = self.reader {
            // A process that has left the group may still hold the pipe.
            let _ = timeout(STDERR_GRACE, reader).await;
        }
    }
}

/// Describes how a process ended.
fn how(status: ExitStatus) -> String {
    // On Unix, this also gives the number of a signal.
    match status.code() {
        Some(code) => format!("ended with code {code}"),
        None => format!("was ended by a {status}"),
    }
}

/// The group of a process, which is killed on drop.
#[derive(Debug)]
struct Group {
    #[cfg(unix)]
    leader: Option<rustix::process::Pid>,
}

#[cfg(unix)]
impl Group {
    fn led_by(child: &Child) -> Self {
        let leader = child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
        Self { leader }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(leader) = self.leader {
            // It may have ended already.
            let _ = rustix::process::kill_process_group(leader, signal);
        }
    }

    fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    fn kill(&self) {
        self.signal(rustix::process::Signal::KILL);
    }

    fn is_gone(&self) -> bool {
        self.leader.is_none_or(|leader| rustix::process::test_kill_process_group(leader).is_err())
    }

    /// Ends what remains of the group without its leader.
    async fn end(mut self) {
        if !self.is_gone() {
            self.terminate();
            let gone = async {
                while !self.is_gone() {
                    tokio::time::sleep(LOOK).await;
                }
            };
            if timeout(TERM_GRACE, gone).await.is_err() {
                self.kill();
            }
        }
        // From now on, its number may belong to another process.
        self.leader = None;
    }
}

#[cfg(unix)]
impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(not(unix))]
impl Group {
    fn led_by(_: &Child) -> Self {
        Self {}
    }

    fn terminate(&self) {}

    fn kill(&self) {}

    async fn end(self) {}
}
