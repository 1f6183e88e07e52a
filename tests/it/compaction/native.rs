//! `SUMMARY_REQUEST=provider_native`: the provider compacts in its own form, which only its own model is sent. All
//! others read the text beside it.

use crate::support::{
    client::Client,
    json::{present, whole},
    server::Server,
    talk::{is_summary, rides, summary, words},
    upstream::{Api, Asked, Reply, Upstream, unsealed},
};
use reseed::store::{SessionStore, sqlite::SqliteStore};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tempfile::TempDir;

/// A fact in the provider's compaction, and another one in our summary.
const SEALED: &str = "The ship is called Aurora";
const OURS: &str = "The ship was built in Oslo";

/// The model of each API. Another model of the same server has an `x` at the end.
const APIS: [(Api, &str); 2] = [(Api::Responses, "test"), (Api::Messages, "anthropic/claude-test")];

type Script = Box<dyn FnMut(&Asked) -> Reply + Send>;

/// A server that compacts like this.
async fn compacting(mut native: Script) -> Upstream {
    let mut number = 1_000;
    Upstream::start(move |asked| {
        number += 1;
        match asked {
            asked if asked.compacts => native(asked),
            asked if is_summary(asked) || rides(asked) => Reply::text(summary(&[OURS])),
            _ => Reply::text(words(number, 150)),
        }
    })
    .await
}

fn good(asked: &Asked) -> Reply {
    Reply::compaction(asked, &summary(&[SEALED]))
}

struct Talk {
    upstream: Upstream,
    server: Server,
    client: Client,
    session: Value,
    folder: TempDir,
    model: &'static str,
    settings: Vec<(&'static str, String)>,
}

impl Talk {
    /// Opens a session of this model.
    async fn open(upstream: Upstream, model: &'static str, more: &[(&'static str, &str)]) -> Self {
        let mut settings = vec![
            ("ANTHROPIC_BASE_URL", upstream.messages_url()),
            ("OPENAI_API", "responses".to_owned()),
            ("SUMMARY_REQUEST", "provider_native".to_owned()),
            ("MODEL", model.to_owned()),
            ("CONTEXT_WINDOW", "16000".to_owned()),
            ("strategy.background", "1".to_owned()),
        ];
        settings.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let folder = tempfile::tempdir().unwrap();
        let server = serve(&upstream, &folder, &settings).await;
        let (mut client, opened) = Client::v2_session(&server.ws()).await;
        client.ask("set_instructions", json!({ "instructions": "Answer as a sailor would." })).await;
        Self { upstream, server, client, session: opened["sessionId"].clone(), folder, model, settings }
    }

    async fn restart(&mut self) {
        self.server.service.stop().await;
        self.server = serve(&self.upstream, &self.folder, &self.settings).await;
        self.client = Client::v2(&self.server.ws()).await;
        self.client.ask("open_session", json!({ "sessionId": self.session })).await;
    }

    /// Talks until the next request has this many tokens.
    async fn fill(&mut self, tokens: u64) {
        for number in 0..60 {
            let finished = self.client.turn(&words(number, 150)).await;
            assert_eq!(finished["status"], "completed", "{finished}");
            if whole(&finished["contextInfo"]["tokenCount"]) >= tokens {
                return;
            }
        }
        panic!("sixty turns have fewer than {tokens} tokens");
    }

    async fn compact(&mut self, order: Value) -> Value {
        let reply = self.client.ask("start_compaction", order).await;
        assert_eq!(reply["type"], "ok", "{reply}");
        let ends = |frame: &Value| frame["type"] == "context_compacted" || frame["type"] == "compaction_failed";
        let came = self.client.until(ends).await;
        assert_eq!(came["type"], "context_compacted", "{came}");
        came["payload"].clone()
    }

    /// Returns the request of a turn, and what the server then said about the context.
    async fn turn(&mut self, model: &str) -> (Asked, Value) {
        assert_eq!(self.client.ask("set_model", json!({ "model": model })).await["type"], "ok");
        let finished = self.client.turn("Go on.").await;
        assert_eq!(finished["status"], "completed", "{finished}");
        self.upstream.assert_clean();
        (self.upstream.requests().pop().unwrap(), finished["contextInfo"].clone())
    }

    fn compactions(&self) -> usize {
        self.upstream.requests().iter().filter(|asked| asked.compacts).count()
    }
}

