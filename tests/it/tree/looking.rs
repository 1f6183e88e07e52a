//! `get_tree`, for clients and operators.

use super::{ask, get, refused};
use crate::support::{client::Client, http, json::present, server::Server, talk::talker};
use serde_json::{Value, json};

/// Creates a session with two branches below its first answer, of which the second was taken last: `q1 a1 { q2 a2 | q3
/// a3 }`, and labels: on `q2` one that was changed, on `a1` one that was removed.
async fn branched(client: &mut Client) -> Vec<Value> {
    let (q1, a1) = ask(client, "one", None).await;
    let (q2, a2) = ask(client, "two", None).await;
    let mut labels = Vec::new();
    for (entry, label) in [(&q2, Some("old")), (&a1, Some("gone")), (&q2, Some("new")), (&a1, None)] {
        let mut payload = json!({ "entryId": entry });
        if let Some(label) = label {
            payload["label"] = json!(label);
        }
        labels.push(get(client, "set_label", payload, "ok").await["entryId"].clone());
    }
    let (q3, a3) = ask(client, "three", Some(&a1)).await;
    let mut ids = vec![q1, a1, q2, a2, q3, a3];
    ids.extend(labels);
    ids
}

/// Returns a tree as lines `id parent type preview label children`, with each id as its index in `ids`.
fn lines(tree: &Value, ids: &[Value]) -> Vec<String> {
    let name = |id: &Value| ids.iter().position(|known| known == id).map_or("-".to_owned(), |at| at.to_string());
    let line = |node: &Value| {
        let label = node["label"].as_str().map_or(String::new(), |label| format!(" [{label}]"));
        let (kind, preview) = (node["type"].as_str().unwrap(), node["preview"].as_str().unwrap());
        let preview = preview.split(' ').next().unwrap();
        format!("{} {} {kind} {preview}{label} {}", name(&node["entryId"]), name(&node["parentId"]), node["childCount"])
    };
    tree["nodes"].as_array().unwrap().iter().map(line).collect()
}

/// A model that answers with its question.
fn echo() -> crate::support::scripted::Scripted {
    crate::support::scripted::Scripted::answering(|request| {
        let said = request.messages().last().map(|message| format!("{:?}", message.message.content));
        let known = ["three", "two", "one"].into_iter().find(|word| said.as_deref().unwrap_or_default().contains(word));
        crate::support::scripted::Reply::text(format!("answer-to-{}", known.unwrap_or("nothing")))
    })
}

