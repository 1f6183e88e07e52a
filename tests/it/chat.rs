//! `reseed chat` as it is run: the binary, driven through pipes, against a server on real sockets.

#[cfg(target_os = "linux")]
mod terminal;

use crate::support::{
    client::Client,
    server::Server,
    upstream::{Reply, Upstream},
};
use reseed::provider::offline::{Offline, OfflineOptions};
use serde_json::json;
use std::{process::Stdio, time::Duration};
use tokio::{io::AsyncWriteExt as _, process::Command};

/// The time limit of a chat on a machine that is busy with other tests; only a failing test reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

async fn server(window: &str, settings: &[(&str, &str)]) -> Server {
    let window_tokens = window.parse().unwrap();
    let settings = [&[("CONTEXT_WINDOW", window)], settings].concat();
    Server::start(Offline::new(OfflineOptions { window_tokens, pace: None }), &settings).await
}

struct Ended {
    code: Option<i32>,
    /// What was written to stdout.
    answers: String,
    /// That, and everything else except the error of a command that failed.
    shown: String,
    faults: String,
}

impl Ended {
    fn of(output: &std::process::Output) -> Self {
        let answers = String::from_utf8(output.stdout.clone()).unwrap();
        let others = String::from_utf8(output.stderr.clone()).unwrap();
        let lines: Vec<&str> = others.split_inclusive('\n').collect();
        let ends = lines.iter().position(|line| line.starts_with("reseed: ")).unwrap_or(lines.len());
        let shown = lines[..ends].concat() + &answers;
        Self { code: output.status.code(), answers, shown, faults: lines[ends..].concat() }
    }
}

/// Runs `reseed chat URL ARGUMENTS…` with these lines as its input.
async fn chat(server: &Server, arguments: &[&str], input: &str) -> Ended {
    let mut child = Command::new(env!("CARGO_BIN_EXE_reseed"))
        .arg("chat")
        .arg(server.ws())
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A chat that ends by itself closes its input: later input is not read.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("the chat ends").unwrap();
    Ended::of(&output)
}

/// Runs `reseed chat ARGUMENTS…` in this directory with these variables and one line as its input.
async fn chat_in(folder: &std::path::Path, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut child = Command::new(env!("CARGO_BIN_EXE_reseed"))
        .arg("chat")
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(b"hello\n").await;
    drop(stdin);
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("the chat ends").unwrap();
    Ended::of(&output)
}

