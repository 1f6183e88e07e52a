//! `reseed-shell` as reseed runs it: with approvals, with the names of sessions, and checked. `tests/shell/` tests the
//! program by itself.

use super::servers;
use crate::support::scripted::{Reply, Scripted};
use crate::support::{
    binary,
    client::Client,
    server::Server,
    tools::{ask, finished, results},
};
use reseed::{
    internals::{Clock as _, SystemClock},
    store::{SessionStore as _, memory::MemoryStore},
};
use reseed_protocol::Part;
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::time::{sleep, timeout};

/// Time for what takes a second; only a test that fails waits for it.
const SOON: Duration = Duration::from_secs(60);

/// Returns the binary. A build of the whole workspace, as `tests/run` makes it, puts it beside the server's.
fn program() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_reseed")).with_file_name("reseed-shell");
    assert!(program.exists(), "reseed-shell is missing: `cargo build -p reseed-shell` builds it");
    program
}

/// Returns the entry in `MCP_FILE`, with these flags.
fn entry(program: &Path, flags: &[&str]) -> Value {
    let is_root = rustix::process::geteuid().is_root();
    let user: &[&str] = if is_root { &["--user", "999999:999999"] } else { &[] };
    let args = [user, flags].concat();
    json!({ "shell": { "command": program, "args": args } })
}

/// Creates a directory that the commands' user can traverse.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    fs::set_permissions(folder.path().join("data"), fs::Permissions::from_mode(0o711)).unwrap();
    folder
}

/// Starts a server with the tools, whose working directory is this folder.
async fn started(folder: &Path, program: &Path, model: &Scripted) -> Server {
    started_over(MemoryStore::new(), folder, program, model).await
}

/// Like [`started`], over a given store.
async fn started_over(store: MemoryStore, folder: &Path, program: &Path, model: &Scripted) -> Server {
    servers(folder, entry(program, &[]));
    let file = folder.join("mcp.json");
    let settings = [("MCP_FILE", file.to_str().unwrap()), ("WORKING_DIRECTORY", folder.to_str().unwrap())];
    let settings = [&settings[..], &[("CONTEXT_WINDOW", "20000")]].concat();
    Server::over(model.clone(), Arc::new(store), &settings).await
}

/// Waits until a folder is removed.
async fn vanished(folder: &Path) {
    let gone = async {
        while folder.exists() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, gone).await.expect("the folder is removed");
}

/// Lets the model run a script, and then say something.
fn will_run(model: &Scripted, script: &str) -> String {
    let arguments = json!({ "command": ["sh", "-c", script] }).to_string();
    let call_id = "call_1".parse().unwrap();
    model.push(Reply::parts(vec![Part::ToolCall {
        call_id,
        name: "shell__shell".into(),
        arguments: arguments.clone(),
    }]));
    model.push(Reply::text("Done."));
    arguments
}

#[tokio::test]
async fn a_command_runs_when_it_is_allowed_in_a_folder_that_goes_with_its_session() {
    let program = program();
    let (folder, model) = (folder(), Scripted::new());
    let server = started(folder.path(), &program, &model).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let session = opened["sessionId"].as_str().unwrap();
    will_run(&model, "pwd; echo kept > kept");
    ask(&mut client, "Where are you?").await;
    let approval = client.event("approval_request").await["payload"].clone();
    assert_eq!(approval["name"], "shell__shell");
    assert_eq!(approval["reason"], "`shell__shell` may destroy what it changes.");
    let allow = json!({
        "approvalId": approval["approvalId"], "argumentsHash": approval["argumentsHash"], "review": "allow_once",
    });
    assert_eq!(client.ask("approval_response", allow).await["type"], "ok");
    assert_eq!(finished(&mut client).await["status"], "completed");
    let told = results(&model.requests()[1]);
    let [(output, false)] = &told[..] else { panic!("{told:?}") };
    let output: Value = serde_json::from_str(output).unwrap();
    let own = folder.path().canonicalize().unwrap().join("data/workspaces").join(session);
    assert_eq!(output["output"], format!("{}\n", own.display()));
    assert!(own.join("kept").exists());

    let deleted = client.ask("delete_session", json!({ "sessionId": session })).await;
    assert_eq!(deleted["type"], "ok", "{deleted}");
    vanished(&own).await;
    server.service.stop().await;
}

