//! `reseed chat` over a connection that breaks: wherever it breaks, the user reads every answer once and completely.

use crate::support::{binary::Binary, line::Line, server::Server};
use futures_util::future::join_all;
use reseed::provider::offline::{Offline, OfflineOptions};
use std::{process::Stdio, time::Duration};
use tokio::{io::AsyncWriteExt as _, process::Command};

/// The time that a chat may take on a machine that is busy with other tests; reached only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `reseed chat` over this proxy; returns its answers word by word, and what else it says.
async fn chat(line: &Line, arguments: &[&str], input: &str) -> (String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_reseed"))
        .args(["chat", &line.address])
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("the chat ends").unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    (answers.split_whitespace().collect::<Vec<_>>().join(" "), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_the_line_breaks_every_answer_is_read_once_and_whole() {
    let model = Offline::new(OfflineOptions { window_tokens: 8000, pace: Some(Duration::from_millis(1)) });
    let server = Server::start(model, &[("CONTEXT_WINDOW", "8000"), ("CONNECTIONS_MAX", "1000")]).await;
    let input = "My ferry is called Aurora.\nWrite a text of 60 words.\nWhat is my ferry called?\n";
    let (whole, _) = chat(&Line::to(server.address(), 0, 0).await, &[], input).await;
    assert!(whole.contains("Aurora"), "{whole}");
    // The breaks are in the greeting, the opening, and the first, second and third answer; once, and twice in a row.
    let afters = [300, 700, 1_200, 2_000, 3_500, 5_000, 7_000, 9_000, 12_000];
    let chats = afters.into_iter().flat_map(|after| [(1, after), (2, after)]).map(async |(breaks, after)| {
        let line = Line::to(server.address(), breaks, after).await;
        let (shown, _) = chat(&line, &[], input).await;
        assert_eq!(shown, whole, "{breaks} breaks, each after {after} bytes");
        line.broken()
    });
    let broken: usize = join_all(chats).await.into_iter().sum();
    assert!(broken > afters.len(), "{broken} lines broke");
    server.service.stop().await;
}

#[tokio::test]
async fn a_kill_in_the_middle_of_an_answer_is_told_and_the_chat_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [("OFFLINE_WORD_MILLIS", "2"), ("CONTEXT_WINDOW", "8000")];
    let server = Binary::start(folder.path(), &settings).await;
    let line = Line::to(server.address.clone(), 0, 0).await;
    let input = "My ferry is called Aurora.\nWrite a text of 300 words.\nWhat is my ferry called?\n";
    let killing = async {
        // This is some way into the second answer.
        line.carried().wait_for(|carried| *carried > 12_000).await.unwrap();
        server.kill().await;
        let server = Binary::start(folder.path(), &settings).await;
        line.lead_to(&server.address);
        server
    };
    let (server, (answers, told)) = tokio::join!(killing, chat(&line, &[], input));
    assert!(told.contains("this answer broke off and is not stored (interrupted)"), "{told}");
    assert!(told.contains("the server stopped in the middle of the turn"), "{told}");
    // The last answer is about what was said before the kill.
    assert!(answers.ends_with("Aurora."), "{answers}");
    server.stop().await;
}
