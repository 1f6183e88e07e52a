//! A client that stops reading: it is closed with 4504 once its time is up, finds that code whenever it reads on, and
//! resumes without a gap. The test decides when the time is up.

use super::folder::Folder;
use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, server::Server, talk::words};
use serde_json::json;
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};

/// The slow reader's own buffer in the kernel, so that the kernel does not read for it.
const RECEIVE_BYTES: u32 = 4 * 1024;

/// Returns a connection with a small buffer.
async fn narrow(server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(RECEIVE_BYTES).unwrap();
    socket.connect(server.service.address()).await.unwrap()
}

#[tokio::test]
async fn a_reader_that_stops_is_closed_in_its_time_and_resumes() {
    // More than the kernel's buffers hold.
    let (turns, answer_words) = (30, 20_000);
    let mut asked = 0;
    let model = Scripted::answering(move |_| {
        asked += 1;
        Reply::text(words(asked, answer_words)).in_pieces(10)
    });
    let settings = [("CONTEXT_WINDOW", "10000000"), ("SLOW_READER_SECS", "30"), ("HEARTBEAT_SECS", "3600")];
    let server = Server::start(model, &settings).await;
    let (mut owner, opened) = Client::v2_session(&server.ws()).await;
    let session = &opened["sessionId"];
    let mut slow = Folder::new("watch-0000000000", json!({ "role": "observer", "sessionId": session })).unwitnessed();
    slow.connect_over(narrow(&server).await, &server.ws()).await;
    slow.opened().await;

    for turn in 0..turns {
        assert_eq!(owner.turn(&format!("Question {turn}.")).await["status"], "completed");
        owner.forget("nothing");
    }
    let last = owner.seen.iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
    // Nobody has waited for it. Its time is up now, and it is closed.
    tokio::time::pause();
    for _ in 0..32 {
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
    // When the client reads on at last, it receives what was on its way, in whole frames and in order, and the reason
    // why no more comes.
    let code = loop {
        if let Err(code) = slow.step().await {
            break code;
        }
    };
    assert_eq!(code, 4504);
    assert!(slow.fold.seq < last, "it did not get all of it");
    assert!(slow.connect(&server.ws()).await);
    slow.reach(last).await;
    assert_eq!(slow.fold.snapshots, 1, "a replay");
    slow.settled(&["contextInfo"]).await;
}
