//! The provider refuses a request as too large: compact once, ask once more, and remember the real window.

use super::{fill, info, session};
use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    client::Client,
    server::Server,
    talk::{facts, is_summary, summaries, summary, talker, text_of, words},
    upstream::{self, Asked, Upstream},
};
use reseed::core::model::{ModelFault, ModelRequest, OverflowHint, Purpose};
use reseed_protocol::ErrorCode;
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Three times the model's real window.
const TOO_LARGE: &[(&str, &str)] = &[("CONTEXT_WINDOW", "6000")];

fn overflow(prompt_tokens: Option<u64>, window_tokens: Option<u64>) -> ModelFault {
    let overflow = OverflowHint { prompt_tokens, window_tokens };
    ModelFault { overflow, ..ModelFault::new(ErrorCode::ContextOverflow, "too large") }
}

#[tokio::test]
async fn a_refusal_is_answered_by_one_compaction_and_teaches_the_window() {
    // What the refusal states (tokens of the request, of the window), and the window that is known from then on.
    let table = [((None, Some(1_300)), 1_300), ((Some(1_500), Some(1_300)), 1_300), ((Some(1_500), None), 1_499)];
    for ((prompt_tokens, window_tokens), learned) in table {
        let model = talker(100);
        let (_server, mut client) = session(&model, TOO_LARGE).await;
        fill(&mut client, 1_400).await;
        assert_eq!(info(&mut client).await["maxTokens"], 6_000);
        let asked = model.requests().len();
        model.push(Reply::fault(overflow(prompt_tokens, window_tokens)));
        let finished = client.turn("And now?").await;
        assert_eq!(finished["status"], "completed", "{finished}");
        let purposes = super::purposes(&model.requests()[asked..]);
        assert_eq!(purposes.first().zip(purposes.last()), Some((&Purpose::Turn, &Purpose::Turn)));
        assert_eq!(purposes.iter().filter(|purpose| **purpose == Purpose::Turn).count(), 2, "asked once more");
        assert_eq!(client.event("context_compacted").await["payload"]["trigger"], "overflow");
        let updated = |frame: &serde_json::Value| frame["payload"]["settings"]["learnedWindowTokens"].is_u64();
        let updated = client.until(updated).await;
        assert_eq!(updated["payload"]["settings"]["learnedWindowTokens"], learned);
        assert_eq!(info(&mut client).await["maxTokens"], learned);
    }
}

#[tokio::test]
async fn a_refusal_without_numbers_is_itself_the_proof() {
    let model = talker(100);
    let (_server, mut client) = session(&model, TOO_LARGE).await;
    fill(&mut client, 1_400).await;
    model.push(Reply::fault(overflow(None, None)));
    assert_eq!(client.turn("And now?").await["status"], "completed");
    let compacted = client.event("context_compacted").await["payload"].clone();
    let window = info(&mut client).await["maxTokens"].as_u64().unwrap();
    assert_eq!(Some(window + 1), compacted["tokensBefore"].as_u64(), "smaller than what was refused");
}

