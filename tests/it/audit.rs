//! The audit log of the real binary: what it contains, what it never contains, and that nothing is deleted without it.

use crate::{
    reload::reload,
    support::{
        binary::{self, Binary, Ended},
        client::Client,
        http,
        json::present,
    },
};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
};
use tempfile::TempDir;

const ANN: &str = "token-of-ann-0123456789";
const SHOP: &str = "token-of-shop-c2ab5e01f7";
const OPERATOR: &str = "operator-token-of-some-length";
const WRITER: &str = "writer-token-of-some-length";
const SETTINGS: [(&str, &str); 7] = [
    ("AUTH_TOKENS", "ann:token-of-ann-0123456789"),
    ("SERVICE_TOKENS", "shop:token-of-shop-c2ab5e01f7"),
    ("OPERATOR_TOKENS", "ops:operator-token-of-some-length,boss/write:writer-token-of-some-length"),
    ("ALLOWED_ORIGINS", "https://shop.example"),
    ("OFFLINE_WORD_MILLIS", "0"),
    ("AUDIT_FILE", "audit"),
    ("LOG_LEVEL", "debug"),
];

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

async fn verify(folder: &Path, arguments: &[&str]) -> Ended {
    binary::run(folder, &[&["audit", "verify"], arguments].concat(), &SETTINGS).await
}

async fn hello(server: &Binary, credentials: Value) -> (Client, Value) {
    let mut client = Client::connect(&server.ws()).await;
    let mut hello = json!({ "protocolVersion": 2 });
    hello.as_object_mut().unwrap().extend(credentials.as_object().unwrap().clone());
    let reply = client.ask("hello", hello).await;
    (client, reply)
}

async fn ann(server: &Binary) -> Client {
    let (client, welcome) = hello(server, json!({ "token": ANN })).await;
    assert_eq!(welcome["type"], "welcome", "{welcome}");
    client
}

async fn new_session(client: &mut Client) -> Value {
    present(&client.ask("open_session", json!({})).await["payload"]["sessionId"]).clone()
}

async fn call(server: &Binary, method: &str, path: &str, token: &str, body: &Value) -> Value {
    let headers = [("Authorization", &*format!("Bearer {token}")), ("Content-Type", "application/json")];
    let answered = http::send(&server.address, method, path, &headers, &body.to_string()).await;
    assert_eq!(answered.status, 200, "{path}: {answered:?}");
    answered.json()
}

/// Pulls a lever; returns the status and the answer.
async fn pull(server: &Binary, path: &str, token: &str) -> (u16, Value) {
    let bearer = format!("Bearer {token}");
    let answered = http::ask(&server.address, "POST", path, &[("Authorization", &bearer)]).await;
    (answered.status, answered.json())
}

