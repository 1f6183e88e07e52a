//! Compactions that are prepared early and held: with the default settings they are committed at the threshold,
//! whatever the window and protocol version, and they survive a restart.

use crate::support::{
    client::Client,
    conversation::{Conversation, Dialect},
    json::{present, whole},
    server::Server,
    talk::{is_summary, reply_to, words},
    upstream::{Asked, Upstream},
};
use reseed::store::sqlite::SqliteStore;
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns a model that talks in answers of forty words and keeps facts.
async fn talker() -> Upstream {
    let mut number = 0;
    Upstream::start(move |asked| {
        number += 1;
        reply_to(asked, number, 40)
    })
    .await
}

/// Returns another client that observes this session.
async fn observer(url: &str, session: &Value) -> Client {
    let mut observer = Client::v2(url).await;
    let opened = observer.ask("open_session", json!({ "sessionId": session, "role": "observer" })).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    observer
}

/// Talks in turns of a twenty-fifth of the window until the first compaction, and checks where it happens.
async fn first_compaction(window: u64, dialect: Dialect) {
    let case = format!("{window} tokens, {dialect:?}");
    let upstream = talker().await;
    // The defaults, except for the window.
    let server = Server::facing(&upstream.base_url(), &[("CONTEXT_WINDOW", &window.to_string())]).await;
    let mut talk = Conversation::begin(&server.ws(), dialect).await;
    // On v1 there is no session before something is said.
    talk.talk("Hello").await;
    let session = talk.info().await["sessionId"].clone();
    let mut observer = observer(&server.ws(), &session).await;
    // The counts of everything, and of each thing once.
    let (mut before, mut turn_max, mut prepared) = (whole(&talk.info().await["tokenCount"]), 0, None);
    for turn in 0..40 {
        let info = talk.talk(&words(turn, usize::try_from(window / 25).unwrap())).await;
        let trigger = whole(&info["compactAtTokens"]);
        let compactions = talk.came("context_compacted");
        if let [compacted] = compactions.as_slice() {
            let [before, after] = dialect.compacted_counts();
            let at = whole(&compacted[before]);
            assert!(at > trigger && at <= trigger + turn_max, "{case}: at {at}, not {trigger} to {turn_max} more");
            assert_eq!(compacted["pausedMs"], 0, "{case}: somebody waited");
            assert!(whole(&compacted[after]) < trigger, "{case}: {compacted}");
            let prepared: Value = prepared.unwrap_or_else(|| panic!("{case}: nothing was prepared"));
            assert_eq!(*present(&prepared["jobId"]), compacted["jobId"], "{case}: the one that was prepared");
            assert_eq!(whole(&prepared["compactAtTokens"]), trigger, "{case}: what was promised");
            // Nothing causes another.
            assert_eq!(upstream.requests().iter().filter(|asked| is_summary(asked)).count(), 1, "{case}");
            upstream.assert_clean();
            return;
        }
        let now = whole(&info["tokenCount"]);
        assert!(now <= trigger, "{case}: {now} tokens, compacted above {trigger}");
        turn_max = turn_max.max(now - before);
        before = now;
        if prepared.is_none() && now > whole(&info["prepareAtTokens"]) {
            prepared = Some(observer.event("compaction_prepared").await["payload"].clone());
        }
    }
    panic!("{case}: forty turns did not fill the window");
}

macro_rules! windows {
    ($($name:ident: $tokens:literal,)*) => {
        $(#[tokio::test]
        async fn $name() {
            for dialect in [Dialect::V1, Dialect::V2] {
                first_compaction($tokens, dialect).await;
            }
        })*
    };
}

windows! {
    a_window_of_8_k_is_used_up_to_the_trigger: 8_000,
    a_window_of_40_k_is_used_up_to_the_trigger: 40_000,
    a_window_of_128_k_is_used_up_to_the_trigger: 128_000,
    a_window_of_400_k_is_used_up_to_the_trigger: 400_000,
    a_window_of_1_m_is_used_up_to_the_trigger: 1_000_000,
}

/// Talks until a compaction is held; returns the tokens of the next request.
async fn until_held(client: &mut Client) -> Value {
    for turn in 0..40 {
        let info = client.turn(&words(turn, 300)).await["contextInfo"].clone();
        if whole(&info["tokenCount"]) > whole(&info["prepareAtTokens"]) {
            return client.event("compaction_prepared").await["payload"].clone();
        }
    }
    panic!("forty turns did not come near the trigger");
}

#[tokio::test]
async fn what_is_held_outlives_the_server_and_the_next_request_is_the_same() {
    let mut bodies = Vec::new();
    for restarts in [false, true] {
        let upstream = talker().await;
        let folder = tempfile::tempdir().unwrap();
        let open = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
        let settings = [("CONTEXT_WINDOW", "8000"), ("strategy.userShare", "0")];
        let mut server = Server::facing_over(&upstream.base_url(), open(), &settings).await;
        let (mut client, opened) = Client::v2_session(&server.ws()).await;
        let prepared = until_held(&mut client).await;
        if restarts {
            client.hang_up();
            server.service.stop().await;
            drop(server);
            server = Server::facing_over(&upstream.base_url(), open(), &settings).await;
            client = Client::v2(&server.ws()).await;
            let opened = client.ask("open_session", json!({ "sessionId": opened["sessionId"] })).await;
            assert_eq!(opened["payload"]["role"], "writer", "{opened}");
        }
        let finished = client.turn(&words(99, 1_000)).await;
        assert_eq!(finished["status"], "completed", "{finished}");
        let compacted = client.seen.iter().find(|frame| frame["type"] == "context_compacted").expect("it is committed");
        let compacted = &compacted["payload"];
        assert_eq!(*present(&compacted["jobId"]), prepared["jobId"], "restarts: {restarts}");
        assert_eq!((&compacted["pausedMs"], &compacted["background"]), (&json!(0), &json!(true)));
        let requests: Vec<Asked> = upstream.requests();
        assert_eq!(requests.iter().filter(|asked| is_summary(asked)).count(), 1, "it is not made again");
        bodies.push(requests.last().unwrap().body.to_string());
        upstream.assert_clean();
    }
    assert_eq!(bodies[0], bodies[1], "the next request after a restart is the same, byte for byte");
}

#[tokio::test]
async fn what_is_left_out_for_nothing_is_chosen_anew_at_the_trigger() {
    // Six tenths of the window, which is the default.
    const TARGET: u64 = 4_800;
    let upstream = talker().await;
    let settings = [("CONTEXT_WINDOW", "8000"), ("CONTEXT_STRATEGY", "truncate")];
    let server = Server::facing(&upstream.base_url(), &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let mut seen = 0;
    for turn in 0..60 {
        client.turn(&words(turn, 200)).await;
        let compacted: Vec<&Value> = client.seen.iter().filter(|frame| frame["type"] == "context_compacted").collect();
        if compacted.len() > seen {
            seen = compacted.len();
            let left = whole(&compacted[seen - 1]["payload"]["tokensAfter"]);
            assert!(left <= TARGET, "compaction {seen} left {left} of {TARGET} tokens");
        }
    }
    assert!(seen >= 3, "{seen} compactions in sixty turns");
    assert!(upstream.requests().iter().all(|asked| !is_summary(asked)), "nothing is summarised");
}
