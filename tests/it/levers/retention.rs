//! Sessions that have not changed for long are deleted, by the class of their owner.

use super::{ANN, model, session_of, users::remark};
use crate::support::{
    http,
    issuer::{ISSUER, Issuer},
    polling::until,
    server::{Server, read},
};
use reseed::store::{SessionStore as _, sqlite::SqliteStore};
use reseed_protocol::{SessionId, Timestamp};
use serde_json::json;
use std::{collections::BTreeSet, fs, sync::Arc, time::SystemTime};

const OPERATOR: &str = "operator-token-of-some-length";

/// Returns the time of so many days ago.
fn days_ago(days: i64) -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64;
    Timestamp(now - days * 24 * 60 * 60 * 1_000)
}

#[tokio::test]
async fn old_sessions_are_deleted_by_the_class_of_their_owner() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let of_issuer = format!("{ISSUER}|17");
    // The owner, the days since the last change, and whether the session stays.
    let table = [
        ("ann", 29, true),
        ("ann", 31, false),
        ("guest", 1, true),
        ("guest", 3, false),
        ("boss", 3_000, true),
        ("service:shop|17", 1, true),
        ("service:shop|17", 3, false),
        ("service:other|17", 3, true),
        ("service:other|17", 31, false),
        // Their token may name any class.
        (&*of_issuer, 3_000, true),
    ];
    let mut stay = BTreeSet::new();
    for (number, (owner, days, stays)) in table.into_iter().enumerate() {
        let id: SessionId = format!("session-{number:08}").parse().unwrap();
        let lease = store.create(&id, owner, days_ago(days)).await.unwrap();
        store.append(&lease, 1, remark(number, days_ago(days))).await.unwrap();
        if stays {
            stay.insert(id.to_string());
        }
    }
    // More than a page of them.
    for number in 0..250 {
        let id: SessionId = format!("session-many-{number:08}").parse().unwrap();
        let lease = store.create(&id, "ann", days_ago(40)).await.unwrap();
        store.append(&lease, 1, remark(number, days_ago(40))).await.unwrap();
    }
    let budgets = folder.path().join("budgets.json");
    let file = json!({
        "classes": { "guests": [], "staff": [] },
        "users": { "guest": "guests", "boss": "staff" }, "services": { "shop": "guests" },
    });
    fs::write(&budgets, file.to_string()).unwrap();
    let issuer = Issuer::start().await;
    let operators = format!("ops:{OPERATOR}");
    let settings = issuer.settings(&[
        ("AUTH_TOKENS", "ann:token-of-ann-0123456789"),
        ("OPERATOR_TOKENS", &operators),
        ("AUTH_JWT_CLASS_CLAIM", "class"),
        ("BUDGETS_FILE", budgets.to_str().unwrap()),
    ]);
    let server = Server::over(model(), store.clone(), &settings).await;
    let open = "session-00000001";
    let (mut ann, _) = session_of(&server.ws(), ANN, json!({ "sessionId": open })).await;
    stay.insert(open.to_owned());
    let kept = async || {
        let listed = http::get_as(&server.address(), "/api/sessions?limit=1000", OPERATOR).await.json();
        let ids = listed["items"].as_array().unwrap().iter().map(|item| item["sessionId"].as_str().unwrap().to_owned());
        ids.collect::<BTreeSet<String>>()
    };
    assert_eq!(kept().await.len(), 260, "by default, all are kept");
    let changed = [&settings[..], &[("RETENTION_DAYS", "30,guests=2,staff=0")]].concat();
    server.service.reload(&read(&changed)).await.unwrap();
    until("the old ones are deleted", async || {
        let kept = kept().await;
        if kept == stay { Ok(()) } else { Err(format!("{} are kept: {kept:?}", kept.len())) }
    })
    .await;
    ann.turn("It is still open.").await;
    server.service.stop().await;
}