/// Returns the session's id, from the line that names it.
fn session(shown: &str) -> &str {
    shown.lines().find_map(|line| line.strip_prefix("session ")?.split([',', ' ']).next()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_answered_in_turn_and_a_fact_is_recalled_later() {
    let server = server("8000", &[]).await;
    let first = chat(&server, &[], "My ferry is called Aurora.\n\n/context\n").await;
    assert_eq!((first.code, first.faults.as_str()), (Some(0), ""), "{}", first.shown);
    for expected in ["strategy threshold", " / 8,000 tokens", "  user  ", "  assistant  ", "  free  "] {
        assert!(first.shown.contains(expected), "{expected:?} is missing in\n{}", first.shown);
    }
    assert!(!first.shown.contains('\x1b'), "a pipe gets plain text: {:?}", first.shown);

    let again = chat(&server, &["--session", session(&first.shown)], "What is my ferry called?\n").await;
    assert_eq!(again.code, Some(0), "{}", again.faults);
    assert!(again.shown.contains("`My ferry is called Aurora.`"), "the session has a name:\n{}", again.shown);
    assert!(again.shown.contains("> My ferry is called Aurora."), "the history is shown:\n{}", again.shown);
    assert!(again.answers.contains("Aurora"), "the answer recalls the name:\n{}", again.shown);
}

#[tokio::test(flavor = "multi_thread")]
async fn compacting_shows_before_and_after() {
    let server = server("2000", &[]).await;
    let long = "The harbour lies to the west, beyond the old market and the tram depot. ".repeat(12);
    let input = format!("{long}\n").repeat(3) + "/compact keep the harbour\n" + &format!("{long}\n").repeat(6);
    let ended = chat(&server, &[], &input).await;
    assert_eq!((ended.code, ended.faults.as_str()), (Some(0), ""), "{}", ended.shown);
    let compactions: Vec<&str> = ended.shown.lines().filter(|line| line.starts_with("context compacted: ")).collect();
    assert!(compactions.iter().any(|line| line.contains("(asked for, ")), "{}", ended.shown);
    assert!(compactions.iter().any(|line| line.contains("(window filling, ")), "{}", ended.shown);
    for line in compactions {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.replace(',', "").parse().ok()).collect();
        assert!(numbers[0] > numbers[1] && numbers[1] > 0, "{line}");
    }
    assert!(!ended.shown.contains("error:"), "{}", ended.shown);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_reached_or_opened_is_told_and_the_exit_code_says_so() {
    let tokens = [("AUTH_TOKENS", "ada:correct-horse-battery-staple")];
    let closed = server("8000", &tokens).await;
    let open = server("8000", &[]).await;
    let (mut other, opened) = Client::v2_session(&open.ws()).await;
    let shared = opened["sessionId"].as_str().unwrap();
    let table: [(&Server, &[&str], &str); 4] = [
        (&open, &["--session", "no-such-session"], "(session_not_found)"),
        (&open, &["--session", "not an id"], "`not an id` is no session's id"),
        (&closed, &[], "with --token"),
        (&closed, &["--token", "wrong"], "4401"),
    ];
    for (server, arguments, expected) in table {
        let ended = chat(server, arguments, "hello\n").await;
        assert_eq!(ended.code, Some(1), "{arguments:?}: {}", ended.shown);
        assert!(ended.faults.contains(expected), "{arguments:?}: {}", ended.faults);
    }
    // A session that is open elsewhere is shared.
    let joined = chat(&open, &["--session", shared], "hello\n").await;
    assert_eq!(joined.code, Some(0), "{}", joined.faults);
    assert!(joined.shown.contains(&format!("session {shared}")), "{}", joined.shown);
    assert_eq!(other.event("turn_finished").await["payload"]["status"], "completed");
    let known = chat(&closed, &["--token", "correct-horse-battery-staple"], "hello\n").await;
    assert_eq!(known.code, Some(0), "{}", known.faults);
}

#[tokio::test(flavor = "multi_thread")]
async fn quitting_leaves_the_session_with_what_was_said() {
    let server = server("8000", &[]).await;
    let ended = chat(&server, &[], "hello\n/quit\nnever said\n").await;
    assert_eq!(ended.code, Some(0), "{}", ended.faults);
    let mut client = Client::v2(&server.ws()).await;
    let opened = client.ask("open_session", json!({ "sessionId": session(&ended.shown) })).await;
    let entries = opened["payload"]["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 2, "{opened}");
    assert_eq!(entries[0]["content"][0]["text"], "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_found_by_the_settings_that_started_it_and_by_its_page() {
    let server = server("8000", &[]).await;
    let address = server.address();
    let port = address.rsplit_once(':').unwrap().1;
    let folder = tempfile::tempdir().unwrap();
    // Other errors in it concern only the server.
    std::fs::write(folder.path().join(".env"), format!("WS_PORT={port}\nOPENAI_API=nonsense\n")).unwrap();
    let (page, empty) = (format!("http://{address}"), tempfile::tempdir().unwrap());
    /// A directory, the arguments and the environment.
    type Case<'a> = (&'a tempfile::TempDir, &'a [&'a str], &'a [(&'a str, &'a str)]);
    let table: [Case<'_>; 5] = [
        (&folder, &[], &[]),
        (&folder, &[], &[("HOST", "0.0.0.0")]),
        (&empty, &[], &[("WS_PORT", port)]),
        (&empty, &[page.as_str()], &[("WS_PORT", "1")]),
        (&empty, &[page.as_str()], &[("WS_PORT", "none")]),
    ];
    for (folder, arguments, variables) in table {
        let ended = chat_in(folder.path(), arguments, variables).await;
        assert_eq!((ended.code, ended.faults.as_str()), (Some(0), ""), "{arguments:?} {variables:?}");
    }
    let wrong = [("0", "WS_PORT is 0"), ("none", "WS_PORT is `none`"), ("1", "127.0.0.1:1")];
    for (port, expected) in wrong {
        let ended = chat_in(empty.path(), &[], &[("WS_PORT", port)]).await;
        assert_eq!(ended.code, Some(1), "{port}");
        assert!(ended.faults.contains(expected), "{port}: {}", ended.faults);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_the_same_settings_goes_to_their_own_server_and_to_no_other() {
    let tokens = [("AUTH_TOKENS", "ada:correct-horse-battery-staple")];
    let server = server("8000", &tokens).await;
    let address = server.address();
    let port = address.rsplit_once(':').unwrap().1;
    let (page, empty) = (format!("http://{address}"), tempfile::tempdir().unwrap());
    let (token, missing) = ("ada:correct-horse-battery-staple", "name a token of the server's with --token");
    let broken = format!("nobody, ,{token},eve:another-token-of-16");
    /// The arguments, AUTH_TOKENS, and the expected error, if any.
    type Case<'a> = (&'a [&'a str], &'a str, &'a str);
    let table: [Case<'_>; 6] = [
        (&[], token, ""),
        (&[], &broken, ""),
        (&[], "", missing),
        (&["--token", "wrong"], token, "4401"),
        (&[page.as_str()], token, missing),
        (&["ftp://localhost"], token, "http://127.0.0.1:8080"),
    ];
    for (arguments, tokens, fault) in table {
        let variables = [("WS_PORT", port), ("AUTH_TOKENS", tokens)];
        let ended = chat_in(empty.path(), arguments, &variables).await;
        assert_eq!(ended.code, Some(i32::from(!fault.is_empty())), "{arguments:?} {tokens}: {}", ended.faults);
        assert!(ended.faults.contains(fault), "{arguments:?} {tokens}: {}", ended.faults);
        assert!(!ended.faults.contains("battery"), "{arguments:?} {tokens}: {}", ended.faults);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_in_which_nothing_is_said_leaves_no_session_behind() {
    let server = server("8000", &[]).await;
    for input in ["", "\n\n", "/help\n/context\n", "/quit\n"] {
        let ended = chat(&server, &[], input).await;
        assert_eq!((ended.code, ended.faults.as_str()), (Some(0), ""), "{input:?}: {}", ended.shown);
    }
    let mut client = Client::v2(&server.ws()).await;
    let listed = client.ask("list_sessions", json!({})).await;
    assert_eq!(listed["payload"]["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_gets_the_answers_alone_and_the_exit_code_says_whether_there_is_one() {
    let server = server("8000", &[]).await;
    let piped = chat(&server, &[], "My ferry is called Aurora.\n/context\n").await;
    assert_eq!((piped.code, piped.faults.as_str()), (Some(0), ""), "{}", piped.shown);
    assert!(piped.answers.contains("Aurora") && piped.answers.lines().count() == 1, "{:?}", piped.answers);
    let asked = chat(&server, &["My train is called Comet."], "this is not read").await;
    assert_eq!(asked.code, Some(0), "{}", asked.shown);
    assert!(asked.answers.contains("Comet") && !asked.shown.contains("not read"), "{}", asked.shown);
    let id = session(&asked.shown).to_owned();
    let again = chat(&server, &["--session", &id, "What is my train called?"], "").await;
    assert!(again.answers.contains("Comet") && again.answers.lines().count() == 1, "{:?}", again.answers);
}

#[tokio::test]
async fn a_turn_that_fails_is_a_failure_of_the_chat() {
    let upstream = Upstream::start(|_| Reply::error(401, "no such key")).await;
    let server = Server::facing(&upstream.base_url(), &[("OPENAI_API", "chat")]).await;
    let ended = chat(&server, &["hello"], "").await;
    assert_eq!((ended.code, ended.answers.as_str()), (Some(1), ""), "{}", ended.shown);
    assert!(ended.faults.contains("not everything was answered"), "{}", ended.faults);
}

#[tokio::test]
async fn without_a_server_the_chat_says_how_to_start_one() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    drop(listener);
    let folder = tempfile::tempdir().unwrap();
    for variable in ["WS_PORT", "PORT"] {
        let ended = chat_in(folder.path(), &["hello there"], &[(variable, &port)]).await;
        assert_eq!((ended.code, ended.answers.as_str()), (Some(1), ""));
        assert!(ended.faults.contains("start the server with `reseed serve`"), "{}", ended.faults);
    }
    let ended = chat_in(folder.path(), &["localhost:8080"], &[]).await;
    assert!(ended.code == Some(1) && !ended.faults.contains("reseed serve"), "{}", ended.faults);
}
