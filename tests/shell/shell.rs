//! `reseed-shell` as MCP clients run it: the binary, over its standard input and output, with real processes.
//!
//! These tests need Linux with Landlock: where the kernel lacks it, they fail and say so. As root, commands run as
//! another user, as the sandbox demands.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "the settings of clippy exempt tests, and what they call is as much a test")]

mod client;
mod escapes;
mod patches;
mod processes;
mod serving;
mod starting;
mod working;

use client::Client;
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
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

/// A server with a directory of its own.
struct World {
    directory: TempDir,
    client: Client,
    /// The user of its commands; `None` for that of the tests.
    user: Option<u32>,
}

/// What a call returned.
#[derive(Debug)]
struct Output {
    text: String,
    is_error: bool,
}

/// What a call returned, in v1's form.
#[derive(Debug)]
struct Returned {
    output: String,
    exit_code: i64,
    is_error: bool,
}

impl World {
    async fn new(flags: &[&str]) -> Self {
        static WORLDS: AtomicU32 = AtomicU32::new(1);
        let user = is_root().then(|| OTHER_USER + WORLDS.fetch_add(1, Ordering::Relaxed));
        let directory = directory();
        let mut all = vec!["--folder", "workspaces"];
        let as_user = user.map(|user| format!("{user}:{user}"));
        all.extend(as_user.iter().flat_map(|user| ["--user", user]));
        all.extend(flags);
        let client = Client::start(directory.path(), &all);
        let up = client.initialize().await;
        assert!(up.is_some(), "THE SANDBOX CANNOT BE TESTED HERE: {}", client.ended().await.1);
        Self { directory, client, user }
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
        let result = self.client.ask("tools/call", params(tool, session, arguments)).await;
        let [content] = &result["content"].as_array().unwrap()[..] else { panic!("{result}") };
        Output { text: content["text"].as_str().unwrap().to_owned(), is_error: result["isError"].as_bool().unwrap() }
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

/// Returns the parameters of a call in a session.
fn params(tool: &str, session: &str, arguments: Value) -> Value {
    json!({ "name": tool, "arguments": arguments, "_meta": { "reseed/session": session } })
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
