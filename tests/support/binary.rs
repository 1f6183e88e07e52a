//! The real binary, run as users run it: in its own directory, on a free port, with its own environment.

use super::fixed;
use std::{fs, path::Path, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

/// The time limit of the binary on a machine that is busy with other tests; only a failing test reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The log file in the server's directory.
pub(crate) const LOG: &str = "log";

/// A running server; killed on drop.
pub(crate) struct Binary {
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    /// The line with the address.
    pub(crate) start_line: String,
    child: Child,
    /// Kept so that later output has somewhere to go.
    printed: Lines<BufReader<ChildStdout>>,
}

/// The result of a finished command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) printed: String,
    pub(crate) faults: String,
}

fn command(folder: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reseed"));
    command.args(arguments);
    configured(command, folder, settings)
}

fn configured(mut command: Command, folder: &Path, settings: &[(&str, &str)]) -> Command {
    command.current_dir(folder).env_clear().env("WS_PORT", "0");
    command.envs(fixed::variables(settings));
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs `reseed ARGUMENTS…` to completion.
pub(crate) async fn run(folder: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Ended {
    let output = timeout(PATIENCE, command(folder, arguments, settings).output());
    let output = output.await.unwrap_or_else(|_| panic!("{arguments:?} with {settings:?} did not end")).unwrap();
    Ended {
        code: output.status.code(),
        printed: String::from_utf8(output.stdout).unwrap(),
        faults: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Binary {
    /// Starts a server in this directory and waits for the line with its address.
    pub(crate) async fn start(folder: &Path, settings: &[(&str, &str)]) -> Self {
        Self::started(folder, command(folder, &[], settings)).await
    }

    /// Like [`Self::start`], with another build of the server.
    pub(crate) async fn start_other(program: &Path, folder: &Path, settings: &[(&str, &str)]) -> Self {
        let mut command = configured(Command::new(program), folder, settings);
        // An older one reads its constants from variables of their own.
        command.envs(settings.iter().copied());
        Self::started(folder, command).await
    }

    /// Like [`Self::start`], with a limit on the size of files in KiB, as on a full disk.
    pub(crate) async fn start_with_file_limit(folder: &Path, settings: &[(&str, &str)], kib: u64) -> Self {
        // Without the trap the system's signal would end the process; with it, the write fails. POSIX shells count the
        // limit in blocks of 512 bytes.
        let script = format!("trap '' XFSZ; ulimit -f {} && exec \"$0\"", kib * 2);
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_reseed")]);
        Self::started(folder, configured(shell, folder, settings)).await
    }

    async fn started(folder: &Path, mut command: Command) -> Self {
        let log = fs::File::options().create(true).append(true).open(folder.join(LOG)).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
        let start_line = timeout(PATIENCE, printed.next_line()).await.expect("the server starts in time").unwrap();
        let start_line = start_line.unwrap_or_else(|| panic!("the server does not start: {}", logged(folder)));
        let address = start_line.split("://").nth(1).and_then(|rest| rest.split(' ').next());
        let address = address.unwrap_or_else(|| panic!("no address in {start_line:?}")).to_owned();
        Self { address, start_line, child, printed }
    }

    /// Returns the socket's address.
    pub(crate) fn ws(&self) -> String {
        format!("ws://{}/ws", self.address)
    }

    /// Returns the next line printed after the start line.
    pub(crate) async fn next_line(&mut self) -> String {
        let line = timeout(PATIENCE, self.printed.next_line()).await.expect("it prints a line in time");
        line.unwrap().expect("it prints more lines")
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Asks it to stop.
    pub(crate) async fn terminate(&self) {
        let sent = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &self.pid().to_string()]).status().await;
        assert!(sent.unwrap().success());
    }

    /// Sets the file size limit in KiB of a server started with one, at most to that limit.
    pub(crate) async fn limit_files(&self, kib: u64) {
        let limit = format!("--fsize={}:", kib * 1024);
        let set = Command::new("prlimit").args(["--pid", &self.pid().to_string(), &limit]).status().await;
        assert!(set.expect("prlimit is there, of util-linux").success());
    }

    /// Waits for its end; returns the exit code.
    pub(crate) async fn ended(mut self) -> Option<i32> {
        timeout(PATIENCE, self.child.wait()).await.expect("the server ends in time").unwrap().code()
    }

    /// Asks it to stop and waits for its end.
    pub(crate) async fn stop(self) {
        self.terminate().await;
        assert_eq!(self.ended().await, Some(0));
    }

    /// Kills it immediately.
    pub(crate) async fn kill(mut self) {
        self.kill_now().await;
    }

    /// Kills it immediately; its address stays known.
    pub(crate) async fn kill_now(&mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Returns everything that servers in this directory logged.
pub(crate) fn logged(folder: &Path) -> String {
    fs::read_to_string(folder.join(LOG)).unwrap()
}