#[tokio::test]
async fn an_answer_that_filled_the_window_is_kept_and_teaches_it() {
    let full = Arc::new(AtomicUsize::new(0));
    let counted = full.clone();
    let upstream = Upstream::start(move |asked| match asked.tokens {
        _ if is_summary(asked) => upstream::Reply::text(summary(&["none"])),
        ..1_500 => upstream::Reply::text("Noted."),
        tokens => {
            counted.fetch_add(1, Ordering::SeqCst);
            let choice = json!({ "delta": { "content": "Half of" }, "finish_reason": "model_context_window_exceeded" });
            let usage = json!({ "prompt_tokens": tokens, "completion_tokens": 2 });
            upstream::Reply::Stream(format!("data: {}\n\n", json!({ "choices": [choice], "usage": usage })), Vec::new())
        }
    })
    .await;
    let settings = [("SUMMARY_REQUEST", "quoted"), ("OPENAI_API", "chat"), TOO_LARGE[0]];
    let server = Server::facing(&upstream.base_url(), &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let mut reasons = Vec::new();
    for turn in 0..6 {
        let finished = client.turn(&words(turn, 250)).await;
        assert_eq!(finished["status"], "completed", "{finished}");
        reasons.push(finished["finishReason"].clone());
    }
    assert!(reasons.contains(&json!("length")), "what was written is kept as cut off: {reasons:?}");
    assert_eq!(full.load(Ordering::SeqCst), 1, "then requests fit: {reasons:?}");
    assert!(info(&mut client).await["maxTokens"].as_u64().unwrap() < 2_500);
}

/// A model server that answers turns with this delta, and reports what `read` says of each request.
async fn reading(delta: Value, read: fn(&Asked) -> u64) -> Upstream {
    Upstream::start(move |asked| {
        if is_summary(asked) {
            return upstream::Reply::text(summary(&["none"]));
        }
        let choice = json!({ "delta": delta, "finish_reason": "stop" });
        let usage = json!({ "prompt_tokens": read(asked), "completion_tokens": 2 });
        upstream::Reply::Stream(format!("data: {}\n\n", json!({ "choices": [choice], "usage": usage })), Vec::new())
    })
    .await
}

#[tokio::test]
async fn a_server_that_cuts_silently_is_told_of_and_its_window_is_learnt() {
    let upstream = reading(json!({ "content": "Noted." }), |asked| asked.tokens.min(1_500)).await;
    let settings = [("SUMMARY_REQUEST", "quoted"), ("OPENAI_API", "chat"), TOO_LARGE[0]];
    let server = Server::facing(&upstream.base_url(), &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for turn in 0..10 {
        assert_eq!(client.turn(&words(turn, 250)).await["status"], "completed");
    }
    let warnings = client.seen.iter().filter(|frame| frame["type"] == "context_warning");
    let codes: Vec<_> = warnings.map(|frame| frame["payload"]["code"].clone()).collect();
    assert_eq!(codes, ["context_truncated_upstream"]);
    let learnt = info(&mut client).await;
    assert_eq!((&learnt["maxTokens"], &learnt["learnedWindowTokens"]), (&json!(1_500), &json!(1_500)));
    assert!(upstream.requests().last().unwrap().tokens <= 1_500, "it is sent no more than it reads");
    // Choosing the same model again forgets what was learnt.
    client.ask("set_model", json!({ "model": "test" })).await;
    let anew = info(&mut client).await;
    assert_eq!((&anew["maxTokens"], &anew["learnedWindowTokens"]), (&json!(6_000), &Value::Null));
}

#[tokio::test]
async fn a_template_that_leaves_out_earlier_reasoning_is_no_silent_cut() {
    let delta = json!({ "reasoning_content": words(1, 600), "content": "Noted." });
    let upstream = reading(delta, |asked| {
        let texts = asked.body["messages"].as_array().unwrap().iter().map(|message| message["content"].as_str());
        texts.map(|text| 8 + text.map_or(0, |text| text.len() as u64 / 5)).sum()
    })
    .await;
    let settings = [("SUMMARY_REQUEST", "quoted"), ("OPENAI_API", "chat"), ("CONTEXT_WINDOW", "30000")];
    let server = Server::facing(&upstream.base_url(), &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for turn in 0..10 {
        assert_eq!(client.turn(&words(turn, 60)).await["status"], "completed");
    }
    assert!(upstream.requests().last().unwrap().body.to_string().contains("reasoning_content"), "it goes back");
    assert!(!client.seen.iter().any(|frame| frame["type"] == "context_warning"));
    assert_eq!(info(&mut client).await["learnedWindowTokens"], Value::Null);
}

#[tokio::test]
async fn a_refusal_that_no_change_cures_is_tried_as_one_of_size() {
    let refusals = [
        (400, r#"{"error":{"code":"invalid_parameter","message":"请求 content 超出限制"}}"#),
        (422, r#"{"error":{"message":"invalid role or content"}}"#),
        (413, "<html><title>413 Request Entity Too Large</title></html>"),
    ];
    for (status, body) in refusals {
        let upstream = Upstream::start(move |asked| match asked.tokens {
            _ if is_summary(asked) => upstream::Reply::text(summary(&["none"])),
            3_500.. => upstream::Reply::error(status, body),
            _ => upstream::Reply::text("Noted."),
        })
        .await;
        let settings = [("SUMMARY_REQUEST", "quoted"), ("OPENAI_API", "chat"), TOO_LARGE[0]];
        let server = Server::facing(&upstream.base_url(), &settings).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        for turn in 0..14 {
            assert_eq!(client.turn(&words(turn, 250)).await["status"], "completed", "{body}: turn {turn}");
        }
        assert!(client.seen.iter().any(|frame| frame["type"] == "context_compacted"), "{body}");
        // Only what was answered when it was smaller, twice, teaches a window.
        let learnt = info(&mut client).await["learnedWindowTokens"].as_u64();
        assert!(learnt.is_none_or(|tokens| tokens > 3_000), "{body}: {learnt:?}");
    }
}

#[tokio::test]
async fn a_second_refusal_ends_the_turn() {
    let model = Scripted::answering(|request| match request.purpose {
        Purpose::Summary => Reply::text(summary(&["none"])),
        Purpose::Turn if text_of(request).contains("And now?") => Reply::fault(overflow(None, None)),
        Purpose::Turn => Reply::text(words(1, 100)),
    });
    let (_server, mut client) = session(&model, TOO_LARGE).await;
    fill(&mut client, 1_400).await;
    let asked = model.requests().len();
    let finished = client.turn("And now?").await;
    assert_eq!((&finished["status"], &finished["error"]["code"]), (&json!("failed"), &json!("context_overflow")));
    let purposes = super::purposes(&model.requests()[asked..]);
    assert_eq!(purposes.iter().filter(|purpose| **purpose == Purpose::Turn).count(), 2, "asked once more, not twice");
    let compactions = client.seen.iter().filter(|frame| frame["type"] == "context_compacted").count();
    assert_eq!(compactions, 1);
}

#[tokio::test]
async fn manual_does_not_compact_on_a_refusal_either() {
    let model = talker(100);
    let (_server, mut client) = session(&model, &[("CONTEXT_STRATEGY", "manual")]).await;
    fill(&mut client, 1_000).await;
    let asked = model.requests().len();
    model.push(Reply::fault(overflow(Some(1_100), Some(1_050))));
    let finished = client.turn("And now?").await;
    assert_eq!(finished["error"]["code"], "context_overflow", "{finished}");
    assert!(finished["error"]["message"].as_str().unwrap().contains("compact the context"), "{finished}");
    assert_eq!(model.requests().len(), asked + 1);
}

#[tokio::test]
async fn a_compaction_for_a_refusal_can_be_cancelled() {
    let (model, gate) = (talker(100), Gate::new());
    let (_server, mut client) = session(&model, TOO_LARGE).await;
    fill(&mut client, 1_400).await;
    let asked = model.requests().len();
    model.push(Reply::fault(overflow(None, Some(1_300))));
    model.push(Reply::text(summary(&["late"])).held_by(&gate));
    client.ask("user_input", json!({ "input": "And now?" })).await;
    model.wait_for_requests(asked + 2).await;
    client.ask("cancel_compaction", json!({})).await;
    let finished = client.event("turn_finished").await["payload"].clone();
    assert_eq!(finished["error"]["code"], "compaction_cancelled", "{finished}");
    assert_eq!(model.requests().len(), asked + 2, "what was refused is not sent again unasked");
    client.ask("retry_turn", json!({})).await;
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
}

/// The way a server refuses a request that is too large.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    /// With the tokens of the request and of the window.
    Numbers,
    /// With the window only.
    Window,
    /// With the tokens of the request only, as an answer that ends at once for lack of room.
    Request,
    /// With a sentence.
    Silent,
    /// Not at all: a stream without any text, as llama-cpp-python sends.
    Empty,
}

fn counted(request: &ModelRequest) -> u64 {
    let characters = text_of(request).chars().count() + request.envelope.system.compiled.chars().count();
    (characters / 4 + 4 * request.messages().count()) as u64
}

/// A model with a real window of 2,000 tokens by its own count.
fn small(refusal: Refusal, reports: bool) -> Scripted {
    const WINDOW_TOKENS: u64 = 2_000;
    let mut asked = 0;
    Scripted::answering(move |request| {
        asked += 1;
        let tokens = counted(request);
        if tokens > WINDOW_TOKENS {
            return Reply::fault(match refusal {
                Refusal::Numbers => overflow(Some(tokens), Some(WINDOW_TOKENS)),
                Refusal::Window => overflow(None, Some(WINDOW_TOKENS)),
                Refusal::Request => overflow(Some(tokens), None),
                Refusal::Silent => overflow(None, None),
                Refusal::Empty => ModelFault::new(ErrorCode::UpstreamEmpty, "nothing was said"),
            });
        }
        let reply = Reply::text(match request.purpose {
            Purpose::Turn => words(asked, 60),
            Purpose::Summary => summary(&facts(&text_of(request))),
        });
        if reports { reply.usage(tokens, 90) } else { reply }
    })
}

#[tokio::test]
async fn a_window_configured_three_times_too_large_still_answers_every_turn() {
    for refusal in [Refusal::Numbers, Refusal::Window, Refusal::Request, Refusal::Silent, Refusal::Empty] {
        for reports in [true, false] {
            let model = small(refusal, reports);
            let (_server, mut client) = session(&model, TOO_LARGE).await;
            client.turn("FACT 1: the ship is called Aurora").await;
            for number in 0..40 {
                // Now and then something long, so that the window is exceeded by a little and by a lot.
                let length = if number % 7 == 6 { 300 } else { 60 };
                let finished = client.turn(&words(number, length)).await;
                assert_eq!(finished["status"], "completed", "{refusal:?} {reports} {number}: {finished}");
            }
            let requests = model.requests();
            assert!(summaries(&requests) >= 3, "{refusal:?} {reports}");
            let refused = requests.iter().filter(|request| counted(request) > 2_000).count();
            assert!(refused >= 1, "{refusal:?} {reports}: the window was never passed");
            assert!(refused <= 6, "{refusal:?} {reports}: {refused} refusals, so nothing was learnt");
            assert_eq!(facts(&text_of(requests.last().unwrap())).len(), 1, "{refusal:?} {reports}");
        }
    }
}

#[tokio::test]
async fn an_answer_to_a_request_that_was_cut_without_a_word_is_told_so_and_stands() {
    let model = Scripted::new();
    let (_server, mut client) = session(&model, &[("CONTEXT_STRATEGY", "manual")]).await;
    for (reported, is_cut) in [(1_500, false), (1_900, false), (2_600, true)] {
        model.push(Reply::text("Yes.").usage(reported, 2));
        let finished = client.turn("Is it there?").await;
        assert_eq!(finished["status"], "completed", "{finished}");
        let told = client.forget("context_warning");
        let told = told.iter().filter(|frame| frame["payload"]["message"].as_str().unwrap().contains("left out"));
        let messages: Vec<&str> = told.map(|frame| frame["payload"]["message"].as_str().unwrap()).collect();
        assert_eq!(messages.len(), usize::from(is_cut), "{reported}: {messages:?}");
        assert!(messages.iter().all(|message| message.contains("2600") && message.contains("2000")), "{messages:?}");
    }
}
