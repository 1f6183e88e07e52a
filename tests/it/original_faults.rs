//! The faults of the server that this one replaces. Each has a test that would catch it: first those of its compaction,
//! and in [`serving`] those of its sockets and streams.

mod serving;

use crate::support::scripted::Gate;
use crate::support::{
    conversation::{Conversation, Dialect},
    json::whole,
    server::Server,
    talk::{facts, is_summary, reply_to, words},
    upstream::{Asked, Finish, Reply, Upstream},
};
use serde_json::{Value, json};

/// Two conversations that cover both dialects and both APIs.
const BOTH: [(&str, Dialect); 2] = [("chat", Dialect::V1), ("responses", Dialect::V2)];

/// Starts a server with a window of 2,000 tokens on a scripted model.
async fn asking(api: &str, script: impl FnMut(&Asked) -> Reply + Send + 'static) -> (Upstream, Server) {
    let upstream = Upstream::start(script).await;
    // Without the user's own words a compaction in this small window saves most of what it replaces.
    let settings = [("OPENAI_API", api), ("strategy.userShare", "0")];
    let server = Server::facing(&upstream.base_url(), &settings).await;
    (upstream, server)
}

/// Like [`asking`], with a model that answers in this many words and keeps facts.
async fn talker(api: &str, answer_words: usize) -> (Upstream, Server) {
    let mut number = 0;
    asking(api, move |asked| {
        number += 1;
        reply_to(asked, number, answer_words)
    })
    .await
}

fn u64_of(payload: &Value, name: &str) -> u64 {
    payload[name].as_u64().unwrap_or_else(|| panic!("{name}: {payload}"))
}

/// Returns text that fills the window.
fn filler(turn: u64) -> String {
    words(1_000 + turn, 60)
}

/// Talks in turns of sixty words until this many tokens are used.
async fn fill(conversation: &mut Conversation, until_tokens: u64) {
    for turn in 0..40 {
        if u64_of(&conversation.talk(&filler(turn)).await, "tokenCount") >= until_tokens {
            return;
        }
    }
    panic!("forty turns did not come to {until_tokens} tokens");
}

/// Orders a compaction and waits for the frame of its outcome.
async fn compact(conversation: &mut Conversation) -> Value {
    let (command, client) = (conversation.dialect.compact_command(), &mut conversation.client);
    client.send(command, json!({})).await;
    let outcomes = ["context_compacted", "compaction_failed", "error"];
    client.until(|frame| outcomes.iter().any(|kind| frame["type"] == *kind)).await
}

/// The fault: the count after a compaction was 0, and the reduction 100 %.
#[tokio::test]
async fn the_count_after_a_compaction_is_that_of_the_next_request() {
    for (api, dialect) in BOTH {
        let (upstream, server) = talker(api, 60).await;
        let mut conversation = Conversation::begin(&server.ws(), dialect).await;
        fill(&mut conversation, 900).await;
        let before = u64_of(&conversation.info().await, "tokenCount");
        let compacted = compact(&mut conversation).await["payload"].clone();
        let [old, new] = dialect.compacted_counts().map(|name| u64_of(&compacted, name));
        assert_eq!([old, new], [before, u64_of(&conversation.info().await, "tokenCount")], "{dialect:?}");
        let percent = 100.0 * (old - new) as f64 / old as f64;
        assert!((compacted["reductionPercent"].as_f64().unwrap() - percent).abs() <= 0.05, "{compacted}");

        // This is the upstream server's count of the next request, with a question of one token.
        conversation.talk("Yes").await;
        let counted = upstream.requests().last().unwrap().tokens;
        assert!(new.abs_diff(counted) <= counted / 4, "told {new}, then asked {counted}");
    }
}