fn lines(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("audit")).unwrap();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[tokio::test]
async fn what_is_done_leaves_lines_without_any_text_and_a_change_of_them_shows() {
    const CANARY: &str = "canary-phrase";
    let folder = folder();
    let folder = folder.path();
    let server = Binary::start(folder, &SETTINGS).await;
    let mut client = ann(&server).await;
    let session = new_session(&mut client).await;
    client.turn(CANARY).await;
    client.ask("rename_session", json!({ "name": CANARY })).await;
    hello(&server, json!({ "token": CANARY })).await;
    let minted = call(&server, "POST", "/api/tickets", SHOP, &json!({ "principal": "17", "sessionId": CANARY })).await;
    let (_visitor, welcome) = hello(&server, json!({ "ticket": minted["ticket"] })).await;
    assert_eq!(welcome["type"], "welcome", "{welcome}");
    let bearer = format!("Bearer {ANN}");
    let mut upgraded = Client::connect_with(&server.ws(), &[("Authorization", &bearer)]).await;
    upgraded.ask("hello", json!({ "protocolVersion": 2 })).await;
    for _ in 0..2 {
        let body = json!({ "model": "offline", "messages": [{ "role": "user", "content": CANARY }] });
        call(&server, "POST", "/v1/chat/completions", ANN, &body).await;
    }
    call(&server, "GET", "/api/sessions", OPERATOR, &json!({})).await;
    for id in [json!(CANARY), session.clone()] {
        client.ask("delete_session", json!({ "sessionId": id })).await;
    }
    let ticket = minted["id"].as_str().unwrap();
    for id in [CANARY, ticket] {
        call(&server, "DELETE", &format!("/api/tickets/{id}"), SHOP, &json!({})).await;
    }
    assert!(reload(&server).await);
    server.stop().await;

    let text = fs::read_to_string(folder.join("audit")).unwrap();
    for secret in [CANARY, ANN, SHOP, OPERATOR, minted["ticket"].as_str().unwrap()] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let mut found = lines(folder);
    for (at, line) in found.iter_mut().enumerate() {
        let line = line.as_object_mut().unwrap();
        assert_eq!(line.remove("seq"), Some(json!(at + 1)));
        assert!(line.remove("time").is_some() && line.remove("previous").is_some());
        assert_eq!(line.remove("address").is_some(), line.get("who") != Some(&json!("server")));
    }
    let user = "service:shop|17";
    let version = concat!("version ", env!("CARGO_PKG_VERSION"));
    let expected = json!([
        { "what": "begin", "who": "server" },
        { "what": "start", "who": "server", "outcome": version },
        { "what": "sign_in", "who": "ann", "on": "hello", "credential": "token", "outcome": "accepted" },
        { "what": "refusal", "on": "hello", "outcome": "nobody has this token" },
        { "what": "ticket", "who": "service:shop", "user": user, "ticket": ticket, "outcome": "minted" },
        { "what": "sign_in", "who": user, "on": "hello", "credential": "ticket", "ticket": ticket, "outcome": "accepted" },
        { "what": "sign_in", "who": "ann", "on": "handshake", "credential": "token", "outcome": "accepted" },
        { "what": "sign_in", "who": "ann", "on": "chat_completions", "credential": "token", "outcome": "accepted" },
        { "what": "read", "who": "ops", "on": "sessions", "outcome": "200" },
        { "what": "delete_session", "who": "ann", "user": "ann", "session": session, "outcome": "asked" },
        { "what": "delete_session", "who": "ann", "user": "ann", "session": session, "outcome": "deleted" },
        { "what": "revoke", "who": "service:shop", "outcome": "tickets 0, sockets 0" },
        { "what": "revoke", "who": "service:shop", "ticket": ticket, "outcome": "tickets 0, sockets 1" },
        { "what": "reload", "who": "server", "outcome": "ok" },
        { "what": "drain", "who": "server", "outcome": "begun" },
        { "what": "stop", "who": "server", "outcome": "stopped" },
    ]);
    assert_eq!(json!(found), expected, "{text}");

    let shown = binary::run(folder, &["audit", "--user", "ann", "--what", "delete_session"], &SETTINGS).await;
    let rows: Vec<&str> = shown.printed.lines().collect();
    assert!(rows.len() == 3 && rows[0].contains("WHAT") && rows[2].ends_with("deleted"), "{shown:?}");
    // The server's log has a copy of the head, so that a cut end shows.
    let log = binary::logged(folder);
    let head = log.lines().rfind(|line| line.contains("head of the audit log")).unwrap();
    let head = head.split("hash=").nth(1).unwrap().trim_matches('"');
    let ended = verify(folder, &["--expect", head]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.printed.contains("16 lines, unchanged; the last one has seq 16"), "{ended:?}");
    let whole: Vec<&str> = text.lines().collect();
    for (name, changed, said) in [
        ("changed", text.replace("minted", "printed"), "changed line 5 (seq 5) was changed"),
        (
            "removed",
            [&whole[..9], &whole[11..]].concat().join("\n"),
            "lines were removed between removed line 9 (seq 9)",
        ),
        ("cut", whole[..15].join("\n"), "no line has the expected hash"),
    ] {
        fs::write(folder.join(name), changed).unwrap();
        let ended = verify(folder, &[name, "--expect", head]).await;
        assert!(ended.code == Some(1) && ended.faults.contains(said), "{name}: {ended:?}");
        assert_eq!(verify(folder, &[name]).await.code, Some(i32::from(name != "cut")), "{name}");
    }
}

/// Writes a chain of long lines.
fn fill(path: &Path, bytes: usize) {
    let (mut previous, mut text, mut seq) = ("0".repeat(64), String::new(), 0);
    while text.len() < bytes {
        seq += 1;
        let what = if seq == 1 { "begin" } else { "filler" };
        let line = json!({
            "seq": seq, "time": "2026-11-30T02:51:19.000Z", "what": what, "outcome": "x".repeat(4_000),
            "previous": previous,
        });
        let line = line.to_string();
        let digest = ring::digest::digest(&ring::digest::SHA256, line.as_bytes());
        previous = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&line);
        text.push('\n');
    }
    fs::write(path, text).unwrap();
}

