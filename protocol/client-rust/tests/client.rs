//! The client over a real socket, to a server that does what the test says.

mod support;

use reseed_client::{Client, Credentials, Error, Lost, Opening, Options, Session, SessionEvent, Stop, To, Update};
use reseed_protocol::{
    CommandId,
    command::{Command, Empty},
    reply::Reply,
    session::RenameSession,
};
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use support::{Server, example};
use tokio::task::yield_now;
use tokio_tungstenite::tungstenite::Message;

fn client(server: &Server) -> Client {
    Client::new(server.address(), Options::default())
}

/// A command that needs no subscription and writes.
fn rename(name: &str) -> Command {
    Command::RenameSession(RenameSession { name: name.to_owned() })
}

fn input() -> Command {
    serde_json::from_value(json!({"type": "user_input", "payload": {"input": "hello"}})).expect("it is a command")
}

/// Returns the next update that is what the test waits for.
async fn until<T>(client: &mut Client, found: impl Fn(Update) -> Option<T>) -> T {
    loop {
        if let Some(found) = found(client.next().await) {
            return found;
        }
    }
}

async fn disconnected(client: &mut Client) -> Lost {
    until(client, |update| match update {
        Update::Disconnected { lost, .. } => Some(lost),
        Update::Stopped(stop) => panic!("it has stopped: {stop}"),
        _ => None,
    })
    .await
}

