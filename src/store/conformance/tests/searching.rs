//! The contract for searching.

use super::{NOW, append, id};
use crate::{Append, CommandMark, EntryColumns, Error, HITS_MAX, Head, NewRecord, SearchQuery, SessionStore};
use crate::{Lease, search::SEARCHED_MAX, whole_mark};
use futures_util::StreamExt as _;
use reseed_protocol::{SessionId, event::Event, tree::HitRole};
use serde_json::{Value, json};

/// Returns the record that appends an entry. An empty `parent` means that it has none.
pub(crate) fn record(entry: &str, parent: &str, data: Value) -> NewRecord {
    let parent = Some(parent).filter(|parent| !parent.is_empty());
    let mut whole = json!({ "entryId": entry, "parentId": parent, "timestamp": "2026-11-21T09:15:00.300Z" });
    whole.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
    let body = json!({ "type": "entry_appended", "payload": { "entry": whole } }).to_string();
    let event: Event = serde_json::from_str(&body).unwrap();
    NewRecord { body: body.into(), entry: Some(EntryColumns::of(&event).unwrap()) }
}

/// Returns the record of a message with a single text.
pub(crate) fn said(entry: &str, parent: &str, role: &str, text: &str) -> NewRecord {
    let content = json!([{ "type": "text", "text": text }]);
    record(entry, parent, json!({ "type": "message", "role": role, "content": content }))
}

fn called(entry: &str, parent: &str, call: &str, name: &str, arguments: &str) -> NewRecord {
    let part = json!({ "type": "tool_call", "toolCallId": call, "name": name, "arguments": arguments });
    record(entry, parent, json!({ "type": "message", "role": "assistant", "content": [part] }))
}

fn returned(entry: &str, parent: &str, call: &str, output: &str) -> NewRecord {
    let part = json!({ "type": "tool_result", "toolCallId": call, "output": output });
    record(entry, parent, json!({ "type": "message", "role": "tool", "content": [part] }))
}

async fn create(store: &dyn SessionStore, session: &str, owner: &str, records: Vec<NewRecord>) -> Lease {
    let lease = store.create(&id(session), owner, NOW).await.unwrap();
    let head = Head { updated_at: NOW, ..Head::default() };
    store.append(&lease, 1, Append { head, ..append(records) }).await.unwrap();
    lease
}

fn query(text: &str) -> SearchQuery {
    SearchQuery::in_session(&id("s"), text, 50)
}

/// Returns the entries found, as `a b`.
async fn found(store: &dyn SessionStore, query: SearchQuery) -> String {
    let hits = store.search(query).await.unwrap();
    hits.items.iter().map(|hit| hit.entry.as_str()).collect::<Vec<_>>().join(" ")
}

pub(crate) async fn words_are_found_in_any_language(store: &dyn SessionStore) {
    let texts = [
        "The deploy uses port 8443 on the Staging host.",
        "See in src/core/mod.rs and MAX_TOKENS_PER_TURN in kebab-case-name.toml",
        "Order 550e8400-e29b-41d4-a716-446655440000 was shipped",
        "Das Café in der Straße heißt Größenwahn",
        "Порт сервера указан в настройках, ёлка",
        "東京都の天気は晴れです。設定ファイルを確認してください",
        "我们在北京的服务器上部署了新的数据库。",
        "ราคาน้ำมันวันนี้ลดลงสองบาท",
        "서버를 다시 시작하세요",
        "خادم قاعدة البيانات في الرياض",
        "क्या यह हिन्दी में है",
        "https://example.org/a/b?x=1&y=2#frag user@host.example",
    ];
    let records = texts.iter().enumerate().map(|(n, text)| said(&format!("e{n}"), "", "user", text));
    create(store, "s", "", records.collect()).await;
    let cases = [
        ("port", "e0"),
        ("PORT staging", "e0"),
        ("ports", ""),
        ("port*", "e0"),
        ("p*", "e1 e0"),
        ("\"uses port\"", "e0"),
        ("\"port uses\"", ""),
        ("\"staging ho\"*", "e0"),
        ("8443", "e0"),
        ("src/core/mod.rs", "e1"),
        ("core/mod", "e1"),
        ("core\\mod", "e1"),
        ("mod/core", ""),
        ("max_tokens_per_turn", "e1"),
        ("tokens_per", "e1"),
        ("kebab-case-name.toml", "e1"),
        ("kebab_case*", "e1"),
        ("550e8400-e29b-41d4-a716-446655440000", "e2"),
        ("550e8400*", "e2"),
        ("e29b-41d4", "e2"),
        ("cafe", "e3"),
        ("CAFÉ", "e3"),
        ("strasse", "e3"),
        ("größenwahn", "e3"),
        ("порт СЕРВЕРА", "e4"),
        ("елка", "e4"),
        ("настр*", "e4"),
        ("東京", "e5"),
        ("京都", "e5"),
        ("京", "e6 e5"),
        ("天気は晴れ", "e5"),
        ("晴れ天気", ""),
        ("ファイル", "e5"),
        ("ﾌｧｲﾙ", "e5"),
        ("数据库", "e6"),
        ("北京 数据库", "e6"),
        ("北京数据库", ""),
        ("น้ำมัน", "e7"),
        ("สองบาท", "e7"),
        ("บาทสอง", ""),
        ("서버", "e8"),
        ("시작", "e8"),
        ("البيانات", "e9"),
        ("हिन्दी", "e10"),
        ("example.org/a/b", "e11"),
        ("user@host.example", "e11"),
        ("في", "e9"),
        ("in", "e3 e1"),
    ];
    for (text, want) in cases {
        assert_eq!(found(store, query(text)).await, want, "{text}");
    }
}

