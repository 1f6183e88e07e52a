//! A client that stops reading: it is closed with 4504 once its time is up, finds that code whenever it reads on, and
//! resumes without a gap. The test decides when the time is up.

use super::fold::Folder;
use crate::support::{client::Client, server::Server, talk::words};
use futures_util::{SinkExt as _, StreamExt as _};
use reseed::provider::scripted::{Reply, Scripted};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};

/// The slow reader's own buffer in the kernel, so that the kernel does not read for it.
const RECEIVE_BYTES: u32 = 4 * 1024;

/// Connects with a small buffer, says hello and observes a session; the next frame is `session_opened`.
async fn observing(server: &Server, session: &Value) -> WebSocketStream<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(RECEIVE_BYTES).unwrap();
    let stream = socket.connect(server.service.address()).await.unwrap();
    let (mut socket, _) = client_async(server.ws(), stream).await.unwrap();
    let hello = json!({ "id": "hello", "type": "hello", "payload": { "protocolVersion": 2 } });
    let open = json!({ "id": "open", "sessionId": session, "type": "open_session", "payload": { "role": "observer" } });
    for frame in [hello, open] {
        socket.send(Message::text(frame.to_string())).await.unwrap();
    }
    assert_eq!(next(&mut socket).await.unwrap()["type"], "welcome");
    socket
}

/// Returns the next frame, or the code with which the server closed.
async fn next(socket: &mut WebSocketStream<TcpStream>) -> Result<Value, u16> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
            Some(Ok(Message::Close(frame))) => return Err(frame.map_or(1006, |frame| frame.code.into())),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return Err(1006),
        }
    }
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
    let mut slow = observing(&server, session).await;
    let opened = next(&mut slow).await.unwrap();
    let mut watch = Folder::new("watch-0000000000", json!({ "role": "observer", "sessionId": session }));
    watch.fold.opened(&opened["payload"]);

    for turn in 0..turns {
        assert_eq!(owner.turn(&format!("Question {turn}.")).await["status"], "completed");
        owner.forget("nothing");
    }
    let last = owner.seen.iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
    // Nobody has waited for it. Now its time is up, and it is closed.
    tokio::time::pause();
    for _ in 0..32 {
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
    // Reading on at last, the client receives what was on its way, whole frames in order, and the reason why no more
    // comes.
    let code = loop {
        match next(&mut slow).await {
            Ok(frame) => watch.fold.take(&frame),
            Err(code) => break code,
        }
    };
    assert_eq!(code, 4504);
    assert!(watch.fold.seq < last, "it did not get all of it");
    assert!(watch.connect(&server.ws()).await);
    watch.reach(last).await;
    assert_eq!(watch.fold.snapshots, 1, "a replay");
}