#[tokio::test]
async fn a_folder_of_a_session_that_was_deleted_while_the_program_was_down_goes_when_it_is_up() {
    let (program, folder, store) = (program(), folder(), MemoryStore::new());
    let of = |session: &str| folder.path().join("data/workspaces").join(session);
    for session in ["here", "gone"] {
        fs::create_dir_all(of(session)).unwrap();
        // The program records there what it made.
        fs::create_dir_all(of(".made").join(session)).unwrap();
    }
    // Nothing else is a session's folder, whatever its name.
    fs::create_dir_all(of("photos")).unwrap();
    // An old session would be swept, because it is empty.
    store.create(&"here".parse().unwrap(), "ann", SystemClock.now()).await.unwrap();
    let server = started_over(store, folder.path(), &program, &Scripted::new()).await;
    vanished(&of("gone")).await;
    assert!(of("photos").exists());
    assert!(of("here").exists());
    server.service.stop().await;
}

#[tokio::test]
async fn v1_asks_about_it_as_about_any_tool_and_gets_its_exit_code() {
    let program = program();
    let (folder, model) = (folder(), Scripted::new());
    let server = started(folder.path(), &program, &model).await;
    let mut client = Client::connect(&format!("ws://{}/", server.address())).await;
    let arguments = will_run(&model, "echo out; exit 3");
    let content = json!([{ "type": "input_text", "text": "Go!" }]);
    let input = json!({ "input": [{ "type": "message", "role": "user", "content": content }] });
    client.send("user_input", input).await;
    let request = client.until(|frame| frame["type"] == "approval_request").await["payload"].clone();
    assert_eq!(request["command"], json!(["shell__shell", arguments]));
    client.send("approval_response", json!({ "review": "yes" })).await;
    let is_output = |frame: &Value| frame["payload"]["type"] == "function_call_output";
    let item = client.until(is_output).await["payload"].clone();
    let output: Value = serde_json::from_str(item["output"].as_str().unwrap()).unwrap();
    assert_eq!((&output["output"], &output["metadata"]["exit_code"]), (&json!("out\n"), &json!(3)), "{item}");
    server.service.stop().await;
}

#[tokio::test]
async fn check_tries_the_sandbox() {
    let program = program();
    let folder = folder();
    for (flags, expected) in [
        (&[][..], ["mcp         1 servers, 2 tools, ", "  shell: 2 tools, "]),
        (
            &["--folder", "/usr/share/reseed-x"],
            [
                "  shell: FAILED: the server ended with code 1 before it answered",
                "commands can read everything in /usr; move it elsewhere",
            ],
        ),
    ] {
        let file = servers(folder.path(), entry(&program, flags));
        let ended = binary::run(folder.path(), &["check"], &[file, ("MODEL", "offline")]).await;
        assert_eq!(ended.code, Some(0), "{}{}", ended.printed, ended.faults);
        for part in expected {
            assert!(ended.printed.contains(part), "{part}: {}", ended.printed);
        }
    }
}

#[tokio::test]
async fn commands_without_a_sandbox_are_for_one_user() {
    let folder = tempfile::tempdir().unwrap();
    let one = ("AUTH_TOKENS", "ann:0123456789abcdef0123456789abcdef");
    let two = ("AUTH_TOKENS", "ann:0123456789abcdef0123456789abcdef,ben:fedcba9876543210fedcba9876543210");
    // Nothing is started, so the program need not exist.
    for (command, flags, users, refused) in [
        ("/opt/reseed-shell", &["--no-sandbox"][..], two, true),
        ("/opt/reseed-shell", &["--no-sandbox"], one, false),
        ("/opt/reseed-shell", &[], two, false),
        ("/opt/another", &["--no-sandbox"], two, false),
    ] {
        servers(folder.path(), json!({ "tools": { "command": command, "args": flags } }));
        let file = folder.path().join("mcp.json");
        let settings = [users, ("MCP_FILE", file.to_str().unwrap())];
        let ended = binary::run(folder.path(), &["check"], &settings).await;
        let all = format!("{}{}", ended.printed, ended.faults);
        assert_eq!(all.contains("there may be several users"), refused, "{command} {flags:?}: {all}");
    }
}
