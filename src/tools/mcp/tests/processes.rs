//! Real processes: their environment, their group and their end.

use super::{call, names, opened};
use crate::tools::{
    Output,
    mcp::{
        Mcp, ServerState,
        file::{Link, Program, Spec},
    },
};
use reseed_protocol::tools::ToolServerFailure;
use serde_json::json;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// A server in `sh` that behaves like an old one. `$CALL` says what it does with a call, and `$BEGIN` runs first.
const SERVER: &str = r#"
eval "$BEGIN"
while IFS= read -r line; do
    id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    case $line in
    *'"server/discover"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"error":{"code":-32601,"message":"?"}}' ;;
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}}' ;;
    *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"do","inputSchema":{"type":"object"}}]}}' ;;
    *'"tools/call"'*) text=$(eval "$CALL"); echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"content":[{"type":"text","text":"'"$text"'"}]}}' ;;
    esac
done
eval "$END"
"#;

/// Returns the server with these variables.
pub(super) fn sh(folder: &Path, variables: &[(&str, &str)]) -> Spec {
    let mut env: BTreeMap<String, String> =
        ["BEGIN", "CALL", "END"].map(|name| (name.to_owned(), ":".to_owned())).into();
    env.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    program(folder, "sh", &["-c", SERVER], env)
}

fn program(folder: &Path, command: &str, args: &[&str], env: BTreeMap<String, String>) -> Spec {
    let program = Program {
        shown: command.into(),
        command: command.into(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env,
        cwd: folder.to_path_buf(),
    };
    Spec { link: Link::Stdio(program), ..super::played("sh", |_, _| async {}) }
}

/// Returns true if a process is gone. It is not this process's child, so it cannot be waited for.
pub(super) fn gone(pid: &str) -> bool {
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    let began = Instant::now();
    while rustix::process::test_kill_process(pid).is_ok() && !is_zombie(pid.as_raw_nonzero().get()) {
        if began.elapsed() > super::SOON {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Returns true if a process has ended and was never waited for. In a container it may stay like that.
fn is_zombie(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('Z'))
}

pub(super) fn read(path: PathBuf) -> String {
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[tokio::test]
async fn a_process_gets_its_own_variables_and_folder_and_none_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let spec = sh(folder.path(), &[("CALL", "env | cut -d= -f1 | sort | tr '\\n' ' '; pwd"), ("TOKEN", "hunter2")]);
    let mcp = opened(vec![spec]).await;
    let output = call(&mcp, "sh__do", json!({})).await;
    let mut seen: Vec<&str> = output.text.split_whitespace().collect();
    let cwd = seen.pop().unwrap();
    assert_eq!(Path::new(cwd).canonicalize().unwrap(), folder.path().canonicalize().unwrap());
    assert!(seen.contains(&"PATH") && seen.contains(&"TOKEN"), "{seen:?}");
    // Cargo sets many variables in this process, which stand for the keys in a server's environment.
    assert!(std::env::vars().any(|(name, _)| name.starts_with("CARGO")));
    let own = ["BEGIN", "CALL", "END", "TOKEN", "PWD", "OLDPWD", "SHLVL", "_"];
    let strange: Vec<_> =
        seen.iter().filter(|name| !own.contains(name) && !super::super::process::INHERITED.contains(name)).collect();
    assert_eq!(strange.len(), 0, "{strange:?}");
    mcp.close().await;
}

#[tokio::test]
async fn a_process_ends_when_its_input_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let spec = sh(folder.path(), &[("BEGIN", "echo $$ > pid"), ("END", "touch ended")]);
    let mcp = opened(vec![spec]).await;
    assert_eq!(mcp.status()[0].protocol.as_deref(), Some("2024-11-05"));
    mcp.close().await;
    assert!(folder.path().join("ended").exists(), "it was not killed");
    assert!(gone(&read(folder.path().join("pid"))));
}

#[tokio::test]
async fn a_process_that_stays_gets_sigterm_and_then_sigkill() {
    let folder = tempfile::tempdir().unwrap();
    for (name, end) in [
        // It reads the end of its input, and stays until it gets SIGTERM.
        ("asked", "trap 'touch asked.ended; exit 0' TERM; while :; do sleep 0.05; done"),
        ("deaf", "trap 'touch deaf.told' TERM; while :; do sleep 0.05; done"),
    ] {
        let begin = format!("echo $$ > {name}.pid");
        let spec = sh(folder.path(), &[("BEGIN", &begin), ("END", end)]);
        let mcp = opened(vec![spec]).await;
        let began = Instant::now();
        mcp.close().await;
        assert!(began.elapsed() < Duration::from_secs(10), "{name}: {:?}", began.elapsed());
        assert!(gone(&read(folder.path().join(format!("{name}.pid")))), "{name}");
    }
    assert!(folder.path().join("asked.ended").exists(), "it had time to end");
    assert!(folder.path().join("deaf.told").exists(), "SIGTERM came first");
}

#[tokio::test]
async fn what_a_launcher_started_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    // The launcher ends, and the process that it started holds none of the pipes.
    let begin = "sleep 600 </dev/null >/dev/null 2>&1 & echo $! > child";
    let spec = sh(folder.path(), &[("BEGIN", begin)]);
    let mcp = opened(vec![spec]).await;
    mcp.close().await;
    assert!(gone(&read(folder.path().join("child"))));
}

#[tokio::test]
async fn a_process_that_is_killed_in_a_call_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    // The first life kills itself in the middle of its call.
    let spec = sh(folder.path(), &[("CALL", "if [ -e died ]; then echo alive; else touch died; kill -9 $$; fi")]);
    let mcp = opened(vec![spec]).await;
    let lost = call(&mcp, "sh__do", json!({})).await;
    assert!(lost.is_error && lost.text.contains("may have been carried out"), "{lost:?}");
    assert_eq!(call(&mcp, "sh__do", json!({})).await, Output::text("alive"));
    assert_eq!(mcp.status()[0].starts, 2);
    mcp.close().await;
}

#[tokio::test]
async fn a_program_that_cannot_run_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let mut failing = sh(folder.path(), &[("BEGIN", "echo 'the key hunter2 is wrong' >&2; exit 3")]);
    failing.secrets.add("hunter2");
    let garbled = program(folder.path(), "sh", &["-c", "echo hello; while read -r line; do :; done"], BTreeMap::new());
    let missing = program(folder.path(), "no-such-program", &[], BTreeMap::new());
    let garbled = Spec { startup: Duration::from_secs(1), ..garbled };
    let missed = "cannot be started: `no-such-program`: entity not found";
    for (spec, expected, failure, stderr) in [
        (failing, "ended with code 3 before it answered", ToolServerFailure::Ended, Some("the key *** is wrong")),
        (missing, missed, ToolServerFailure::CannotStart, None),
        (garbled, "did not come up within 1 s", ToolServerFailure::Timeout, None),
    ] {
        let mcp: Mcp = opened(vec![spec]).await;
        let status = &mcp.status()[0];
        assert_eq!((status.state, status.error.as_deref()), (ServerState::Failing, Some(expected)));
        assert_eq!(status.stderr.as_deref(), stderr, "{expected}");
        assert_eq!(status.shown().failure, Some(failure));
        let shown = serde_json::to_string(&status.shown()).unwrap();
        assert!(!shown.contains("is wrong") && !shown.contains("no-such-program"), "{shown}");
        assert_eq!(names(&mcp).len(), 0);
        mcp.close().await;
    }
}