/// The fault: the new loop was seeded by sending the summary to the model, whose answer then reached the client.
#[tokio::test]
async fn seeding_asks_the_model_nothing() {
    for (api, dialect) in BOTH {
        let (upstream, server) = talker(api, 60).await;
        let mut conversation = Conversation::begin(&server.ws(), dialect).await;
        fill(&mut conversation, 900).await;
        let (asked, seen) = (upstream.requests().len(), conversation.client.seen.len());
        assert_eq!(compact(&mut conversation).await["type"], "context_compacted");
        conversation.info().await;
        for frame in &conversation.client.seen[seen..] {
            let kind = frame["type"].as_str().unwrap();
            let about_it = kind == "ok" || kind.starts_with("compaction_") || kind.starts_with("context_");
            let entry = kind == "entry_appended" && frame["payload"]["entry"]["type"] == "compaction";
            assert!(about_it || entry, "{frame}");
        }
        // An extra request would appear between the summary and the next question.
        conversation.talk("What did we talk of?").await;
        let requests = upstream.requests().split_off(asked);
        assert_eq!(requests.iter().map(is_summary).collect::<Vec<_>>(), [true, false]);
        assert_eq!(requests[1].messages()[0]["role"], "user", "the summary is a record of what happened");
        assert!(requests[1].messages()[0].to_string().contains("<summary>"));
        assert!(!requests[1].system().contains("<summary>"));
    }
}

/// The result of a crossing during which more was said.
struct Crossing {
    /// The inputs, in order.
    said: Vec<String>,
    /// The requests from the crossing on.
    requests: Vec<Asked>,
    conversation: Conversation,
}

/// Crosses the threshold, and sends three more inputs and two queries of the meter while the summary is being written.
async fn cross(api: &str, dialect: Dialect) -> Crossing {
    let (gate, mut number) = (Gate::new(), 0);
    let held = gate.clone();
    let (upstream, server) = asking(api, move |asked| {
        number += 1;
        let reply = reply_to(asked, number, 30);
        if is_summary(asked) { reply.held_by(&held) } else { reply }
    })
    .await;
    let mut conversation = Conversation::begin(&server.ws(), dialect).await;
    fill(&mut conversation, 1_300).await;
    assert_eq!(conversation.came("context_compacted"), [json!(null); 0]);

    let asked = upstream.requests().len();
    let said = [words(91, 250), "And two?".to_owned(), "And three?".to_owned(), "And four?".to_owned()];
    conversation.send(&said[0]).await;
    upstream.wait_for_requests(asked + 1).await;
    for text in &said[1..] {
        conversation.send(text).await;
    }
    for _ in 0..2 {
        conversation.info().await;
    }
    gate.open();
    for text in &said {
        assert_eq!(conversation.turn_end().await.error, None, "{text}");
    }
    upstream.assert_clean();
    Crossing { said: said.to_vec(), requests: upstream.requests().split_off(asked), conversation }
}

/// The fault: everything that arrived while a compaction ran started another one.
#[tokio::test]
async fn one_crossing_is_one_compaction() {
    for (api, dialect) in BOTH {
        let mut crossing = cross(api, dialect).await;
        assert_eq!(crossing.conversation.info().await["compactions"], 1);
        assert_eq!(crossing.conversation.came("context_compacted").len(), 1);
        // The summary may take several requests, all of them before the input's own.
        let turns = crossing.requests.iter().skip_while(|asked| is_summary(asked)).map(is_summary);
        assert_eq!(turns.collect::<Vec<_>>(), [false; 4]);
    }
}

/// The fault: the question that triggered the compaction, and those that came while it ran, were dropped.
#[tokio::test]
async fn no_question_is_lost_during_a_compaction() {
    for (api, dialect) in BOTH {
        let crossing = cross(api, dialect).await;
        let turns: Vec<&Asked> = crossing.requests.iter().filter(|asked| !is_summary(asked)).collect();
        let asked: Vec<String> = turns.iter().map(|asked| asked.last_user_text()).collect();
        assert_eq!(asked, crossing.said, "each once, in order, word for word");
        let last = turns.last().unwrap();
        for text in &crossing.said {
            assert_eq!(last.text().matches(text.as_str()).count(), 1, "{text}");
        }
    }
}