#[tokio::test]
async fn a_lost_connection_is_made_again_and_everything_goes_on() {
    let server = Server::start().await;
    let mut client = client(&server);
    let session = client.open(Some("ses".parse().unwrap()), Opening::default());
    let id = client.send(session, &input()).unwrap();

    let serves = async {
        let (mut peer, hello) = server.welcome().await;
        peer.opens(json!({})).await;
        let command = peer.read("user_input").await;
        peer.event(2, 1).await;
        drop(peer);
        let (mut peer, again) = server.welcome().await;
        assert_eq!(hello["payload"]["clientId"], again["payload"]["clientId"]);
        let opens = peer.opens(json!({"asOfSeq": 3, "resumed": "replay"})).await;
        assert_eq!(opens["payload"]["resume"]["seq"], 2);
        assert_eq!(peer.read("user_input").await, command, "it is sent again, unchanged");
        peer.event(3, 1).await;
        peer.done(&command).await;
        peer
    };
    let lives = async {
        let mut told = Vec::new();
        loop {
            match client.next().await {
                Update::Connected(_) => told.push("connected".to_owned()),
                Update::Disconnected { .. } => {
                    told.push("disconnected".to_owned());
                    client.connect();
                }
                Update::Opened { .. } => told.push("opened".to_owned()),
                Update::Event { event: SessionEvent::Durable(seq, _), .. } => told.push(format!("event {seq}")),
                Update::Reply { id: of, result } => {
                    assert!(matches!(result, Ok(Reply::Ok(_))) && of == id);
                    return told;
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let (_peer, told) = tokio::join!(serves, lives);
    let expected = ["connected", "opened", "event 2", "disconnected", "connected", "opened", "event 3"];
    assert_eq!(told, expected);
    assert_eq!(client.snapshot(session).unwrap().seq, 3);
}

#[tokio::test]
async fn next_may_be_dropped_at_any_moment() {
    const EVENTS: u64 = 300;
    let server = Server::start().await;
    let mut client = client(&server);
    client.open(Some("ses".parse().unwrap()), Opening::default());
    let serves = tokio::spawn(async move {
        let mut random = fastrand::Rng::with_seed(4);
        let (mut peer, _) = server.welcome().await;
        peer.opens(json!({})).await;
        for seq in 2..EVENTS + 2 {
            let bytes = if seq % 5 == 0 { 50_000 } else { 100 };
            peer.event_in_pieces(seq, bytes, &mut random).await;
            if seq % 3 == 0 {
                let command = peer.read("rename_session").await;
                peer.done(&command).await;
            }
        }
        peer
    });
    let mut random = fastrand::Rng::with_seed(3);
    let (mut seen, mut dropped) = (1, 0);
    let mut waiting: HashSet<CommandId> = HashSet::new();
    for number in 0..EVENTS / 3 {
        let to = To::Id("ses".parse().unwrap());
        waiting.insert(client.send(to, &rename(&number.to_string().repeat(1 + random.usize(..5_000)))).unwrap());
    }
    while seen < EVENTS + 1 || !waiting.is_empty() {
        let moments = random.usize(..4);
        let update = tokio::select! {
            biased;
            update = client.next() => update,
            () = async { for _ in 0..moments { yield_now().await } } => {
                dropped += 1;
                continue;
            }
        };
        match update {
            Update::Event { event: SessionEvent::Durable(seq, _), .. } => {
                assert_eq!(seq, seen + 1, "events come in order and once");
                seen = seq;
            }
            Update::Reply { id, result } => assert!(result.is_ok() && waiting.remove(&id)),
            Update::Connected(_) | Update::Opened { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(dropped > 100, "it was dropped {dropped} times");
    drop(serves.await.unwrap());
}

#[tokio::test]
async fn pings_are_answered() {
    let server = Server::start().await;
    let mut client = client(&server);
    let serves = async {
        let (mut peer, _) = server.welcome().await;
        peer.send(Message::Ping("are you there".into())).await;
        assert_eq!(peer.message().await, Some(Message::Pong("are you there".into())));
    };
    tokio::select! {
        () = serves => {}
        () = async { loop { client.next().await; } } => {}
    }
}

#[tokio::test]
async fn after_a_close_the_client_does_what_the_code_says() {
    for (code, stops) in [(1000, true), (1012, false), (4400, true), (4504, false)] {
        let server = Server::start().await;
        let mut client = client(&server);
        let serves = async {
            server.welcome().await.0.close(code).await;
            if !stops {
                server.welcome().await;
            }
        };
        let lives = async {
            until(&mut client, |update| matches!(update, Update::Connected(_)).then_some(())).await;
            let (lost, stopped) = match client.next().await {
                Update::Disconnected { lost, .. } => (lost, false),
                Update::Stopped(Stop::Lost(lost)) => (lost, true),
                other => panic!("{other:?}"),
            };
            assert!(matches!(lost, Lost::Closed { code: told, .. } if told == code), "{lost:?}");
            assert_eq!(stopped, stops, "{code}");
            client.next().await
        };
        let ((), next) = tokio::join!(serves, lives);
        assert_eq!(matches!(next, Update::Stopped(_)), stops, "once it has stopped it says nothing else: {next:?}");
    }
}

#[tokio::test]
async fn credentials_are_asked_for_before_each_attempt() {
    let server = Server::start().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let ask = Arc::clone(&asked);
    let credentials: reseed_client::AskCredentials = Arc::new(move || {
        let number = ask.fetch_add(1, Ordering::Relaxed) + 1;
        Box::pin(async move {
            match number {
                1 => Err(Lost::Broken("the ticket office is closed".to_owned())),
                5 => Err(Lost::Refused("nobody is logged in".to_owned())),
                _ => Ok(Credentials::Ticket(format!("ticket-{number}"))),
            }
        })
    });
    let options = Options { credentials: Some(credentials), ..Options::default() };
    let mut client = Client::new(server.address(), options);
    let serves = async {
        let (mut peer, hello) = server.welcome().await;
        assert_eq!(hello["payload"]["ticket"], "ticket-2");
        peer.close(1012).await;
        let mut peer = server.accept().await;
        let hello = peer.read("hello").await;
        assert_eq!(hello["payload"]["ticket"], "ticket-3");
        let error = json!({"code": "unauthenticated", "message": "expired", "retriable": false});
        peer.reply(&hello, json!({"type": "error", "payload": error})).await;
        let (mut peer, hello) = server.welcome().await;
        assert_eq!(hello["payload"]["ticket"], "ticket-4", "they are renewed once");
        peer.close(1012).await;
    };
    let lives = async {
        loop {
            match client.next().await {
                Update::Stopped(stop) => return stop,
                Update::Disconnected { .. } => client.connect(),
                _ => {}
            }
        }
    };
    let ((), stop) = tokio::join!(serves, lives);
    assert_eq!(stop, Stop::Lost(Lost::Refused("nobody is logged in".to_owned())));
    assert_eq!(asked.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn a_token_that_stays_the_same_is_tried_once() {
    let server = Server::start().await;
    let mut client = Client::new(server.address(), Options::default().with_token("token-1"));
    let serves = async {
        let mut peer = server.accept().await;
        let hello = peer.read("hello").await;
        assert_eq!(hello["payload"]["token"], "token-1");
        let error = json!({"code": "unauthenticated", "message": "expired", "retriable": false});
        peer.reply(&hello, json!({"type": "error", "payload": error})).await;
    };
    let ((), update) = tokio::join!(serves, client.next());
    assert!(matches!(update, Update::Stopped(Stop::Credentials(_))), "{update:?}");
}

#[tokio::test]
async fn an_upgrade_that_is_refused_is_tried_again_where_that_helps() {
    let table = [
        ("401 Unauthorized", true),
        ("403 Forbidden", true),
        ("404 Not Found", true),
        ("408 Request Timeout", false),
        ("429 Too Many Requests", false),
        ("500 Internal Server Error", false),
        ("503 Service Unavailable", false),
    ];
    for (status, stops) in table {
        let server = Server::start().await;
        let mut client = client(&server);
        let ((), update) = tokio::join!(server.refuse(status), client.next());
        let told = match update {
            Update::Disconnected { lost, .. } => {
                assert_eq!(matches!(lost, Lost::Unready(_)), status.starts_with("503"), "{lost:?}");
                (lost.to_string(), false)
            }
            Update::Stopped(stop) => (stop.to_string(), true),
            other => panic!("{other:?}"),
        };
        assert_eq!(told, (format!("{} answered {status}", server.address()), stops));
    }
}

#[tokio::test]
async fn who_hangs_up_during_the_upgrade_is_tried_again() {
    let server = Server::start().await;
    // With TLS as well, although nobody has chosen who encrypts.
    for scheme in ["ws", "wss"] {
        let mut client = Client::new(server.address_of(scheme), Options::default());
        let (_, lost) = tokio::join!(async { drop(server.accept_tcp().await) }, disconnected(&mut client));
        assert!(matches!(lost, Lost::Broken(_)), "{lost}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_says_nothing_does_not_hold_the_client_up() {
    let server = Server::start().await;
    let mut client = client(&server);
    // The system takes the connection, and nobody answers.
    let lost = disconnected(&mut client).await.to_string();
    assert!(lost.ends_with("did not answer within 10 s"), "{lost}");
}

#[tokio::test]
async fn a_server_that_falls_silent_is_left() {
    for (welcomes, words) in
        [(false, "the server said no welcome within 20 s"), (true, "the server said nothing for 60 s")]
    {
        let server = Server::start().await;
        let mut client = client(&server);
        let silent = tokio::select! {
            biased;
            peer = async {
                if welcomes {
                    return server.welcome().await.0;
                }
                let mut peer = server.accept().await;
                peer.read("hello").await;
                peer
            } => peer,
            lost = disconnected(&mut client) => panic!("{lost}"),
        };
        tokio::time::pause();
        let before = tokio::time::Instant::now();
        let lost = disconnected(&mut client).await.to_string();
        assert!(lost.starts_with(words), "{lost}");
        assert!(before.elapsed() > Duration::from_secs(15));
        tokio::time::resume();
        drop(silent);
    }
}

#[tokio::test]
async fn deadlines_are_kept_while_frames_keep_coming() {
    let server = Server::start().await;
    let mut client = client(&server);
    client.open(Some("ses".parse().unwrap()), Opening::default());
    let serves = async {
        let (mut peer, _) = server.welcome().await;
        let command = peer.read("open_session").await;
        let error = json!({"code": "overloaded", "message": "too busy", "retriable": true, "retryAfterMs": 10_000});
        peer.reply(&command, json!({"type": "error", "payload": error})).await;
        for _ in 0..100 {
            peer.write(&example("events/session_changed.json")).await;
        }
        peer
    };
    let lives = until(&mut client, |update| matches!(update, Update::Retrying { .. }).then_some(()));
    let (_peer, ()) = tokio::join!(serves, lives);
    // From here on there is always another frame.
    until(&mut client, |update| matches!(update, Update::Listed(_)).then_some(())).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    let is_due = |client: &Client| client.machine().deadline().unwrap() <= tokio::time::Instant::now().into_std();
    assert!(is_due(&client));
    for _ in 0..40 {
        assert!(matches!(client.next().await, Update::Listed(_)));
    }
    assert!(!is_due(&client), "the session is asked for again before all frames are read");
}

#[tokio::test]
async fn a_frame_larger_than_any_is_not_read() {
    let server = Server::start().await;
    let mut client = client(&server);
    let serves = async {
        let (mut peer, _) = server.welcome().await;
        // The head of a text frame of a tebibyte.
        peer.write_raw(&[0x81, 127, 0, 0, 1, 0, 0, 0, 0, 0]).await;
        peer
    };
    let lives = until(&mut client, |update| if let Update::Stopped(stop) = update { Some(stop) } else { None });
    let (_peer, stop) = tokio::join!(serves, lives);
    assert!(matches!(stop, Stop::Lost(Lost::Refused(_))), "{stop}");
}

#[tokio::test]
async fn a_request_waits_for_its_reply_and_keeps_the_rest() {
    let server = Server::start().await;
    let mut client = client(&server);
    let serves = async {
        let (mut peer, _) = server.welcome().await;
        peer.opens(json!({})).await;
        let command = peer.read("get_context_info").await;
        peer.event(2, 1).await;
        peer.write(&json!({"sessionId": "ses", "type": "run_tool", "payload": {"toolCallId": "call"}})).await;
        peer.reply(&command, example("replies/context_info.json")).await;
        peer
    };
    let lives = async {
        let session = client.open_now(Some("ses".parse().unwrap()), Opening::default()).await.unwrap();
        let reply = client.request(session, &Command::GetContextInfo(Empty {})).await.unwrap();
        assert!(matches!(reply, Reply::ContextInfo(_)));
        let mut told = Vec::new();
        for _ in 0..4 {
            told.push(match client.next().await {
                Update::Connected(_) => "connected".to_owned(),
                Update::Opened { .. } => "opened".to_owned(),
                Update::Event { event: SessionEvent::Durable(seq, _), .. } => seq.to_string(),
                Update::Event { event: SessionEvent::Ephemeral(event), .. } => event.name().to_owned(),
                other => panic!("{other:?}"),
            });
        }
        told
    };
    let (_peer, told) = tokio::join!(serves, lives);
    assert_eq!(told, ["connected", "opened", "2", "run_tool"]);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_refused_for_now_is_given_up_in_the_end() {
    let server = Server::start().await;
    let mut client = client(&server);
    let serves = async {
        let (mut peer, _) = server.welcome().await;
        for _ in 0..5 {
            let command = peer.read("open_session").await;
            let error = json!({"code": "overloaded", "message": "too busy", "retriable": true});
            peer.reply(&command, json!({"type": "error", "payload": error})).await;
        }
        peer
    };
    let (_peer, opened) = tokio::join!(serves, client.open_now(Some("ses".parse().unwrap()), Opening::default()));
    let why = opened.unwrap_err();
    assert!(matches!(why, Error::NotOpened { refusals: 5, .. }), "{why}");
    assert_eq!(why.to_string(), "the session was refused 5 times: too busy");
    assert_eq!(client.machine().find(&"ses".parse().unwrap()), None, "it is closed");
}

#[tokio::test]
async fn a_session_that_is_opened_too_late_is_not_opened_later() {
    let server = Server::start().await;
    let mut client = client(&server);
    let stops = async { server.welcome().await.0.close(4400).await };
    let lives = async {
        let opened = client.open_now(None, Opening::default()).await;
        assert!(matches!(opened, Err(Error::Stopped(_))), "{opened:?}");
    };
    tokio::join!(stops, lives);
    client.connect();
    let to = To::Id("ses".parse().unwrap());
    client.send(to, &rename("harbour")).unwrap();
    let serves = async {
        let (mut peer, _) = server.welcome().await;
        peer.read("rename_session").await;
    };
    tokio::select! {
        () = serves => {}
        () = async { loop { client.next().await; } } => {}
    }
}

#[tokio::test]
async fn who_closes_reads_until_the_other_end_has_closed_too() {
    let server = Server::start().await;
    let mut client = client(&server);
    let connects = until(&mut client, |update| matches!(update, Update::Connected(_)).then_some(()));
    let ((mut peer, _), ()) = tokio::join!(server.welcome(), connects);
    for seq in 0..100 {
        peer.event(seq, 1_000).await;
    }
    let closing = tokio::spawn(client.close());
    assert!(matches!(peer.message().await, Some(Message::Close(_))));
    assert!(!closing.is_finished(), "its own close is not answered yet");
    // Reading on sends the answer.
    assert_eq!(peer.message().await, None);
    closing.await.unwrap();
}

#[tokio::test]
async fn who_closes_says_goodbye_and_what_was_asked_before_arrives() {
    let server = Server::start().await;
    let mut client = client(&server);
    let serves = async {
        let (mut peer, _) = server.welcome().await;
        peer.opens(json!({})).await;
        let mut frames = Vec::new();
        while let Some(message) = peer.message().await {
            frames.push(match message {
                Message::Text(text) => {
                    serde_json::from_str::<Value>(&text).unwrap()["type"].as_str().unwrap().to_owned()
                }
                Message::Close(_) => "close".to_owned(),
                other => format!("{other:?}"),
            });
        }
        frames
    };
    let lives = async {
        let session: Session = client.open_now(Some("ses".parse().unwrap()), Opening::default()).await.unwrap();
        client.send(session, &input()).unwrap();
        client.close().await;
    };
    let (frames, ()) = tokio::join!(serves, lives);
    assert_eq!(frames, ["user_input", "close_session", "close"]);
}
