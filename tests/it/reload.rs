//! SIGHUP: a running server applies changed settings, and keeps its sockets.

use crate::support::{
    binary::{self, Binary},
    client::Client,
    http,
    json::present,
    talk::reply_to,
    upstream::Upstream,
    webhook::{self, Webhook},
};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::timeout,
};

const OPERATOR: &str = "operator-token-of-some-length";
const ADA: &str = "token-of-ada-4d1f9a73c2";
const BOB: &str = "token-of-bob-77e3c0d8f4";
const CAROL: &str = "token-of-carol-c2ab5e01";

/// Writes `.env`; the operator is always in it.
fn write(folder: &Path, lines: &[&str]) {
    let text = format!("OPERATOR_TOKENS=ops:{OPERATOR}\n{}\n", lines.join("\n"));
    fs::write(folder.join(".env"), text).unwrap();
}

/// Returns how often settings were applied, and how often not.
async fn counts(server: &Binary) -> [u64; 2] {
    let metrics = http::get_as(&server.address, "/metrics", OPERATOR).await.body;
    ["ok", "failed"].map(|outcome| {
        let name = format!("reseed_settings_reloads_total{{outcome=\"{outcome}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().unwrap())
    })
}

async fn hang_up(pid: u32) {
    let sent = Command::new("sh").args(["-c", "kill -HUP \"$0\"", &pid.to_string()]).status().await;
    assert!(sent.unwrap().success());
}

/// Sends SIGHUP; returns true if the settings were applied.
pub(crate) async fn reload(server: &Binary) -> bool {
    let before = counts(server).await;
    hang_up(server.pid()).await;
    loop {
        let now = counts(server).await;
        if now != before {
            return now[0] > before[0];
        }
    }
}

async fn hello(server: &Binary, token: &str) -> (Client, Value) {
    let mut client = Client::connect(&server.ws()).await;
    let reply = client.ask("hello", json!({ "protocolVersion": 2, "token": token })).await;
    (client, reply)
}

#[tokio::test]
async fn only_sockets_whose_credentials_are_gone_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = |text: String| fs::write(folder.path().join("tokens"), text).unwrap();
    write(folder.path(), &["AUTH_TOKENS_FILE=tokens", "SERVICE_TOKENS=shop:token-of-shop-c2ab5e01f7"]);
    tokens(format!("ada:{ADA},bob:{BOB}\n"));
    let server = Binary::start(folder.path(), &[("MODEL", "offline"), ("DATABASE_URL", "sqlite://./r.db")]).await;
    let mint = async |principal: &str| {
        let bearer = [("Authorization", "Bearer token-of-shop-c2ab5e01f7")];
        let body = json!({ "principal": principal }).to_string();
        http::send(&server.address, "POST", "/api/tickets", &bearer, &body).await.json()["ticket"].clone()
    };
    let (mut ada, _) = hello(&server, ADA).await;
    let (mut bob, _) = hello(&server, BOB).await;
    let mut of_shop = Client::connect(&server.ws()).await;
    of_shop.ask("hello", json!({ "protocolVersion": 2, "ticket": mint("17").await })).await;
    let unused = mint("18").await;
    ada.ask("open_session", json!({})).await;
    ada.turn("Before.").await;

    tokens(format!("ada:{ADA},carol:{CAROL}\n"));
    write(
        folder.path(),
        &["AUTH_TOKENS_FILE=tokens", "SERVICE_TOKENS=shop/read:token-of-shop-c2ab5e01f7", "WS_PORT=1"],
    );
    assert!(reload(&server).await, "{}", binary::logged(folder.path()));
    assert_eq!(bob.closed().await, 4401);
    assert_eq!(of_shop.closed().await, 4401, "what it was granted is more than the service may grant now");
    assert_eq!(ada.turn("After.").await["status"], "completed");
    let refused = hello(&server, BOB).await.1;
    assert_eq!(refused["payload"]["code"], "unauthenticated", "{refused}");
    let mut by_ticket = Client::connect(&server.ws()).await;
    let refused = by_ticket.ask("hello", json!({ "protocolVersion": 2, "ticket": unused })).await;
    assert_eq!(refused["payload"]["code"], "unauthenticated", "{refused}");
    let welcome = hello(&server, CAROL).await.1;
    assert_eq!(welcome["type"], "welcome", "{welcome}");

    // The same token with another name is another user.
    tokens(format!("ada:{ADA},caroline:{CAROL}\n"));
    let (mut carol, _) = hello(&server, CAROL).await;
    assert!(reload(&server).await);
    assert_eq!(carol.closed().await, 4401);
    let log = binary::logged(folder.path());
    for secret in [ADA, BOB, CAROL, OPERATOR] {
        assert!(!log.contains(secret), "{log}");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_cannot_be_used_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = format!("AUTH_TOKENS=ada:{ADA}");
    let hooks = "HOOKS_FILE=hooks.json";
    let file = |text: &str| fs::write(folder.path().join("hooks.json"), text).unwrap();
    let good: [&str; 2] = [&tokens, hooks];
    write(folder.path(), &good);
    file(r#"{ "hooks": [] }"#);
    let server = Binary::start(folder.path(), &[("MODEL", "offline")]).await;
    let (mut ada, _) = hello(&server, ADA).await;
    ada.ask("open_session", json!({})).await;
    let wrong = format!("AUTH_TOKENS=bob:{BOB}");
    let table: [(&[&str], &str, &str); 7] = [
        (&["AUTH_TOKENS=bob"], "{ \"hooks\": [] }", "AUTH_TOKENS is set to a value that is not allowed"),
        (&[&wrong, "CONTEXT_COMPACTION_THRESHOLD=2"], "{ \"hooks\": [] }", "CONTEXT_COMPACTION_THRESHOLD is `2`"),
        (&[&wrong, "no line of settings"], "{ \"hooks\": [] }", ".env"),
        (&[&wrong, hooks], "{ not json", "hooks.json"),
        (&[&wrong, "AUTH_TOKENS_FILE=none"], "{ \"hooks\": [] }", "both set"),
        (
            &[&wrong, "AUTH_JWT_KEY_FILE=none", "AUTH_JWT_ISSUER=https://id.example", "AUTH_JWT_AUDIENCE=chat"],
            "{ \"hooks\": [] }",
            "AUTH_JWT_KEY_FILE names",
        ),
        (&[], "{ \"hooks\": [] }", "everyone would be let in"),
    ];
    for (lines, hooks, expected) in table {
        write(folder.path(), lines);
        file(hooks);
        assert!(!reload(&server).await, "{lines:?}");
        let log = binary::logged(folder.path());
        let said = log.lines().rfind(|line| line.contains("not taken up")).unwrap_or_else(|| panic!("{log}"));
        let rest = &log[log.find(said).unwrap()..];
        assert!(rest.contains(expected), "{lines:?}: {rest}");
        assert_eq!(hello(&server, BOB).await.1["payload"]["code"], "unauthenticated", "{lines:?}");
    }
    write(folder.path(), &good);
    file(r#"{ "hooks": [] }"#);
    assert!(reload(&server).await);
    assert_eq!(ada.turn("Still here?").await["status"], "completed");
    server.stop().await;
}

#[tokio::test]
async fn prices_hooks_keys_and_the_log_level_are_taken_up_by_open_sessions() {
    let upstream = Upstream::start({
        let mut number = 0;
        move |asked| {
            number += 1;
            reply_to(asked, number, 10)
        }
    })
    .await;
    let webhook = Webhook::answering(|_| (200, json!({}))).await;
    let folder = tempfile::tempdir().unwrap();
    let base_url = upstream.base_url();
    write(folder.path(), &["MODEL_PRICES=test=1/1/1", "OPENAI_API_KEY=first-key-of-the-model"]);
    let settings = [("OPENAI_BASE_URL", base_url.as_str()), ("MODEL", "test"), ("CONTEXT_WINDOW", "8000")];
    let server = Binary::start(folder.path(), &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let price = |turn: &Value| {
        let usage = present(&turn["usage"]);
        let tokens = usage["inputTokens"].as_u64().unwrap() + usage["outputTokens"].as_u64().unwrap();
        usage["costNanoUsd"].as_u64().unwrap() / tokens
    };
    assert_eq!(price(&client.turn("One.").await), 1_000);
    let hook = webhook::hook("watch", &webhook.url, json!([{ "point": "message" }]));
    webhook::file(folder.path(), &[hook]);
    let more = ["MODEL_PRICES=test=3/3/3", "OPENAI_API_KEY=second-key-of-the-model", "HOOKS_FILE=hooks.json"];
    write(folder.path(), &[&more[..], &["LOG_LEVEL=debug", "MODEL_TIMEOUT=1"]].concat());
    assert!(reload(&server).await, "{}", binary::logged(folder.path()));
    assert_eq!(price(&client.turn("Two.").await), 3_000);
    let keys: Vec<String> =
        upstream.requests().iter().map(|asked| asked.header("authorization").unwrap_or_default().to_owned()).collect();
    assert_eq!(keys, ["Bearer first-key-of-the-model", "Bearer second-key-of-the-model"]);
    assert_eq!(webhook.calls().len(), 2, "asked about the input and the answer");

    // A removed hook is no longer called.
    webhook::file(folder.path(), &[]);
    assert!(reload(&server).await);
    assert_eq!(client.turn("Three.").await["status"], "completed");
    assert_eq!(webhook.calls().len(), 2);
    upstream.assert_clean();
    drop(client);
    server.stop().await;
    assert!(binary::logged(folder.path()).contains("session left memory"), "a line of `debug`");
}

#[tokio::test]
async fn a_server_ends_with_the_terminal_that_it_was_started_in() {
    let folder = tempfile::tempdir().unwrap();
    // The server must not hold the other end itself.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let slave = ioctl_tiocgptpeer(&master, flags).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_reseed"));
    server.current_dir(folder.path()).env_clear().envs([("WS_PORT", "0"), ("MODEL", "offline")]);
    server.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::from(slave)).kill_on_drop(true);
    let mut child = server.spawn().unwrap();
    drop(server);
    let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = printed.next_line().await.unwrap().expect("the server starts");
    assert!(line.contains("listens on"), "{line}");
    drop(master);
    // The system sends it to the programs of a terminal that is closed.
    hang_up(child.id().unwrap()).await;
    let ended = timeout(Duration::from_secs(60), child.wait()).await.expect("it ends");
    assert_eq!(ended.unwrap().code(), Some(0));
}
