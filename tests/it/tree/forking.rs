//! `fork_session`: a new session from a path of another.

use super::{ask, get, refused};
use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    client::Client,
    json::{number, present, whole},
    server::Server,
    talk::{talker, words},
};
use reseed::{
    internals::{Fault, Faulty},
    store::{ListQuery, SessionStore, memory::MemoryStore, sqlite::SqliteStore},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns all entries of a session, in the order of its log.
async fn entries(client: &mut Client, session: &Value) -> Vec<Value> {
    let page = get(client, "get_entries", json!({ "sessionId": session, "limit": 500 }), "entries").await;
    assert_eq!(page["more"], false);
    page["items"].as_array().unwrap().clone()
}

/// Opens a session on a connection of its own.
async fn opened(server: &Server, session: &Value) -> (Client, Value) {
    let mut client = Client::v2(&server.ws()).await;
    let opened = get(&mut client, "open_session", json!({ "sessionId": session }), "session_opened").await;
    (client, opened)
}

async fn listed(client: &mut Client) -> Vec<Value> {
    let page = get(client, "list_sessions", json!({}), "sessions").await;
    page["items"].as_array().unwrap().clone()
}

fn texts(entries: &[Value]) -> Vec<&str> {
    entries.iter().map(|entry| entry["content"][0]["text"].as_str().unwrap_or_default()).collect()
}

#[tokio::test]
async fn a_fork_is_a_session_like_any_other_and_leaves_the_first_as_it_was() {
    let server = Server::start(talker(5), &[]).await;
    let (mut client, source) = Client::v2_session(&server.ws()).await;
    let id = &source["sessionId"];
    get(&mut client, "set_instructions", json!({ "instructions": "Be brief." }), "ok").await;
    get(&mut client, "set_options", json!({ "temperature": 0.5 }), "ok").await;
    get(&mut client, "set_context_strategy", json!({ "strategy": "manual" }), "ok").await;
    get(&mut client, "set_model", json!({ "model": "another", "reasoningEffort": "low" }), "ok").await;
    let (_, _) = ask(&mut client, "first question", None).await;
    let (_, a2) = ask(&mut client, "second question", None).await;
    let (q3, _) = ask(&mut client, "third question", None).await;
    get(&mut client, "rename_session", json!({ "name": "Ferries" }), "ok").await;
    let before = entries(&mut client, id).await;

    // At an entry, and before a question, which is returned: the same path.
    let at = get(&mut client, "fork_session", json!({ "entryId": a2, "position": "at" }), "forked").await;
    let back = get(&mut client, "fork_session", json!({ "entryId": q3, "position": "before" }), "forked").await;
    assert_eq!(at.get("input"), None);
    assert_eq!(back["input"], json!([{ "type": "text", "text": "third question" }]));
    let place = before.iter().position(|entry| entry["entryId"] == a2).unwrap();
    for forked in [&at, &back] {
        assert_eq!(entries(&mut client, &forked["sessionId"]).await, before[..=place]);
        let (mut other, of_fork) = opened(&server, &forked["sessionId"]).await;
        for (field, expected) in [
            ("name", json!("Ferries (fork)")),
            ("model", json!("another")),
            ("strategy", json!("manual")),
            ("leafId", a2.clone()),
            ("state", json!("idle")),
        ] {
            assert_eq!(of_fork[field], expected, "{field}");
        }
        let now = settings_now(id, &server).await;
        assert_eq!(of_fork["settings"], now, "all settings of the source");
        assert_eq!(of_fork["settings"]["instructions"], "Be brief.");
        assert_ne!(*present(&of_fork["epoch"]), *present(&source["epoch"]));
        // It continues with the path before it, and can be forked itself.
        let (question, answer) = ask(&mut other, "another third question", None).await;
        let context = get(&mut other, "get_context", json!({}), "context").await;
        let said: Vec<Value> = context["envelope"]["messages"]["cached"].as_array().unwrap().clone();
        assert_eq!(said.len(), 6, "{said:?}");
        assert_eq!((&said[3]["entryId"], &said[4]["entryId"]), (&a2, &question));
        let again = get(&mut other, "fork_session", json!({ "entryId": answer, "position": "at" }), "forked").await;
        let (_, of_again) = opened(&server, &again["sessionId"]).await;
        assert_eq!((&of_again["name"], &of_again["leafId"]), (&json!("Ferries (fork 2)"), &answer));
    }
    // The list has the forks and their sizes; the source is unchanged.
    let items = listed(&mut client).await;
    let item = items.iter().find(|item| item["sessionId"] == *present(&at["sessionId"])).unwrap();
    assert_eq!((&item["name"], &item["entries"]), (&json!("Ferries (fork)"), &json!(place + 3)), "{item}");
    assert!(whole(&item["tokenCount"]) > 0 && number(&item["usageRatio"]) > 0.0, "{item}");
    assert_eq!(items.len(), 5);
    assert_eq!(entries(&mut client, id).await, before);
    ask(&mut client, "fourth question", None).await;
}

/// Returns the current settings of a session, as an observer sees them.
async fn settings_now(session: &Value, server: &Server) -> Value {
    let mut observer = Client::v2(&server.ws()).await;
    let payload = json!({ "sessionId": session, "role": "observer" });
    get(&mut observer, "open_session", payload, "session_opened").await["settings"].clone()
}

#[tokio::test]
async fn names_of_entries_go_along_wherever_they_were_given_and_nothing_hangs_in_the_air() {
    let server = Server::start(talker(2), &[]).await;
    let (mut client, source) = Client::v2_session(&server.ws()).await;
    let (q1, a1) = ask(&mut client, "one", None).await;
    let (q2, _) = ask(&mut client, "two", None).await;
    // On the branch of `two`: labels of entries of both branches.
    for (entry, label) in [(&q1, "question"), (&a1, "answer"), (&q2, "two")] {
        get(&mut client, "set_label", json!({ "entryId": entry, "label": label }), "ok").await;
    }
    let (q3, a3) = ask(&mut client, "three", Some(&a1)).await;
    let foreign = get(&mut client, "set_label", json!({ "entryId": q2, "label": "there" }), "ok").await;
    let own = get(&mut client, "set_label", json!({ "entryId": a3, "label": "here" }), "ok").await;
    let (q4, a4) = ask(&mut client, "four", None).await;
    get(&mut client, "navigate", json!({ "entryId": q2, "position": "tip" }), "navigated").await;
    get(&mut client, "set_label", json!({ "entryId": a1 }), "ok").await;
    get(&mut client, "set_label", json!({ "entryId": q4, "label": "later" }), "ok").await;

    let forked = get(&mut client, "fork_session", json!({ "entryId": a4, "position": "at" }), "forked").await;
    let (mut other, of_fork) = opened(&server, &forked["sessionId"]).await;
    let tree = get(&mut other, "get_tree", json!({}), "tree").await;
    let nodes = tree["nodes"].as_array().unwrap();
    let labels: Vec<(&Value, Option<&str>)> =
        nodes.iter().map(|node| (&node["entryId"], node["label"].as_str())).collect();
    let expected = [
        (&q1, Some("question")),
        (&a1, None),
        (&q3, None),
        (&a3, Some("here")),
        (&own["entryId"], None),
        (&q4, Some("later")),
        (&a4, None),
    ];
    assert_eq!(
        labels[..expected.len()],
        expected,
        "the name of what is not there is left out, what hung from it hangs on"
    );
    assert!(!nodes.iter().any(|node| node["entryId"] == *present(&foreign["entryId"])));
    let added: Vec<&str> = nodes[expected.len()..].iter().map(|node| node["preview"].as_str().unwrap()).collect();
    let mut sorted = added.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["later", "question"], "names that were given on other branches come last");
    // One chain from the root to the leaf.
    for pair in nodes.windows(2) {
        assert_eq!(*present(&pair[1]["parentId"]), pair[0]["entryId"]);
    }
    assert_eq!(*present(&of_fork["leafId"]), nodes.last().unwrap()["entryId"]);
    let source_tree = get(&mut client, "get_tree", json!({ "rootId": q1 }), "tree").await;
    assert_eq!(source_tree["nodes"][0]["label"], "question");
    assert_ne!(*present(&source["sessionId"]), *present(&forked["sessionId"]));
}