async fn serve(upstream: &Upstream, folder: &TempDir, settings: &[(&str, String)]) -> Server {
    let store: Arc<dyn SessionStore> = Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Server::facing_over(&upstream.base_url(), store, &settings).await
}

/// Returns what the provider's own form in a request says. The scripted server checks that it comes first.
fn native_in(asked: &Asked) -> Option<String> {
    let blocks = asked.messages().iter().flat_map(|message| message["content"].as_array().into_iter().flatten());
    asked.messages().iter().chain(blocks).find(|item| item["type"] == "compaction").and_then(unsealed)
}

fn has_readable(asked: &Asked) -> bool {
    asked.contains("The earlier part of this conversation was summarised")
}

#[tokio::test]
async fn its_own_model_is_sent_the_providers_form_and_any_other_the_text() {
    for (api, model) in APIS {
        let mut talk = Talk::open(compacting(Box::new(good)).await, model, &[]).await;
        talk.fill(8_000).await;
        let compacted = talk.compact(json!({ "instructions": "Mind the ropes." })).await;
        assert_eq!((&compacted["rung"], &compacted["failedRungs"]), (&json!("provider_native"), &Value::Null));
        // Anthropic says what its compaction contains. For OpenAI's we write a summary.
        let readable = if api == Api::Messages { SEALED } else { OURS };
        let told = compacted["summary"].as_str().unwrap();
        assert!(told.contains(readable), "{told}");
        let requests = talk.upstream.requests();
        let asked = requests.iter().find(|asked| asked.compacts).unwrap();
        assert!(asked.contains("Answer as a sailor would.") && asked.contains("Mind the ropes."));
        assert_eq!(requests.iter().filter(|asked| is_summary(asked)).count(), usize::from(api == Api::Responses));
        // About 4,000 tokens are kept. The bytes of the provider's form are not counted.
        let after = whole(&compacted["tokensAfter"]);
        assert!(after < 4_800, "{after}");

        let (asked, info) = talk.turn(talk.model).await;
        assert!(native_in(&asked).unwrap().contains(SEALED) && !has_readable(&asked));
        // From now on the provider's own count is the basis.
        assert!(whole(&info["tokenCount"]) > after + 1_800, "{after} {info}");
        let other = format!("{model}x");
        let (asked, _) = talk.turn(&other).await;
        assert!(native_in(&asked).is_none() && has_readable(&asked) && asked.contains(readable));
        let (asked, _) = talk.turn(talk.model).await;
        assert!(native_in(&asked).unwrap().contains(SEALED) && !has_readable(&asked));

        talk.restart().await;
        let (asked, _) = talk.turn(talk.model).await;
        assert!(native_in(&asked).unwrap().contains(SEALED) && !has_readable(&asked));

        assert_eq!(talk.client.ask("undo_compaction", json!({})).await["type"], "ok");
        let (asked, _) = talk.turn(talk.model).await;
        assert!(native_in(&asked).is_none() && !has_readable(&asked));
        for (query, hits) in [("ship", true), ("gAAAA*", false), ("AAAAAAAA*", false)] {
            let found = talk.client.ask("search_history", json!({ "query": query })).await;
            assert_eq!(!present(&found["payload"]["items"]).as_array().unwrap().is_empty(), hits, "{query}: {found}");
        }
    }
}

