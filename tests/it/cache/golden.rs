//! The same context gives the same bytes, also in another process on another machine: the fixtures were written once by
//! another process. `UPDATE=1` rewrites them, which means that every provider's cache of every session is invalidated.

use super::{kind, tools};
use crate::support::{
    client::Client,
    server::Server,
    upstream::{Reply, Upstream},
};
use reseed::store::{Append, EntryColumns, Head, NewRecord, SessionStore, memory::MemoryStore};
use reseed_protocol::{Timestamp, event::Event};
use serde_json::{Value, json};
use std::{fs, path::Path, sync::Arc};

/// Returns a store with the session in `history.json`, whose lines are the events of its log.
async fn store(folder: &Path) -> (Arc<MemoryStore>, String) {
    let store = Arc::new(MemoryStore::new());
    let session = "golden".parse().unwrap();
    let lease = store.create(&session, "", Timestamp(0)).await.unwrap();
    let history: Vec<Event> = serde_json::from_str(&fs::read_to_string(folder.join("history.json")).unwrap()).unwrap();
    let record = |event: &Event| NewRecord {
        body: serde_json::to_string(event).unwrap().into(),
        entry: EntryColumns::of(event),
    };
    // The head has no state, so the log is folded.
    let head = Head { entries: history.len() as u64, ..Head::default() };
    let append = Append { records: history.iter().map(record).collect(), marks: Vec::new(), usage: Vec::new(), head };
    store.append(&lease, 1, append).await.unwrap();
    store.release(&lease).await.unwrap();
    (store, session.to_string())
}

#[tokio::test]
async fn a_context_is_the_bytes_that_it_was() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/requests");
    for api in ["chat", "responses", "messages"] {
        let upstream = Upstream::replying([Reply::text("Then I shall hurry.")]).await;
        let (store, session) = store(&folder).await;
        let messages_url = upstream.messages_url();
        let by_api: &[(&str, &str)] = match api {
            "messages" => &[("MODEL_PROVIDER", "anthropic"), ("ANTHROPIC_BASE_URL", &messages_url)],
            api => &[("OPENAI_API", api)],
        };
        let settings = [by_api, &[("CONTEXT_WINDOW", "100000")]].concat();
        let server = Server::facing_over(&upstream.base_url(), store, &settings).await;
        let mut client = Client::v2(&server.ws()).await;
        let opened = client.ask("open_session", json!({ "sessionId": session, "tools": tools() })).await;
        assert_eq!(kind(&opened), "session_opened", "{opened}");
        assert_eq!(client.turn("And from the other pier?").await["status"], "completed");
        upstream.assert_clean();
        let sent = upstream.requests()[0].raw.clone();
        let file = folder.join(format!("{api}.json"));
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&file, sent.as_bytes()).unwrap();
        }
        let golden = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let values: [Value; 2] = [&*sent, &*golden].map(|text| serde_json::from_str(text).unwrap());
        assert_eq!(values[0], values[1], "over {api}");
        assert_eq!(*sent, *golden, "over {api} it says the same in other bytes");
    }
}