#[tokio::test]
async fn a_fork_of_a_compacted_path_sees_what_its_source_saw_and_compacts_on() {
    let server = Server::start(talker(40), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for n in 0..30 {
        ask(&mut client, &words(n, 40), None).await;
    }
    let compactions = client.seen.iter().filter(|frame| frame["type"] == "context_compacted").count();
    assert!(compactions >= 1, "{compactions}");
    let context = get(&mut client, "get_context", json!({}), "context").await;
    let leaf = get(&mut client, "get_context_info", json!({}), "context_info").await["leafId"].clone();
    let forked = get(&mut client, "fork_session", json!({ "entryId": leaf, "position": "at" }), "forked").await;
    let (mut other, of_fork) = opened(&server, &forked["sessionId"]).await;
    let seen = get(&mut other, "get_context", json!({}), "context").await;
    assert_eq!(seen, context, "the next request is the same");
    assert_eq!(*present(&of_fork["leafId"]), leaf);
    for n in 0..15 {
        ask(&mut other, &words(100 + n, 40), None).await;
    }
    assert!(other.seen.iter().any(|frame| frame["type"] == "context_compacted"));
}

#[tokio::test]
async fn a_fork_before_the_first_question_is_empty_and_a_running_session_can_be_forked() {
    let gate = Gate::new();
    let held = gate.clone();
    let mut asked = 0;
    let model = Scripted::answering(move |_| {
        asked += 1;
        let reply = Reply::text("an answer");
        if asked == 2 { reply.held_by(&held) } else { reply }
    });
    let server = Server::start(model, &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let (q1, _) = ask(&mut client, "one", None).await;
    let second = client.ask("user_input", json!({ "input": "two" })).await["payload"]["entryId"].clone();
    let empty = get(&mut client, "fork_session", json!({ "entryId": q1, "position": "before" }), "forked").await;
    let (mut other, of_fork) = opened(&server, &empty["sessionId"]).await;
    assert_eq!((&of_fork["leafId"], &of_fork["entries"]), (&json!("root"), &json!([])));
    assert_eq!(texts(std::slice::from_ref(&json!({ "content": empty["input"] }))), ["one"]);
    let running = get(&mut client, "fork_session", json!({ "entryId": second, "position": "at" }), "forked").await;
    let (_, of_running) = opened(&server, &running["sessionId"]).await;
    assert_eq!((present(&of_running["leafId"]), &of_running["state"]), (&second, &json!("idle")), "no turn goes along");
    gate.open();
    client.event("turn_finished").await;
    ask(&mut other, "one, put differently", None).await;
}

#[tokio::test]
async fn only_the_owner_forks_and_what_is_wrong_is_told() {
    let server = Server::start(talker(2), &[]).await;
    let (mut client, source) = Client::v2_session(&server.ws()).await;
    let (q1, _) = ask(&mut client, "one", None).await;
    let fork = json!({ "entryId": q1, "position": "at" });
    let mut observer = Client::v2(&server.ws()).await;
    assert_eq!(refused(&mut observer, "fork_session", fork.clone()).await, "no_session");
    let join = json!({ "sessionId": source["sessionId"], "role": "observer" });
    get(&mut observer, "open_session", join, "session_opened").await;
    assert_eq!(refused(&mut observer, "fork_session", fork.clone()).await, "read_only");
    let missing = json!({ "entryId": "nosuchentry2", "position": "at" });
    assert_eq!(refused(&mut client, "fork_session", missing).await, "entry_not_found");
    // Sent twice at once, and again later: one session. With other content: a conflict, also for another command's id.
    let id = client.id();
    client.send_as(&id, "fork_session", fork.clone()).await;
    client.send_as(&id, "fork_session", fork.clone()).await;
    let first = client.until(|frame| frame["re"] == id.as_str()).await["payload"].clone();
    let second = client.until(|frame| frame["re"] == id.as_str()).await["payload"].clone();
    assert_eq!(*present(&first["sessionId"]), second["sessionId"]);
    assert_eq!((first.get("duplicate"), &second["duplicate"]), (None, &json!(true)));
    client.send_as(&id, "fork_session", json!({ "entryId": q1, "position": "before" })).await;
    let conflict = client.until(|frame| frame["re"] == id.as_str()).await;
    assert_eq!(conflict["payload"]["code"], "idempotency_conflict");
    client.send_as(&id, "user_input", json!({ "input": "two" })).await;
    let conflict = client.until(|frame| frame["re"] == id.as_str()).await;
    assert_eq!(conflict["payload"]["code"], "idempotency_conflict");
    assert_eq!(listed(&mut client).await.len(), 2);
}

/// Sends a fork under this id; returns `None` if the socket is closed before the reply.
async fn try_fork(client: &mut Client, id: &str, fork: &Value) -> Option<Value> {
    client.send_as(id, "fork_session", fork.clone()).await;
    while let Some(frame) = client.next_frame().await {
        if frame["re"] == id {
            return Some(frame);
        }
    }
    None
}

/// Wherever the store fails or the process dies during a fork, the client that sends its command again has one complete
/// fork, and no client sees half of one.
#[tokio::test]
async fn a_fork_is_made_once_whatever_fails() {
    // Its start, its path, the labels, its own name, the mark, the end; with the seventh nothing fails.
    let appends = 1..=7;
    let mut failed = 0;
    for (append, fault, dies) in appends.flat_map(|append| {
        let dying = [(Fault::Before, true), (Fault::After, true)];
        let failing = [(Fault::Before, false), (Fault::After, false)];
        // The surviving process tidies up. A piece, the mark and the end stand for the others.
        let each = if matches!(append, 2 | 5 | 6) { [dying, failing].concat() } else { dying.to_vec() };
        each.into_iter().map(move |(fault, dies)| (append, fault, dies))
    }) {
        let case = format!("append {append} fails {fault:?}, the process dies: {dies}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reseed.db");
        let store = Arc::new(Faulty::new(SqliteStore::open(&path).unwrap()));
        let mut server = Server::over(talker(2), store.clone(), &[]).await;
        let (mut client, source) = Client::v2_session(&server.ws()).await;
        let (_, a1) = ask(&mut client, "one", None).await;
        get(&mut client, "set_label", json!({ "entryId": a1, "label": "here" }), "ok").await;
        let (_, a2) = ask(&mut client, "two", Some(&a1)).await;
        let fork = json!({ "entryId": a2, "position": "at" });
        let id = client.id();
        match dies {
            _ if append == 7 => {}
            true => store.die_at_append(append, fault),
            false => store.fail_append(append, fault),
        }
        let first = try_fork(&mut client, &id, &fork).await.filter(|reply| reply["type"] == "forked");
        failed += usize::from(first.is_none());
        // The session whose mark was not written is opened again, and the command is repeated.
        let asked_again = append == 5 && !dies && fault == Fault::Before;
        assert_eq!(first.is_some(), append == 7 || asked_again, "{case}");
        drop(client);
        let mut reader: Arc<dyn SessionStore> = store.clone();
        if dies {
            store.close().await.unwrap();
            reader = Arc::new(SqliteStore::open(&path).unwrap());
            server = Server::over(talker(2), reader.clone(), &[]).await;
        }
        let (mut client, _) = opened(&server, &source["sessionId"]).await;
        let shown = listed(&mut client).await.len();
        assert!(shown <= 2, "{case}: {shown}");
        let again = try_fork(&mut client, &id, &fork).await.unwrap();
        assert_eq!(again["type"], "forked", "{case}: {again}");
        let made = &again["payload"]["sessionId"];
        if let Some(first) = first {
            assert_eq!(*present(made), first["payload"]["sessionId"], "{case}");
        }
        let items = listed(&mut client).await;
        let ids: Vec<&Value> = items.iter().map(|item| &item["sessionId"]).collect();
        assert_eq!(ids.len(), 2, "{case}: {items:?}");
        assert!(ids.contains(&made) && ids.contains(&&source["sessionId"]), "{case}");
        assert_eq!(entries(&mut client, made).await.len(), 5, "{case}");
        let (mut other, _) = opened(&server, made).await;
        ask(&mut other, "three", None).await;
        let unfinished = ListQuery { unfinished: true, limit: 9, ..ListQuery::default() };
        assert_eq!(reader.list(unfinished).await.unwrap().items, [], "{case}");
        server.service.stop().await;
    }
    // This counts all but the mark that is written when the command is repeated.
    assert_eq!(failed, 6 * 2 + 3 * 2 - 1, "each of the appends was reached");
}

#[tokio::test]
async fn a_long_path_is_copied_in_pieces_between_which_others_write() {
    let store = Arc::new(Faulty::new(MemoryStore::new()));
    let server = Server::over(talker(1), store.clone(), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let mut last = Value::Null;
    for _ in 0..50 {
        for n in 0..20 {
            client.send("append_custom", json!({ "customType": "note", "data": n })).await;
        }
        for _ in 0..20 {
            last = client.until(|frame| frame.get("seq").is_none()).await["payload"]["entryId"].clone();
        }
    }
    let before = store.appends();
    let forked = get(&mut client, "fork_session", json!({ "entryId": last, "position": "at" }), "forked").await;
    let appends = store.appends() - before;
    assert!((7..=15).contains(&appends), "1,000 entries in {appends} appends");
    let page = json!({ "sessionId": forked["sessionId"], "limit": 500 });
    let page = get(&mut client, "get_entries", page, "entries").await;
    assert_eq!((&page["leafId"], &page["more"]), (&last, &json!(true)));
}

/// Returns the tokens that the list shows for a session.
async fn listed_tokens(client: &mut Client, session: &Value) -> u64 {
    let items = listed(client).await;
    whole(&items.iter().find(|item| item["sessionId"] == *session).unwrap()["tokenCount"])
}

#[tokio::test]
async fn a_fork_whose_path_is_too_long_to_be_counted_shows_its_source_s_count() {
    let server = Server::start(talker(2), &[]).await;
    let (mut client, source) = Client::v2_session(&server.ws()).await;
    let (_, short) = ask(&mut client, "one", None).await;
    // The model does not see this, but loading the path reads it.
    let large = json!({ "customType": "note", "data": "n".repeat(1_000_000) });
    for _ in 0..9 {
        get(&mut client, "append_custom", large.clone(), "ok").await;
    }
    let long = get(&mut client, "append_custom", json!({ "customType": "note", "data": 0 }), "ok").await;
    ask(&mut client, &words(2, 40), None).await;
    let of_source = listed_tokens(&mut client, present(&source["sessionId"])).await;
    for (entry, is_counted) in [(&short, true), (present(&long["entryId"]), false)] {
        let forked = get(&mut client, "fork_session", json!({ "entryId": entry, "position": "at" }), "forked").await;
        let shown = listed_tokens(&mut client, present(&forked["sessionId"])).await;
        assert_eq!(shown < of_source, is_counted, "{shown} of {of_source}");
        assert!(is_counted || shown == of_source, "{shown} of {of_source}");
        let (mut other, _) = opened(&server, &forked["sessionId"]).await;
        let info = get(&mut other, "get_context_info", json!({}), "context_info").await;
        assert!(whole(&info["tokenCount"]) < of_source, "{info}");
    }
}