#[tokio::test]
async fn while_the_file_cannot_be_written_nothing_is_deleted_and_everyone_can_sign_in() {
    let folder = folder();
    let folder = folder.path();
    // The file is longer than the limit, and all files of the database are shorter.
    fill(&folder.join("audit"), 3 << 20);
    let server = Binary::start_with_file_limit(folder, &SETTINGS, 8 << 10).await;
    let mut client = ann(&server).await;
    let session = new_session(&mut client).await;
    client.turn("Is the sea warm?").await;
    server.limit_files(2 << 10).await;
    for _ in 0..2 {
        let refused = client.ask("delete_session", json!({ "sessionId": session })).await;
        assert_eq!(refused["payload"]["code"], "store_failed", "{refused}");
        let message = refused["payload"]["message"].as_str().unwrap();
        assert!(message.contains("the audit log cannot be written, so this is not done"), "{refused}");
    }
    let close = "/api/users/ann/close";
    for (token, status, code) in [(WRITER, 503, "store_failed"), (OPERATOR, 403, "forbidden")] {
        let (answered, error) = pull(&server, close, token).await;
        assert_eq!((answered, present(&error["code"])), (status, &json!(code)), "{error}");
    }
    assert_eq!(client.turn("Is it still there?").await["status"], "completed");
    let mut other = ann(&server).await;
    assert_eq!(other.ask("open_session", json!({ "sessionId": session })).await["type"], "session_opened");
    let metrics = http::get_as(&server.address, "/metrics", OPERATOR).await.body;
    let lost = metrics.lines().find_map(|line| line.strip_prefix("reseed_audit_lines_total{outcome=\"lost\"} "));
    assert!(lost.unwrap().parse::<u64>().unwrap() > 0, "{metrics}");
    server.limit_files(8 << 10).await;
    let deleted = client.ask("delete_session", json!({ "sessionId": session })).await;
    assert_eq!(deleted["type"], "ok", "{deleted}");
    let (status, closed) = pull(&server, close, WRITER).await;
    assert_eq!(status, 200, "{closed}");
    assert_ne!(present(&closed["sockets"]), &json!(0), "{closed}");
    server.stop().await;
    let ended = verify(folder, &[]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let found = lines(folder);
    assert!(found.iter().any(|line| line["what"] == "lost"), "{:?}", found.last());
    assert!(found.iter().any(|line| line["what"] == "delete_session" && line["outcome"] == "deleted"));
    let levers = found.iter().filter(|line| line["what"] == "close_user");
    let levers: Vec<_> = levers.map(|line| ["who", "user", "outcome"].map(|field| present(&line[field]))).collect();
    assert_eq!(json!(levers), json!([["boss", "ann", "asked"], ["boss", "ann", "done"]]));
}

#[tokio::test]
async fn refused_levers_cannot_fill_the_file() {
    let folder = folder();
    let folder = folder.path();
    let server = Binary::start(folder, &SETTINGS).await;
    for _ in 0..60 {
        let (status, error) = pull(&server, "/api/drain", OPERATOR).await;
        assert_eq!((status, present(&error["code"])), (403, &json!("forbidden")), "{error}");
    }
    server.stop().await;
    let refused = |line: &&Value| line["what"] == "refusal" && line["on"] == "drain";
    let count = lines(folder).iter().filter(refused).count();
    assert!((30..60).contains(&count), "{count} lines");
}

#[tokio::test]
async fn after_a_kill_every_acknowledged_deletion_is_in_the_chain() {
    let folder = folder();
    let folder = folder.path();
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let mut server = Binary::start(folder, &SETTINGS).await;
        let mut client = ann(&server).await;
        for _ in 0..4 {
            let session = new_session(&mut client).await;
            client.turn("Is the sea warm?").await;
            assert_eq!(client.ask("delete_session", json!({ "sessionId": session })).await["type"], "ok");
            acknowledged.push(session);
        }
        let session = new_session(&mut client).await;
        client.send("delete_session", json!({ "sessionId": session })).await;
        server.kill_now().await;
        if round == 1 {
            // A kill rarely tears a line, so this one is torn by hand.
            let mut file = File::options().append(true).open(folder.join("audit")).unwrap();
            file.write_all(br#"{"seq":99,"ti"#).unwrap();
            let ended = verify(folder, &[]).await;
            assert!(ended.code == Some(0) && ended.printed.contains("is not complete"), "{ended:?}");
        }
    }
    Binary::start(folder, &SETTINGS).await.stop().await;
    let ended = verify(folder, &[]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.printed.contains("was not written to its end; the line after it says so"), "{ended:?}");
    let found = lines(folder);
    let done = |session: &Value| {
        let is_done = |line: &Value| line["session"] == *session && line["outcome"] == "deleted";
        found.iter().any(is_done)
    };
    assert!(acknowledged.iter().all(done), "{acknowledged:?}");
}

#[tokio::test]
async fn a_rotated_log_is_one_chain_and_no_other_server_writes_it() {
    let folder = folder();
    let folder = folder.path();
    let server = Binary::start(folder, &SETTINGS).await;
    fs::rename(folder.join("audit"), folder.join("audit.1")).unwrap();
    assert!(reload(&server).await);
    let other = [&SETTINGS[..], &[("DATABASE_URL", "sqlite://./other.db")]].concat();
    let refused = binary::run(folder, &[], &other).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.faults.contains("AUDIT_FILE `./audit`: another process writes to it"), "{refused:?}");
    server.stop().await;
    for (files, code, said) in [
        (["audit.1", "audit"].as_slice(), 0, "6 lines, unchanged"),
        (&["audit"], 0, "these files begin with seq 3"),
        (&["audit", "audit.1"], 1, "audit.1 line 1 (seq 1) begins a new chain"),
    ] {
        let ended = verify(folder, files).await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(format!("{}{}", ended.printed, ended.faults).contains(said), "{ended:?}");
    }
}
