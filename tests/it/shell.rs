//! The built-in tools `shell` and `apply_patch`, called through their trait, with real processes.
//!
//! These tests need Linux with Landlock: where the kernel lacks it, they fail and say so. As root, commands run as
//! another user, as `SHELL_USER` demands.

mod escapes;
mod patches;
mod processes;
mod starting;
mod working;

use reseed::{
    config::Settings,
    tools::{Call, Output, Progress, shell::Shell},
};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};
use tempfile::TempDir;

/// The first user of commands if the tests run as root. Each world has one of its own: the kernel counts the processes
/// of a user.
const OTHER_USER: u32 = 1_000_000;

/// Held by tests that use up what others of the same user need.
static GREEDY: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// The session of most calls.
const SESSION: &str = "session-1";

/// Returns true if these tests run as root.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A shell with a directory of its own.
struct World {
    directory: TempDir,
    shell: Arc<Shell>,
    /// The user of its commands; `None` for that of the tests.
    user: Option<u32>,
}

/// What a call returned, in v1's form.
#[derive(Debug)]
struct Returned {
    output: String,
    exit_code: i64,
    is_error: bool,
}

impl World {
    async fn new(settings: &[(&str, &str)]) -> Self {
        static WORLDS: AtomicU32 = AtomicU32::new(1);
        let user = is_root().then(|| OTHER_USER + WORLDS.fetch_add(1, Ordering::Relaxed));
        Self::of(user, settings).await
    }

    async fn of(user: Option<u32>, settings: &[(&str, &str)]) -> Self {
        let directory = directory();
        let opened = Shell::open(&settings_in(directory.path(), user, settings)).await;
        let shell = opened.unwrap_or_else(|error| panic!("THE SANDBOX CANNOT BE TESTED HERE: {error}"));
        Self { directory, shell: shell.expect("it is on"), user }
    }

    /// Gives a file or directory to the user of the commands.
    fn give(&self, path: &Path) {
        if self.user.is_some() {
            chown(path, self.user, self.user).unwrap();
        }
    }

    /// Returns a session's folder, which exists after its first call.
    fn folder(&self, session: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join("workspaces").join(session)
    }

    async fn call(&self, tool: &str, session: &str, arguments: Value) -> Output {
        let tools = self.shell.tools();
        let tool = tools.iter().find(|one| one.offer().name == tool).expect("it is offered");
        tool.call(call(session, arguments)).await
    }

    /// Runs a command in a session.
    async fn run_in(&self, session: &str, arguments: Value) -> Returned {
        let output = self.call("shell", session, arguments).await;
        returned(&output).unwrap_or_else(|| panic!("{output:?}"))
    }

    /// Runs a script with these arguments, `$1` and so on.
    async fn script(&self, script: &str, arguments: &[&str]) -> Returned {
        let command = [&["sh", "-c", script, "sh"], arguments].concat();
        self.run_in(SESSION, json!({ "command": command })).await
    }

    /// Applies a patch in [`SESSION`].
    async fn patch(&self, inner: &str) -> Output {
        let input = format!("*** Begin Patch\n{inner}\n*** End Patch");
        self.call("apply_patch", SESSION, json!({ "input": input })).await
    }
}

fn call(session: &str, arguments: Value) -> Call {
    Call {
        call_id: "call-1".parse().unwrap(),
        session: session.parse().unwrap(),
        leaf: None,
        arguments,
        progress: Progress::new(|_| {}),
    }
}

/// Reads v1's form; `None` if it is not that.
fn returned(output: &Output) -> Option<Returned> {
    let value: Value = serde_json::from_str(&output.text).ok()?;
    value["metadata"]["duration_seconds"].as_f64()?;
    Some(Returned {
        output: value["output"].as_str()?.to_owned(),
        exit_code: value["metadata"]["exit_code"].as_i64()?,
        is_error: output.is_error,
    })
}

/// Creates a directory that the user of the commands can pass through.
fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711)).unwrap();
    directory
}

/// Returns settings with the shell on, and these.
fn settings_in(directory: &Path, user: Option<u32>, settings: &[(&str, &str)]) -> Settings {
    let text = directory.to_str().unwrap();
    let user = user.map(|user| format!("{user}:{user}"));
    let mut all = vec![
        ("SHELL_TOOL", "on"),
        ("SHELL_FOLDER", "workspaces"),
        ("SHELL_BINARY", env!("CARGO_BIN_EXE_reseed")),
        ("WORKING_DIRECTORY", text),
    ];
    all.extend(user.as_ref().map(|user| ("SHELL_USER", user.as_str())));
    all.extend(settings);
    Settings::from_iter(all).unwrap()
}