/// The fault: the summariser received what was said, but no tool results.
#[tokio::test]
async fn the_summary_is_told_of_tool_results() {
    for api in ["chat", "responses"] {
        let mut number = 0;
        let (upstream, server) = asking(api, move |asked| {
            number += 1;
            let calls = !is_summary(asked) && !asked.ends_with_result();
            if calls { Reply::call("look", r#"{"at":"the lamp"}"#) } else { reply_to(asked, number, 20) }
        })
        .await;
        let mut conversation = Conversation::begin(&server.ws(), Dialect::V2).await;
        let fact = |call| format!("FACT {call}: the lamp has number {}", 700 + call);
        conversation.offer(move |call| format!("{}\n{}", fact(call), words(call, 120))).await;
        for turn in 0..4 {
            conversation.talk(&words(turn, 10)).await;
        }
        let compacted = compact(&mut conversation).await;
        assert_eq!(compacted["payload"]["rung"], "model_summary", "{compacted}");
        let requests = upstream.requests();
        let summary = requests.iter().find(|asked| is_summary(asked)).unwrap();
        for told in [fact(0), fact(1), r#"look(at="the lamp")"#.to_owned()] {
            assert!(summary.contains(&told), "{told}: {}", summary.last_user_text());
        }
        conversation.talk("Which numbers?").await;
        let found = facts(&upstream.requests().iter().rfind(|asked| !is_summary(asked)).unwrap().text());
        assert_eq!(found, (0..5).map(fact).collect::<Vec<_>>(), "summarised or kept, and the new one");
        upstream.assert_clean();
    }
}

/// The fault: the summariser's answer was taken for the history, whatever it was.
#[tokio::test]
async fn a_failed_summary_is_no_history() {
    const JUNK: &str = "I am sorry, code E-1729 has occurred.";
    let junk = || Reply::text(JUNK).in_pieces(3);
    // What the summariser does, and the error's code; `None` if facts are extracted instead.
    let table: [(Reply, Option<&str>); 8] = [
        (Reply::error(400, r#"{"error":{"message":"E-1729: no such option"}}"#), Some("upstream_rejected")),
        (Reply::error(401, r#"{"error":{"message":"E-1729: no such key"}}"#), Some("upstream_auth")),
        (junk().ending(Finish::NoEnd), Some("upstream_truncated")),
        (junk().ending(Finish::Error), Some("upstream_error")),
        (junk(), None),
        (junk().ending(Finish::Length), None),
        (junk().ending(Finish::ContentFilter), None),
        (Reply::text(""), None),
    ];
    for (api, dialect) in BOTH {
        for (reply, code) in &table {
            let (broken, mut number) = (reply.clone(), 0);
            let (upstream, server) = asking(api, move |asked| {
                number += 1;
                if is_summary(asked) { broken.clone() } else { reply_to(asked, number, 60) }
            })
            .await;
            let mut conversation = Conversation::begin(&server.ws(), dialect).await;
            fill(&mut conversation, 900).await;
            let before = conversation.info().await;
            let outcome = compact(&mut conversation).await;
            let after = conversation.info().await;
            conversation.talk("Go on.").await;
            let next = upstream.requests().pop().unwrap();
            assert!(!next.text().contains("1729"), "{reply:?}: {}", next.text());
            upstream.assert_clean();
            assert_eq!(outcome["payload"]["rung"], "extract", "{reply:?}: {outcome}");
            assert!(!outcome.to_string().contains("1729"), "{outcome}");
            assert!(whole(&after["tokenCount"]) < whole(&before["tokenCount"]), "{reply:?}");
            let reasons = outcome["payload"]["failedRungs"].to_string();
            assert!(code.is_none_or(|code| reasons.contains(code)), "{reply:?}: {reasons}");
        }
    }
}
