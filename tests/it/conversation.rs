//! Conversations that continue far past the model's window, against an upstream server that refuses what does not fit.

#[cfg(feature = "postgres")]
mod killed;

use crate::support::{
    conversation::{Conversation, Dialect},
    json::{present, whole},
    server::Server,
    talk::{facts, is_summary, reply_to, words},
    upstream::{Asked, Reply, Setup, Upstream},
};
use serde_json::json;

const TURNS: u64 = 200;
const WINDOW_TOKENS: u64 = 2_000;

/// The facts of turns 2 to 4, one in each.
const FACTS: [&str; 3] =
    ["FACT 2: the gate opens with 4711", "FACT 3: the cat is called Miso", "FACT 4: the boat leaves from pier 9"];

/// Returns the question of a turn: between 20 and 50 words, and the turn's fact.
fn question(turn: u64) -> String {
    let text = words(turn, 20 + usize::try_from(turn % 31).unwrap());
    match turn.checked_sub(2).and_then(|at| FACTS.get(usize::try_from(at).unwrap())) {
        Some(fact) => format!("{text}\n{fact}\n{text}"),
        None => text,
    }
}

/// A model that calls its tool this many times in each turn, talks, and summarises by keeping facts.
fn model(rounds: u64) -> impl FnMut(&Asked) -> Reply + Send {
    let (mut asked, mut round) = (0, 0);
    move |request| {
        asked += 1;
        if !is_summary(request) {
            round = (round + 1) % (rounds + 1);
            if round > 0 {
                return Reply::text(words(asked, 5)).and_call("look", r#"{"at":"the harbour"}"#);
            }
        }
        reply_to(request, asked, 45)
    }
}

/// Talks for 200 turns, with this many rounds of tool calls in each.
async fn check(api: &str, dialect: Dialect, rounds: u64) {
    let setup = Setup { window_tokens: Some(WINDOW_TOKENS), ..Setup::default() };
    let upstream = Upstream::start_with(setup, model(rounds)).await;
    let server = Server::facing(
        &upstream.base_url(),
        &[("OPENAI_API", api), ("CONTEXT_WINDOW", "2000"), ("strategy.userShare", "0")],
    )
    .await;
    let mut conversation = Conversation::begin(&server.ws(), dialect).await;
    if rounds > 0 {
        // Every seventh result is far longer than the others.
        conversation.offer(|call| words(call, if call % 7 == 0 { 160 } else { 30 })).await;
    }
    for turn in 1..=TURNS {
        conversation.talk(&question(turn)).await;
    }
    examine(&mut conversation, &upstream, TURNS, rounds).await;
}

/// Checks a conversation of this many turns, with this many rounds of tool calls in each.
async fn examine(conversation: &mut Conversation, upstream: &Upstream, turn_count: u64, rounds: u64) {
    // A held result may be committed once the last answer has passed the trigger: its event comes before this reply.
    let info = conversation.info().await;
    upstream.assert_clean();
    assert_eq!(upstream.refused(), 0, "of requests larger than the window");
    for kind in ["error", "item_aborted"] {
        assert_eq!(conversation.came(kind), [json!(null); 0], "{kind}");
    }
    // A prepared result may be superseded by one that a turn with many tools needs at once; nothing else fails.
    let mut failed = conversation.came("compaction_failed");
    failed.retain(|failed| failed["error"]["code"] != "compaction_void");
    assert_eq!(failed, [json!(null); 0]);

    let requests = upstream.requests();
    let (summaries, turns): (Vec<&Asked>, Vec<&Asked>) = requests.iter().partition(|asked| is_summary(asked));
    assert_eq!(turns.len() as u64, turn_count * (rounds + 1), "nothing is asked that nobody asked for");
    let compactions = conversation.came("context_compacted");
    assert!(compactions.len() as u64 >= turn_count / 10, "{} compactions in {turn_count} turns", compactions.len());
    assert!(summaries.len() >= compactions.len(), "each has its summary");
    for compacted in &compactions {
        assert_eq!(compacted["trigger"], "threshold", "{compacted}");
        assert_ne!(*present(&compacted["rung"]), "extract", "{compacted}");
        let [before, after] = conversation.dialect.compacted_counts().map(|name| &compacted[name]);
        assert!(whole(after) > 0 && whole(after) < whole(before), "{compacted}");
    }
    assert_eq!(info["compactions"], compactions.len());

    let last = turns.last().unwrap();
    assert!(last.contains(&question(turn_count)), "the last question is asked word for word");
    assert_eq!(facts(&last.text()), FACTS, "in the summary, each once");
}

#[tokio::test]
async fn two_hundred_turns_over_chat_completions() {
    check("chat", Dialect::V2, 0).await;
}

#[tokio::test]
async fn two_hundred_turns_over_responses() {
    check("responses", Dialect::V2, 0).await;
}

#[tokio::test]
async fn two_hundred_turns_over_chat_completions_for_a_v1_client() {
    check("chat", Dialect::V1, 0).await;
}

#[tokio::test]
async fn two_hundred_turns_over_responses_for_a_v1_client() {
    check("responses", Dialect::V1, 0).await;
}

#[tokio::test]
async fn two_hundred_turns_with_tools_over_chat_completions() {
    check("chat", Dialect::V2, 2).await;
}

#[tokio::test]
async fn two_hundred_turns_with_tools_over_responses() {
    check("responses", Dialect::V2, 2).await;
}