pub(crate) async fn no_query_is_an_error(store: &dyn SessionStore) {
    create(store, "s", "", vec![said("e1", "", "user", "a column near the end")]).await;
    let large = "near ".repeat(16 * 1024 / 5);
    let many: String = (0..4000).map(|n| format!("{n} ")).collect();
    let cases = [
        ("", ""),
        (" \t\n", ""),
        ("\"", ""),
        ("\"\"\"", ""),
        ("*", ""),
        ("\"*", ""),
        ("NEAR(", "e1"),
        ("NEAR(a b, 2)", ""),
        ("NEAR(a column)", ""),
        ("text:near", ""),
        ("col:umn", ""),
        ("{text} : near", ""),
        ("- near", "e1"),
        ("^near", "e1"),
        ("near AND", ""),
        ("a OR b", ""),
        ("near'); DROP TABLE record; --", ""),
        ("near\0", "e1"),
        ("\0", ""),
        ("\u{feff}near\u{202e}", "e1"),
        ("near + end", "e1"),
        (&large, "e1"),
        (&many, ""),
        (&"\"".repeat(16 * 1024), ""),
        (&"(".repeat(16 * 1024), ""),
        (&"京".repeat(16 * 1024), ""),
    ];
    for (text, want) in cases {
        assert_eq!(found(store, query(text)).await, want, "{:.40}", text);
        let any = SearchQuery { any: true, ..query(text) };
        assert!(store.search(any).await.is_ok(), "{:.40}", text);
        assert!(store.search(SearchQuery::of_owner("", text, 5)).await.is_ok(), "{:.40}", text);
    }
    assert_eq!(found(store, query("near")).await, "e1", "nothing was changed");
    let gone = store.search(SearchQuery::in_session(&id("gone"), "near", 5)).await;
    assert_eq!(gone, Err(Error::NotFound(id("gone"))));
}