#[tokio::test]
async fn a_preview_is_applied_as_it_was_shown_and_a_second_one_covers_the_first() {
    for (_, model) in APIS {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = made.clone();
        let native = move |asked: &Asked| {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            Reply::compaction(asked, &summary(&[format!("{SEALED} the {number}th")]))
        };
        let mut talk = Talk::open(compacting(Box::new(native)).await, model, &[]).await;
        talk.fill(8_000).await;
        let shown = talk.client.ask("preview_compaction", json!({})).await["payload"].clone();
        assert_eq!(shown["rung"], "provider_native", "{shown}");
        let compacted = talk.compact(json!({ "previewId": shown["previewId"] })).await;
        assert_eq!(present(&compacted["summary"]), &shown["summary"]);
        assert_eq!((made.load(Ordering::Relaxed), talk.compactions()), (1, 1));
        let (asked, _) = talk.turn(talk.model).await;
        assert!(native_in(&asked).unwrap().contains("the 0th"));
        for number in 0..4 {
            talk.client.turn(&words(number, 400)).await;
        }
        talk.compact(json!({})).await;
        let requests = talk.upstream.requests();
        let second = requests.iter().rfind(|asked| asked.compacts).unwrap();
        assert!(native_in(second).unwrap().contains("the 0th"), "it begins as the conversation did");
        let (asked, _) = talk.turn(talk.model).await;
        assert!(native_in(&asked).unwrap().contains("the 1th"));
    }
}

#[tokio::test]
async fn it_is_prepared_in_the_background_and_outlives_a_restart() {
    for (_, model) in APIS {
        let settings = [("strategy.background", "0.85"), ("strategy.userShare", "0")];
        let mut talk = Talk::open(compacting(Box::new(good)).await, model, &settings).await;
        for number in 0..60 {
            let info = talk.client.turn(&words(number, 300)).await["contextInfo"].clone();
            if whole(&info["tokenCount"]) > whole(&info["prepareAtTokens"]) {
                break;
            }
        }
        let prepared = talk.client.event("compaction_prepared").await["payload"].clone();
        assert_eq!(prepared["rung"], "provider_native", "{prepared}");
        talk.restart().await;
        let finished = talk.client.turn(&words(99, 1_500)).await;
        assert_eq!(finished["status"], "completed", "{finished}");
        let compacted = talk.client.seen.iter().find(|frame| frame["type"] == "context_compacted").unwrap();
        assert_eq!(present(&compacted["payload"]["jobId"]), &prepared["jobId"]);
        assert!(native_in(&talk.upstream.requests().pop().unwrap()).is_some());
        assert_eq!(talk.compactions(), 1);
        talk.upstream.assert_clean();
    }
}