#[tokio::test]
async fn a_tree_shows_every_branch_and_the_labels_that_count() {
    let server = Server::start(echo(), &[]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let empty = get(&mut client, "get_tree", json!({}), "tree").await;
    assert_eq!(empty, json!({ "nodes": [], "leafId": "root", "asOfSeq": 1, "more": false }));
    let ids = branched(&mut client).await;
    let whole = [
        "0 - message:user one 1",
        "1 0 message:assistant answer-to-one 2",
        "2 1 message:user two [new] 1",
        "4 1 message:user three 1",
        "3 2 message:assistant answer-to-two 1",
        "5 4 message:assistant answer-to-three 0",
        "6 3 label old 1",
        "7 6 label gone 1",
        "8 7 label new 1",
        "9 8 label  0",
    ];
    let below = |from: usize, to: usize| whole[from..to].to_vec();
    let table = [
        (json!({}), whole.to_vec(), false),
        (json!({ "depth": 1 }), below(0, 1), true),
        (json!({ "depth": 3 }), below(0, 4), true),
        (json!({ "depth": 9 }), whole.to_vec(), false),
        (json!({ "rootId": ids[4] }), vec![whole[3], whole[5]], false),
        (json!({ "rootId": ids[2], "depth": 2 }), vec![whole[2], whole[4]], true),
        (json!({ "rootId": ids[9] }), below(9, 10), false),
    ];
    for (payload, expected, more) in table {
        let tree = get(&mut client, "get_tree", payload.clone(), "tree").await;
        assert_eq!(lines(&tree, &ids), expected, "{payload}");
        assert_eq!((&tree["more"], &tree["leafId"]), (&json!(more), &ids[5]), "{payload}");
        let entries = get(&mut client, "get_entries", json!({}), "entries").await;
        assert_eq!(*present(&tree["asOfSeq"]), entries["asOfSeq"]);
    }
    assert_eq!(refused(&mut client, "get_tree", json!({ "rootId": "nosuchentry2" })).await, "entry_not_found");
    assert_eq!(refused(&mut client, "get_tree", json!({ "depth": 0 })).await, "invalid_field");

    let mut observer = Client::v2(&server.ws()).await;
    assert_eq!(refused(&mut observer, "get_tree", json!({})).await, "session_not_found");
    let id = &opened["sessionId"];
    get(&mut observer, "open_session", json!({ "sessionId": id, "role": "observer" }), "session_opened").await;
    let tree = get(&mut observer, "get_tree", json!({}), "tree").await;
    assert_eq!(lines(&tree, &ids), whole, "observers may look");
}

#[tokio::test]
async fn a_large_tree_comes_in_parts_that_are_asked_for_where_they_were_left_out() {
    let server = Server::start(talker(1), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    // More entries than one answer holds, and large ones.
    let mut sent = 0;
    for n in 0..2_500 {
        client.send("append_custom", json!({ "customType": format!("n{n}"), "data": n })).await;
        sent += 1;
        if sent == 20 {
            for _ in 0..sent {
                assert_eq!(client.until(|frame| frame.get("seq").is_none()).await["type"], "ok");
            }
            sent = 0;
        }
    }
    let large = "x".repeat(900_000);
    for n in 2_500..2_530 {
        get(&mut client, "append_custom", json!({ "customType": format!("n{n}"), "data": large }), "ok").await;
    }
    let mut found: Vec<String> = Vec::new();
    let mut asked = json!({});
    let mut parts = Vec::new();
    loop {
        let tree = get(&mut client, "get_tree", asked, "tree").await;
        let nodes = tree["nodes"].as_array().unwrap();
        parts.push(nodes.len());
        let skipped = usize::from(!found.is_empty());
        found.extend(nodes[skipped..].iter().map(|node| node["preview"].as_str().unwrap().to_owned()));
        if tree["more"] == false {
            break;
        }
        asked = json!({ "rootId": nodes.last().unwrap()["entryId"] });
    }
    let expected: Vec<String> = (0..2_530).map(|n| format!("n{n}")).collect();
    assert_eq!(found, expected);
    assert_eq!(parts[0], 2_000, "{parts:?}");
    assert!(parts.len() >= 3 && parts.iter().all(|part| *part <= 2_000), "{parts:?}");
}

#[tokio::test]
async fn operators_see_the_shape_and_what_was_said_only_where_they_may() {
    for reads in ["false", "true"] {
        let server = Server::start(echo(), &[("OPERATORS_READ_CONTENT", reads)]).await;
        let (mut client, opened) = Client::v2_session(&server.ws()).await;
        let ids = branched(&mut client).await;
        let base = format!("/api/sessions/{}/tree", opened["sessionId"].as_str().unwrap());
        let mut expected = get(&mut client, "get_tree", json!({}), "tree").await;
        if reads == "false" {
            for node in expected["nodes"].as_array_mut().unwrap() {
                node["preview"] = json!("");
                node.as_object_mut().unwrap().remove("label");
            }
        }
        assert_eq!(http::get(&server.address(), &base).await.json(), expected, "{reads}");
        let root = ids[4].as_str().unwrap();
        let part = http::get(&server.address(), &format!("{base}?root={root}&depth=1")).await.json();
        assert_eq!(part["nodes"].as_array().unwrap().len(), 1, "{part}");
        let table = [
            (format!("{base}?root=nosuchentry2"), 404, "entry_not_found"),
            (format!("{base}?root=no%20id"), 404, "entry_not_found"),
            (format!("{base}?depth=0"), 400, "invalid_field"),
            ("/api/sessions/nosuchsession2345/tree".to_owned(), 404, "session_not_found"),
        ];
        for (path, status, code) in table {
            let answered = http::get(&server.address(), &path).await;
            assert_eq!((answered.status, &answered.json()["code"]), (status, &json!(code)), "{path}");
        }
    }
}

#[tokio::test]
async fn strangers_are_not_shown_a_tree() {
    let tokens =
        [("OPERATOR_TOKENS", "ops:operator-token-0123456789"), ("AUTH_TOKENS", "ann:user-token-0123456789abc")];
    let server = Server::start(echo(), &tokens).await;
    let answered = http::get(&server.address(), "/api/sessions/nosuchsession2345/tree").await;
    assert_eq!(answered.status, 401);
}