pub(crate) async fn a_search_covers_what_was_said_and_done(store: &dyn SessionStore) {
    let reasoned = json!([{ "type": "reasoning", "text": "unsaid" }, { "type": "text", "text": "spoken" },
        { "type": "image", "url": "data:image/png;base64,pictured" }]);
    let cut = json!([{ "type": "tool_result", "toolCallId": "c2", "output": "begin … end" }]);
    let records = vec![
        said("q", "", "user", "question"),
        record("a", "q", json!({ "type": "message", "role": "assistant", "content": reasoned })),
        called("b", "a", "c1", "grep_files", r#"{"pattern":"needle_one"}"#),
        returned("r", "b", "c1", "haystack"),
        called("b2", "r", "c2", "read", "{}"),
        record(
            "r2",
            "b2",
            json!({ "type": "message", "role": "tool", "content": cut, "cut": { "characters": 9, "shown": 5, "from": 3 } }),
        ),
        called("h", "r2", "c3", "history_search", r#"{"query":"needle_one"}"#),
        returned("hr", "h", "c3", "repeated haystack question"),
        called("h2", "hr", "c4", "history_read", "{}"),
        returned("x", "h2", "c5", "of another call: haystack2"),
        returned("hr2", "x", "c4", "repeated"),
        record("k", "hr2", json!({ "type": "compaction", "summary": "summed up", "tokensBefore": 1 })),
        record("bs", "k", json!({ "type": "branch_summary", "fromId": null, "summary": "branched off" })),
        record(
            "cm",
            "bs",
            json!({ "type": "custom_message", "customType": "t", "content": [{ "type": "text", "text": "noted" }], "display": true }),
        ),
        record("cu", "cm", json!({ "type": "custom", "customType": "t", "data": { "text": "hidden" } })),
        record("si", "cu", json!({ "type": "session_info", "name": "hidden" })),
    ];
    let lease = store.create(&id("s"), "", NOW).await.unwrap();
    let mark = CommandMark { command_id: whole_mark(&id("r2")), fingerprint: 0, reply: "begin middle end".into() };
    store.append(&lease, 1, Append { marks: vec![mark], ..append(records) }).await.unwrap();
    let cases = [
        ("question", "q", HitRole::User),
        ("spoken", "a", HitRole::Assistant),
        ("unsaid", "", HitRole::User),
        ("pictured", "", HitRole::User),
        ("hidden", "", HitRole::User),
        ("grep_files", "b", HitRole::Assistant),
        ("haystack", "r", HitRole::Tool),
        ("haystack2", "x", HitRole::Tool),
        ("middle", "r2", HitRole::Tool),
        ("repeated", "", HitRole::Tool),
        ("summed", "k", HitRole::Summary),
        ("branched", "bs", HitRole::Summary),
        ("noted", "cm", HitRole::User),
    ];
    for (text, want, role) in cases {
        let hits = store.search(query(text)).await.unwrap().items;
        let want: Vec<_> = Some((want, role)).filter(|_| !want.is_empty()).into_iter().collect();
        assert_eq!(hits.iter().map(|hit| (hit.entry.as_str(), hit.role)).collect::<Vec<_>>(), want, "{text}");
    }
    assert_eq!(found(store, query("needle_one")).await, "h b", "calls are found, also of the history tools");
    for (role, want) in [(HitRole::Assistant, "h b"), (HitRole::User, "")] {
        let of = SearchQuery { role: Some(role), ..query("needle_one") };
        assert_eq!(found(store, of).await, want, "{role:?}");
    }
    let hit = store.search(query("spoken")).await.unwrap().items.remove(0);
    let time = serde_json::to_value(hit.timestamp).unwrap();
    assert_eq!((hit.session, hit.seq, time), (id::<SessionId>("s"), 2, json!("2026-11-21T09:15:00.300Z")));
    assert_eq!(hit.snippet, "spoken");
}

/// Two branches: a ─ b ─ c ─ f, and b ─ d ─ e; the text of every second entry also contains `odd`.
pub(crate) async fn a_path_and_a_position_bound_a_search(store: &dyn SessionStore) {
    let records = vec![
        said("a", "", "user", "word odd"),
        said("b", "a", "user", "word"),
        said("c", "b", "user", "word odd"),
        said("d", "b", "user", "word"),
        said("e", "d", "user", "word odd"),
        said("f", "c", "user", "word"),
        said("g", "gone", "user", "word odd"),
    ];
    create(store, "s", "", records).await;
    let cases = [
        ("word", None, None, "g f e d c b a"),
        ("word odd", None, None, "g e c a"),
        ("word", Some("f"), None, "f c b a"),
        ("word", Some("e"), None, "e d b a"),
        ("odd", Some("e"), None, "e a"),
        ("odd", Some("c"), None, "c a"),
        ("word", Some("g"), None, "g"),
        ("word", Some("nowhere"), None, ""),
        ("word", None, Some(4), "c b a"),
        ("word", Some("e"), Some(5), "d b a"),
        ("word", None, Some(0), ""),
    ];
    for (text, path, before_seq, want) in cases {
        let bounded = SearchQuery { on_path_to: path.map(id), before_seq, ..query(text) };
        assert_eq!(found(store, bounded.clone()).await, want, "{text} {path:?} {before_seq:?}");
        let mut any: Vec<_> =
            store.search(SearchQuery { any: true, ..bounded }).await.unwrap().items.iter().map(|hit| hit.seq).collect();
        any.sort_unstable();
        let mut want: Vec<_> = want.split_whitespace().map(|entry| u64::from(entry.as_bytes()[0] - b'a') + 1).collect();
        want.sort_unstable();
        if !text.contains(' ') {
            assert_eq!(any, want, "any of {text} {path:?} {before_seq:?}");
        }
    }
}

pub(crate) async fn hits_are_the_newest_and_as_many_as_asked_for(store: &dyn SessionStore) {
    let records = (0..300).map(|n| said(&format!("e{n}"), "", "user", if n == 7 { "rare word" } else { "word" }));
    create(store, "s", "", records.collect()).await;
    for (limit, first, count, more) in [
        (0, None, 0, false),
        (1, Some("e299"), 1, true),
        (20, Some("e299"), 20, true),
        (1000, Some("e299"), HITS_MAX as usize, true),
    ] {
        let hits = store.search(SearchQuery { limit, ..query("word") }).await.unwrap();
        assert_eq!(hits.items.first().map(|hit| hit.entry.as_str()), first, "{limit}");
        assert_eq!((hits.items.len(), hits.more), (count, more), "{limit}");
        assert!(hits.items.is_sorted_by(|a, b| a.seq > b.seq), "{limit}");
    }
    let rare = store.search(SearchQuery { limit: 1, ..query("rare") }).await.unwrap();
    assert_eq!((rare.items.len(), rare.more), (1, false));
    // With `any`, a rare term counts more, and a term that matches nothing counts nothing.
    let some = SearchQuery { any: true, limit: 3, ..query("word rare nothing") };
    assert_eq!(found(store, some).await, "e7 e299 e298");
}

pub(crate) async fn a_search_stays_with_its_session_and_owner(store: &dyn SessionStore) {
    create(store, "s", "ann", vec![said("e1", "", "user", "shared first")]).await;
    create(store, "t", "ann", vec![said("e2", "", "user", "shared second")]).await;
    create(store, "u", "bob", vec![said("e3", "", "user", "shared third")]).await;
    let unfinished = store.create(&id("v"), "ann", NOW).await.unwrap();
    let head = Head { updated_at: crate::UNFINISHED, ..Head::default() };
    let hidden = Append { head, ..append(vec![said("e4", "", "user", "shared hidden")]) };
    store.append(&unfinished, 1, hidden).await.unwrap();

    assert_eq!(found(store, query("shared")).await, "e1");
    let of = |owner: &str| SearchQuery::of_owner(owner, "shared", 9);
    assert_eq!(found(store, of("ann")).await, "e2 e1");
    assert_eq!(found(store, of("bob")).await, "e3");
    assert_eq!(found(store, of("carl")).await, "");
    assert_eq!(found(store, of("")).await, "");
    let hits = store.search(SearchQuery { limit: 1, ..of("ann") }).await.unwrap();
    assert_eq!((hits.items[0].session.as_str(), hits.more), ("t", true));

    // New entries are found at once, and deleted ones no longer.
    let (lease, _) = store.open(&id("s")).await.unwrap();
    let head = Head { updated_at: NOW.plus_millis(1), ..Head::default() };
    let more = Append { head, ..append(vec![said("e5", "e1", "user", "shared later")]) };
    store.append(&lease, lease.next_seq, more).await.unwrap();
    assert_eq!(found(store, of("ann")).await, "e5 e1 e2");
    assert_eq!(found(store, query("shared")).await, "e5 e1");
    store.delete(&id("s")).await.unwrap();
    assert_eq!(found(store, of("ann")).await, "e2");
    assert_eq!(store.search(query("shared")).await, Err(Error::NotFound(id("s"))));
    create(store, "s", "bob", vec![said("e6", "", "user", "anew")]).await;
    assert_eq!(found(store, query("shared")).await, "");
    assert_eq!(found(store, query("anew")).await, "e6");
    assert_eq!(found(store, of("bob")).await, "e3");
}

pub(crate) async fn an_old_session_among_others_is_found(store: &dyn SessionStore) {
    an_old_session_is_found(store, 130).await;
}

/// The contract of a store with an index. There are more other sessions than are searched one by one.
pub(crate) async fn an_old_session_among_thousands_is_found(store: &dyn SessionStore) {
    an_old_session_is_found(store, SEARCHED_MAX as usize + 50).await;
}

async fn an_old_session_is_found(store: &dyn SessionStore, others: usize) {
    let oldest = vec![said("e1", "", "user", "the needle of old"), said("e2", "e1", "assistant", "needle again")];
    create(store, "oldest", "ann", oldest).await;
    let another = vec![said("e1", "", "user", "the needle of another"), said("e2", "e1", "user", "and more")];
    create(store, "other", "bob", another).await;
    let fill = |n: usize| async move {
        let records = vec![said("e1", "", "user", "the hay of today"), said("e2", "e1", "assistant", "and more")];
        create(store, &format!("s{n}"), "ann", records).await
    };
    futures_util::stream::iter(0..others).map(fill).buffer_unordered(64).for_each(|_| async {}).await;

    let of = |text: &str| SearchQuery::of_owner("ann", text, 5);
    let hits = store.search(of("needle")).await.unwrap();
    let places: Vec<_> = hits.items.iter().map(|hit| (hit.session.as_str(), hit.entry.as_str())).collect();
    assert_eq!((places, hits.more), (vec![("oldest", "e2"), ("oldest", "e1")], false));
    let cases = [
        (SearchQuery { role: Some(HitRole::User), ..of("needle") }, "e1"),
        (SearchQuery { role: Some(HitRole::Tool), ..of("needle") }, ""),
        (SearchQuery { any: true, ..of("needle nothing") }, "e2 e1"),
        (of("n* needle old"), "e1"),
        (of("\"needle of\""), "e1"),
        (of("needle hay"), ""),
        (of("needle another"), ""),
    ];
    for (query, want) in cases {
        assert_eq!(found(store, query.clone()).await, want, "{query:?}");
    }
    let many = store.search(of("hay")).await.unwrap();
    assert_eq!((many.items.len(), many.more), (5, true));
}