#[tokio::test]
async fn what_the_provider_refuses_is_summarised_as_usual() {
    let error = |status: u16, kind: &str, message: &str, code: Value| {
        let details = json!({ "error_code": code });
        let error = json!({ "type": kind, "message": message, "details": details });
        Reply::json(status, &json!({ "type": "error", "error": error }))
    };
    let invalid = "invalid_request_error";
    let unknown = error(400, invalid, "compaction: Extra inputs are not permitted", Value::Null);
    let nothing = error(400, invalid, "There is nothing to summarize.", json!("compaction_nothing_to_summarize"));
    let turn = error(400, invalid, "The last turn is not complete.", json!("compaction_incomplete_turn"));
    let vague = error(400, invalid, "Invalid value.", Value::Null);
    let missing = Reply::error(404, r#"{"detail":"Not Found"}"#);
    let overflow = Reply::overflow(20_000, 16_000);
    let (no_item, two): (Script, Script) = (
        Box::new(|asked| Reply::compactions(asked, &[])),
        Box::new(|asked| Reply::compactions(asked, &[SEALED, SEALED])),
    );
    let empty: Script = Box::new(|asked| Reply::compactions(asked, &[" "]));
    let always = |reply: Reply| -> Script { Box::new(move |_| reply.clone()) };
    // What the server answers, the reason, and whether it is asked again.
    let table = [
        (APIS[0], always(missing.clone()), "upstream_not_found", false),
        (APIS[1], always(missing), "upstream_not_found", false),
        (APIS[0], always(unknown.clone()), "upstream_rejected", false),
        (APIS[1], always(unknown), "upstream_rejected", false),
        // It may be about the conversation.
        (APIS[0], always(vague), "upstream_rejected", true),
        (APIS[1], always(nothing), "upstream_rejected", true),
        (APIS[1], always(turn), "upstream_rejected", true),
        (APIS[0], always(overflow), "context_overflow", true),
        (APIS[0], no_item, "upstream_malformed", true),
        (APIS[1], two, "upstream_malformed", true),
        (APIS[1], empty, "upstream_empty", true),
    ];
    for ((_, model), native, reason, again) in table {
        let mut talk = Talk::open(compacting(native).await, model, &[]).await;
        talk.fill(8_000).await;
        let compacted = talk.compact(json!({})).await;
        assert_eq!(compacted["rung"], "model_summary", "{compacted}");
        assert_eq!(compacted["failedRungs"], json!([{ "rung": "provider_native", "reason": reason }]));
        assert!(compacted["summary"].as_str().unwrap().contains(OURS));
        let (asked, _) = talk.turn(talk.model).await;
        assert!(native_in(&asked).is_none() && has_readable(&asked));
        for number in 0..8 {
            talk.client.turn(&words(number, 400)).await;
        }
        let compacted = talk.compact(json!({})).await;
        let reason = if again { reason } else { "upstream_not_found" };
        assert_eq!(compacted["failedRungs"], json!([{ "rung": "provider_native", "reason": reason }]));
        assert_eq!(talk.compactions(), if again { 2 } else { 1 }, "{reason}");
    }
}

#[tokio::test]
async fn without_an_api_for_it_nothing_is_asked() {
    let settings = [("OPENAI_API", "chat")];
    let mut talk = Talk::open(compacting(Box::new(good)).await, "test", &settings).await;
    talk.fill(8_000).await;
    let compacted = talk.compact(json!({})).await;
    assert_eq!((&compacted["rung"], talk.compactions()), (&json!("model_summary"), 0), "{compacted}");
}

#[tokio::test]
async fn a_form_without_a_text_is_not_used() {
    let upstream = Upstream::start(move |asked| match asked {
        asked if asked.compacts => good(asked),
        asked if is_summary(asked) || rides(asked) => Reply::text("[User]: Aye aye?"),
        asked => Reply::text(words(asked.tokens, 150)),
    })
    .await;
    let mut talk = Talk::open(upstream, "test", &[]).await;
    talk.fill(8_000).await;
    let compacted = talk.compact(json!({})).await;
    let failed = |rung: &str| json!({ "rung": rung, "reason": "continued" });
    assert_eq!(compacted["rung"], "extract", "{compacted}");
    let expected = [failed("model_summary"), failed("model_summary"), failed("provider_native")];
    assert_eq!(compacted["failedRungs"], json!(expected));
    let (asked, _) = talk.turn("test").await;
    assert!(native_in(&asked).is_none() && has_readable(&asked));
}

#[tokio::test]
async fn a_form_that_is_refused_later_is_left_out() {
    let refused = json!({ "type": "error", "error": { "type": "invalid_request_error",
        "message": "the block was not made by this API", "details": { "error_code": "compaction_signature_invalid" } } });
    for (_, model) in APIS {
        let refused = refused.clone();
        let upstream = Upstream::start(move |asked| match asked {
            asked if asked.compacts => good(asked),
            asked if is_summary(asked) || rides(asked) => Reply::text(summary(&[OURS])),
            asked if native_in(asked).is_some() => Reply::json(400, &refused),
            asked => Reply::text(words(asked.tokens, 150)),
        })
        .await;
        let mut talk = Talk::open(upstream, model, &[]).await;
        talk.fill(8_000).await;
        talk.compact(json!({})).await;
        let (asked, _) = talk.turn(talk.model).await;
        assert!(native_in(&asked).is_none() && has_readable(&asked));
        let sent = talk.upstream.requests().len();
        talk.turn(talk.model).await;
        assert_eq!(talk.upstream.requests().len(), sent + 1, "the session remembers it");
    }
}
