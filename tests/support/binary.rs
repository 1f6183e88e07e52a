//! The real binary, run as its users run it: in a folder of its own, on a free port, with an environment of its own.

use std::{ffi::OsStr, fs, path::Path, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

/// How long the binary may take on a machine that is busy with other tests; reached only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// The file in the server's folder that its log goes to.
pub(crate) const LOG: &str = "log";

/// A running server. Dropped, it is killed.
pub(crate) struct Binary {
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    /// The line that named the address.
    pub(crate) start_line: String,
    child: Child,
    /// Kept, so that what the server prints later has somewhere to go.
    printed: Lines<BufReader<ChildStdout>>,
}

/// A command of the binary that came to its end.
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
    command.envs(settings.iter().map(|(name, value)| (OsStr::new(name), OsStr::new(value))));
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs `reseed ARGUMENTS…` to its end.
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
    /// Starts a server in this folder and waits for the line that names its address.
    pub(crate) async fn start(folder: &Path, settings: &[(&str, &str)]) -> Self {
        Self::started(folder, command(folder, &[], settings)).await
    }

    /// The same for a server whose files cannot grow beyond so many KiB, as on a full disk.
    pub(crate) async fn start_with_file_limit(folder: &Path, settings: &[(&str, &str)], kib: u64) -> Self {
        // Without the trap the signal that the system sends would end the process; so, the write fails. In POSIX shells
        // the limit counts blocks of 512 bytes.
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
        let address = start_line.split("http://").nth(1).and_then(|rest| rest.split(' ').next());
        let address = address.unwrap_or_else(|| panic!("no address in {start_line:?}")).to_owned();
        Self { address, start_line, child, printed }
    }

    /// The socket's address.
    pub(crate) fn ws(&self) -> String {
        format!("ws://{}/ws", self.address)
    }

    /// The next line that it prints behind the start line.
    pub(crate) async fn next_line(&mut self) -> String {
        let line = timeout(PATIENCE, self.printed.next_line()).await.expect("it prints a line in time");
        line.unwrap().expect("it prints more lines")
    }

    /// The process's number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Asks it to stop.
    pub(crate) async fn terminate(&self) {
        let sent = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &self.pid().to_string()]).status().await;
        assert!(sent.unwrap().success());
    }

    /// Lets the files of a server that was started with a limit grow to so many KiB from now on, at most to that limit.
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

    /// Kills it where it stands.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Everything that servers in this folder logged.
pub(crate) fn logged(folder: &Path) -> String {
    fs::read_to_string(folder.join(LOG)).unwrap()
}
