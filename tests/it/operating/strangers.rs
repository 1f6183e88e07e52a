//! How others see the server: Prometheus reads its metrics, and a page of another origin its refusal. Also how the
//! server sees the variables that platforms and build tools set.

use super::{QUICK, alerts::has_promtool, folder};
use crate::support::{
    binary::{Binary, logged},
    client::Client,
    http,
    talk::words,
};
use serde_json::json;
use std::{
    io::Write as _,
    process::{Command, Stdio},
};

#[tokio::test]
async fn promtool_finds_no_fault_in_the_metrics() {
    if !has_promtool() {
        return;
    }
    let folder = folder();
    let server = Binary::start(folder.path(), &QUICK).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.turn(&words(1, 30)).await;
    client.turn(&words(2, 300)).await;
    client.ask("start_compaction", json!({})).await;
    client.event("context_compacted").await;
    let metrics = http::get(&server.address, "/metrics").await.body;
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let checked = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
    assert!(checked.status.success() && said.is_empty(), "{said}");
}

#[tokio::test]
async fn a_page_that_is_refused_is_logged_with_the_cure_and_does_not_fill_the_log() {
    let folder = folder();
    let server = Binary::start(folder.path(), &QUICK).await;
    for count in 0..50 {
        let origin = format!("http://localhost:{}", 5173 + count % 2);
        let path = if count % 2 == 0 { "/ws" } else { "/api/tickets" };
        assert_eq!(http::ask(&server.address, "GET", path, &[("Origin", &origin)]).await.status, 403);
    }
    let log = logged(folder.path());
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("refuse a page")).collect();
    assert!(lines[0].contains("http://localhost:5173") && lines[0].contains("ALLOWED_ORIGINS"), "{lines:?}");
    assert!(lines[0].contains("WARN"), "{lines:?}");
    assert!(lines.len() < 25, "{lines:?}");
}

#[tokio::test]
async fn a_server_listens_where_its_platform_says_and_not_at_a_build_target() {
    let folder = folder();
    let blank_port = [("WS_PORT", ""), ("PORT", "0"), ("HOST", "x86_64-conda-linux-gnu")];
    let server = Binary::start(folder.path(), &[&QUICK[..], &blank_port].concat()).await;
    assert!(server.address.starts_with("127.0.0.1:") && !server.address.ends_with(":8080"), "{}", server.address);
    let log = logged(folder.path());
    assert!(
        log.lines().any(|line| line.contains("WARN") && line.contains("HOST is `x86_64-conda-linux-gnu`")),
        "{log}"
    );
}
