//! The provider for OpenAI-compatible servers, over real sockets against a scripted server.

mod real;
mod recorded;
mod refused;
mod shapes;

use crate::support::scripted::Gate;
use crate::support::upstream::{Api, Asked, Finish, Reply, Setup, Step, Upstream};
use reseed::{
    core::model::{Answer, Delta, ModelFault, ModelRequest, OverflowHint, Purpose},
    provider::{
        DeltaSink, Provider,
        openai::{self, ApiChoice, OpenAi, OpenAiOptions},
        retry::RetryPolicy,
    },
};
use reseed_protocol::{
    ErrorCode, Message, Part, Role, StopReason,
    context::{
        ContextEnvelope, ContextMessage, EnvelopeMessages, EnvelopeMeta, RequestOptions, SystemPrompt, ToolDefinition,
    },
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

const APIS: [ApiChoice; 2] = [ApiChoice::Chat, ApiChoice::Responses];

/// The parts that were shown; a call as `name(arguments)`, once it is complete.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Shown(pub(crate) Vec<String>);

impl DeltaSink for Shown {
    fn delta(&mut self, delta: Delta<'_>) {
        let part = delta.part();
        self.0.resize(self.0.len().max(part + 1), String::new());
        match delta {
            Delta::Call { name, .. } => self.0[part] = format!("{name}("),
            Delta::CallEnd { .. } => self.0[part].push(')'),
            _ => self.0[part].push_str(delta.text()),
        }
    }
}

fn options(base_url: String, api: ApiChoice) -> OpenAiOptions {
    let retry = RetryPolicy { jitter: || 0.0, ..RetryPolicy::default() };
    OpenAiOptions { base_url, api, api_key: Some("sk-secret".into()), retry, ..OpenAiOptions::default() }
}

pub(crate) fn provider(upstream: &Upstream, api: ApiChoice) -> OpenAi {
    OpenAi::new(options(upstream.base_url(), api)).unwrap()
}

fn request(messages: Vec<Message>) -> ModelRequest {
    let message = |message| ContextMessage { entry_id: None, message: Arc::new(message) };
    ModelRequest {
        model: "test-model".into(),
        envelope: ContextEnvelope {
            system: SystemPrompt { parts: Vec::new(), compiled: "be brief".into() },
            tools: Vec::new(),
            messages: EnvelopeMessages { cached: messages.into_iter().map(message).collect(), uncached: Vec::new() },
            options: RequestOptions::default(),
            meta: EnvelopeMeta::default(),
        },
        purpose: Purpose::Turn,
        compared_with: None,
        compacts: None,
    }
}

fn hello() -> ModelRequest {
    request(vec![Message::user("hello")])
}

async fn ask(provider: &OpenAi, request: &ModelRequest) -> (Result<Answer, ModelFault>, Shown) {
    let mut shown = Shown::default();
    let answer = provider.answer(request, &mut shown).await;
    (answer, shown)
}

fn call(id: &str, arguments: &str) -> Part {
    Part::ToolCall { call_id: id.parse().unwrap(), name: "look".into(), arguments: arguments.into() }
}

fn result(id: &str) -> Part {
    Part::ToolResult { call_id: id.parse().unwrap(), output: "seen".into(), is_error: false }
}

#[tokio::test]
async fn an_answer_arrives_whole_over_both_apis() {
    for api in APIS {
        let reply = Reply::text("Grüße, 世界").in_pieces(4).with_reasoning("hm").and_call("look", r#"{"at":1}"#);
        let upstream = Upstream::replying([reply.with_usage(9, 7)]).await;
        let (answer, shown) = ask(&provider(&upstream, api), &hello()).await;
        let answer = answer.unwrap();
        assert_eq!(shown.0, ["hm", "Grüße, 世界", r#"look({"at":1})"#], "{api:?}");
        assert!(matches!(&answer.parts[0], Part::Reasoning { text, .. } if text == "hm"));
        assert_eq!(answer.parts[1], Part::Text { text: "Grüße, 世界".into() });
        assert!(
            matches!(&answer.parts[2], Part::ToolCall { name, arguments, .. } if name == "look" && arguments == r#"{"at":1}"#)
        );
        assert_eq!(answer.stop_reason, StopReason::ToolCalls);
        assert_eq!(answer.usage.map(|usage| (usage.input_tokens, usage.output_tokens)), Some((9, 7)));
        assert_eq!(upstream.requests()[0].header("authorization"), Some("Bearer sk-secret"));
        upstream.assert_clean();
    }
}

#[tokio::test]
async fn every_kind_of_message_is_legal_over_both_apis() {
    let image = Part::Image { url: "data:image/png;base64,AA==".into(), detail: Some("low".into()) };
    let thought = Part::Reasoning { text: "hm".into(), payload: None };
    let mut request = request(vec![
        Message::user("one"),
        Message::new(
            Role::Assistant,
            vec![thought.clone(), call("c.1", "{}"), call("c.2", r#"{"malformed":"{\"a\":"}"#)],
        ),
        Message::new(Role::Tool, vec![result("c.1"), result("c.2")]),
        Message::new(Role::Assistant, vec![Part::Text { text: "two".into() }, call("c.3", r#"{"at":"quay"}"#)]),
        Message::new(Role::Tool, vec![result("c.3")]),
        Message::new(Role::Assistant, vec![thought]),
        Message::new(Role::User, vec![Part::Text { text: String::new() }]),
        Message::new(Role::User, vec![Part::Text { text: "see".into() }, image.clone()]),
        Message::new(Role::User, vec![image]),
    ]);
    request.envelope.tools = vec![ToolDefinition {
        name: "look".into(),
        description: "Looks.".into(),
        parameters: json!({ "type": "object", "properties": {} }),
    }];
    request.envelope.options = RequestOptions {
        temperature: Some(0.5),
        max_output_tokens: Some(64),
        reasoning_effort: Some("low".into()),
        ..RequestOptions::default()
    };
    for api in APIS {
        let upstream = Upstream::replying([Reply::text("three")]).await;
        ask(&provider(&upstream, api), &request).await.0.unwrap();
        upstream.assert_clean();
        let asked = &upstream.requests()[0];
        assert_eq!((asked.system(), asked.offers_tools()), ("be brief", true));
        let limit = if asked.api == Api::Chat { "max_tokens" } else { "max_output_tokens" };
        assert_eq!(asked.body[limit], 64);
        assert!(asked.contains(r#"{"malformed":"{\"a\":"}"#));
        assert!(!asked.contains("hm"), "reasoning that the provider did not seal stays here");
    }
}

#[tokio::test]
async fn sealed_reasoning_goes_back_to_the_model_that_sealed_it() {
    let reply = || Reply::text("a").with_reasoning("hm");
    let upstream = Upstream::replying([reply(), reply(), reply()]).await;
    let provider = provider(&upstream, ApiChoice::Responses);
    let answer = ask(&provider, &hello()).await.0.unwrap();
    for (model, expected) in [("test-model", true), ("another", false)] {
        let said = Message { model: Some(model.into()), ..Message::new(Role::Assistant, answer.parts.clone()) };
        ask(&provider, &request(vec![Message::user("one"), said, Message::user("two")])).await.0.unwrap();
        let asked = upstream.requests().pop().unwrap();
        assert_eq!(asked.messages().iter().any(|item| item["type"] == "reasoning"), expected, "{model}");
    }
    upstream.assert_clean();
}

/// Returns the result of one failing exchange: its code, what had been shown, and the number of attempts. `silent` is
/// the limit that the server's silence must reach. The others are so large that a busy machine never reaches them.
async fn failure(api: ApiChoice, reply: Reply, silent: Silent) -> (ModelFault, Vec<String>, usize) {
    let upstream = Upstream::start(move |_| reply.clone()).await;
    let mut options = options(upstream.base_url(), api);
    match silent {
        Silent::Never => {}
        Silent::First => options.first_event_timeout = Duration::from_millis(50),
        Silent::Idle => options.idle_timeout = Duration::from_millis(50),
    }
    let (answer, shown) = ask(&OpenAi::new(options).unwrap(), &hello()).await;
    (answer.unwrap_err(), shown.0, upstream.requests().len())
}

/// The point at which a server falls silent.
#[derive(Clone, Copy)]
enum Silent {
    Never,
    First,
    Idle,
}

#[tokio::test]
async fn every_broken_exchange_gets_its_code_and_is_asked_again_only_before_it_began() {
    let text = || Reply::text("half of it").in_pieces(2);
    let bytes = |text: &str| Step::Bytes(text.as_bytes().to_vec());
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let page = Reply::Plain { status: 200, headers: vec![], kind: "text/html", body: "<html>".into() };
    for (name, reply, code, shown, asked) in [
        ("reset in the middle", text().ending(Finish::Reset), ErrorCode::UpstreamTruncated, true, 1),
        ("clean end in the middle", text().ending(Finish::NoEnd), ErrorCode::UpstreamTruncated, true, 1),
        ("error in the middle", text().ending(Finish::Error), ErrorCode::UpstreamError, true, 1),
        ("silence in the middle", text().ending(Finish::Hang), ErrorCode::UpstreamTimeout, true, 1),
        ("silence", Reply::silence(), ErrorCode::UpstreamTimeout, false, 1),
        ("silence after the head", Reply::Raw(vec![bytes(head), Step::Hang]), ErrorCode::UpstreamTimeout, false, 1),
        ("comments only", Reply::Stream(": ping\n\n".into(), vec![Step::Hang]), ErrorCode::UpstreamTimeout, false, 1),
        ("closed without a word", Reply::Raw(vec![Step::Close]), ErrorCode::UpstreamUnreachable, false, 4),
        ("reset after the head", Reply::Raw(vec![bytes(head), Step::Reset]), ErrorCode::UpstreamUnreachable, false, 4),
        ("no event", Reply::Stream(String::new(), vec![]), ErrorCode::UpstreamEmpty, false, 1),
        ("nothing said", Reply::text(""), ErrorCode::UpstreamEmpty, false, 1),
        ("nothing let through", Reply::text("").ending(Finish::ContentFilter), ErrorCode::ContentFiltered, false, 1),
        ("no room", Reply::text("").ending(Finish::Length).with_usage(9, 0), ErrorCode::ContextOverflow, false, 1),
        ("not JSON", Reply::Stream("data: {\"a\n\n".into(), vec![]), ErrorCode::UpstreamMalformed, false, 1),
        ("not HTTP", Reply::Raw(vec![bytes("hello"), Step::Close]), ErrorCode::UpstreamUnreachable, false, 4),
        ("one JSON value", Reply::error(200, r#"{"choices":[]}"#), ErrorCode::UpstreamMalformed, false, 1),
        (
            "an error under 200",
            Reply::error(200, r#"{"error":{"code":429}}"#),
            ErrorCode::UpstreamRateLimited,
            false,
            4,
        ),
        ("a web page", page, ErrorCode::UpstreamMalformed, false, 1),
        ("401", Reply::error(401, "{}"), ErrorCode::UpstreamAuth, false, 1),
        ("400", Reply::error(400, "{}"), ErrorCode::UpstreamRejected, false, 1),
        ("404", Reply::error(404, "<html>"), ErrorCode::UpstreamNotFound, false, 1),
        ("overflow", Reply::overflow(9000, 8192), ErrorCode::ContextOverflow, false, 1),
        ("quota", Reply::error(429, r#"{"error":{"code":"insufficient_quota"}}"#), ErrorCode::UpstreamQuota, false, 1),
        ("429", Reply::error(429, "{}"), ErrorCode::UpstreamRateLimited, false, 4),
        ("500", Reply::error(500, "oops"), ErrorCode::UpstreamError, false, 4),
        ("503", Reply::error(503, ""), ErrorCode::UpstreamOverloaded, false, 4),
        ("302", Reply::error(302, "").with_header("location", "/elsewhere"), ErrorCode::UpstreamNotFound, false, 1),
    ] {
        for api in APIS {
            let silent = match (code, shown) {
                (ErrorCode::UpstreamTimeout, false) => Silent::First,
                (ErrorCode::UpstreamTimeout, true) => Silent::Idle,
                _ => Silent::Never,
            };
            let (fault, texts, times) = failure(api, reply.clone(), silent).await;
            assert_eq!((fault.code, fault.shown, times), (code, shown, asked), "{name} {api:?}: {}", fault.message);
            assert_eq!(texts, if shown { vec!["half of it"] } else { vec![] }, "{name} {api:?}");
            assert!(!fault.message.contains("sk-secret"), "{name}");
        }
    }
}

#[tokio::test]
async fn a_refusal_as_too_large_tells_its_numbers() {
    let (fault, _, _) = failure(ApiChoice::Chat, Reply::overflow(9000, 8192), Silent::Never).await;
    assert_eq!(fault.overflow, OverflowHint { prompt_tokens: Some(9000), window_tokens: Some(8192) });
}

#[tokio::test]
async fn an_answer_cut_at_a_limit_says_so() {
    for api in APIS {
        for (finish, expected) in
            [(Finish::Length, StopReason::Length), (Finish::ContentFilter, StopReason::ContentFilter)]
        {
            let upstream = Upstream::replying([Reply::text("cut").ending(finish)]).await;
            let answer = ask(&provider(&upstream, api), &hello()).await.0.unwrap();
            assert_eq!(answer.stop_reason, expected, "{api:?}");
        }
    }
}

#[tokio::test]
async fn three_failures_that_pass_cost_no_answer() {
    for api in APIS {
        let upstream = Upstream::replying([
            Reply::error(503, ""),
            Reply::error(429, "{}").with_header("retry-after-ms", "1"),
            Reply::error(500, ""),
            Reply::text("at last"),
        ])
        .await;
        let (answer, shown) = ask(&provider(&upstream, api), &hello()).await;
        assert_eq!(answer.unwrap().parts, [Part::Text { text: "at last".into() }]);
        assert_eq!(shown.0, ["at last"]);
        assert_eq!(upstream.requests().len(), 4);
        upstream.assert_clean();
    }
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_told_at_once() {
    let reply =
        Reply::error(429, r#"{"error":{"type":"all_deployments_in_cooldown"}}"#).with_header("retry-after", "3600");
    let (fault, _, asked) = failure(ApiChoice::Chat, reply, Silent::Never).await;
    assert_eq!((fault.code, fault.retry_after_ms, asked), (ErrorCode::UpstreamOverloaded, Some(3_600_000), 1));
}

#[tokio::test]
async fn dropping_the_answer_hangs_up_on_the_server() {
    for api in APIS {
        let gate = Gate::new();
        for reply in [Reply::silence(), Reply::text("half of it").in_pieces(2).held_by(&gate)] {
            let upstream = Upstream::replying([reply]).await;
            let (provider, request, mut shown) = (provider(&upstream, api), hello(), Shown::default());
            tokio::select! {
                answer = provider.answer(&request, &mut shown) => panic!("{answer:?}"),
                () = upstream.wait_for_requests(1) => {}
            }
            upstream.wait_for_hang_ups(1).await;
        }
    }
}

#[tokio::test]
async fn a_piece_is_shown_before_the_next_one_exists() {
    struct Opens(Gate, String);
    impl DeltaSink for Opens {
        fn delta(&mut self, delta: Delta<'_>) {
            let text = delta.text();
            self.1.push_str(text);
            self.0.open();
        }
    }
    for api in APIS {
        let gate = Gate::new();
        let upstream = Upstream::replying([Reply::text("ab").in_pieces(2).held_by(&gate)]).await;
        let mut sink = Opens(gate, String::new());
        provider(&upstream, api).answer(&hello(), &mut sink).await.unwrap();
        assert_eq!(sink.1, "ab");
    }
}

#[tokio::test]
async fn ten_thousand_pieces_arrive_in_order() {
    let text: String = (0..10_000).map(|n| format!("{n} ")).collect();
    for api in APIS {
        let upstream = Upstream::replying([Reply::text(text.clone()).in_pieces(10_000)]).await;
        let (answer, shown) = ask(&provider(&upstream, api), &hello()).await;
        assert_eq!(answer.unwrap().parts, [Part::Text { text: text.clone() }]);
        assert_eq!(shown.0, std::slice::from_ref(&text));
    }
}

#[tokio::test]
async fn tool_rounds_go_there_and_back_and_use_their_connections_again() {
    for api in APIS {
        let upstream = Upstream::start(|asked: &Asked| match asked.ends_with_result() {
            false => Reply::call("look", r#"{"at":1}"#).without_usage(),
            true => Reply::text("seen"),
        })
        .await;
        let provider = provider(&upstream, api);
        let mut messages = vec![Message::user("hello")];
        for _ in 0..20 {
            let answer = ask(&provider, &request(messages.clone())).await.0.unwrap();
            assert_eq!((answer.stop_reason, answer.usage), (StopReason::ToolCalls, None));
            let id = format!("ours.{}", messages.len());
            messages.push(Message::new(Role::Assistant, vec![call(&id, r#"{"at":1}"#)]));
            messages.push(Message::new(Role::Tool, vec![result(&id)]));
            let answer = ask(&provider, &request(messages.clone())).await.0.unwrap();
            messages.push(Message::new(Role::Assistant, answer.parts));
            messages.push(Message::user("again"));
        }
        upstream.assert_clean();
        assert_eq!(upstream.requests().len(), 40);
        // More than one is possible: the next request may come before the end of the last body was read.
        assert!(upstream.connections() < 10, "{api:?}: {}", upstream.connections());
    }
}

#[tokio::test]
async fn a_window_refuses_what_does_not_fit_and_counts_what_does() {
    let setup = Setup { window_tokens: Some(100), ..Setup::default() };
    let upstream = Upstream::start_with(setup, |asked: &Asked| Reply::text(asked.last_user_text())).await;
    let provider = provider(&upstream, ApiChoice::Chat);
    let answer = ask(&provider, &hello()).await.0.unwrap();
    assert_eq!(answer.parts, [Part::Text { text: "hello".into() }]);
    assert_eq!(answer.usage.map(|usage| usage.input_tokens), Some(upstream.requests()[0].tokens));
    let fault = ask(&provider, &request(vec![Message::user("x".repeat(400))])).await.0.unwrap_err();
    assert_eq!((fault.code, fault.overflow.window_tokens), (ErrorCode::ContextOverflow, Some(100)));
    assert_eq!(upstream.refused(), 1);
}

#[tokio::test]
async fn the_server_of_the_tests_sees_what_is_wrong() {
    let unpaired = vec![Message::user("a"), Message::new(Role::Assistant, vec![call("c", "{}")]), Message::user("b")];
    let orphan = vec![Message::user("a"), Message::new(Role::Tool, vec![result("c")])];
    let twice = vec![
        Message::new(Role::Assistant, vec![call("c", "{}")]),
        Message::new(Role::Tool, vec![result("c"), result("c")]),
    ];
    for api in APIS {
        for messages in [unpaired.clone(), orphan.clone(), twice.clone(), vec![]] {
            let upstream = Upstream::replying([Reply::text("a")]).await;
            ask(&provider(&upstream, api), &request(messages.clone())).await.0.unwrap();
            assert_ne!(upstream.violations(), Vec::<String>::new(), "{api:?} {messages:?}");
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let provider = OpenAi::new(options(format!("http://{address}/v1"), ApiChoice::Chat)).unwrap();
    let fault = ask(&provider, &hello()).await.0.unwrap_err();
    assert_eq!(fault.code, ErrorCode::UpstreamUnreachable);
    assert!(fault.message.contains("connection refused"), "{}", fault.message);
    assert_eq!(provider.models().await.unwrap_err().code, ErrorCode::UpstreamUnreachable);
}

#[tokio::test]
async fn opening_a_connection_has_its_own_limit() {
    // It accepts connections and never speaks: the TLS handshake does not end.
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("https://{}/v1", mute.local_addr().unwrap());
    let connect_timeout = Duration::from_millis(50);
    let options = OpenAiOptions { connect_timeout, ..options(base_url, ApiChoice::Chat) };
    let fault = ask(&OpenAi::new(options).unwrap(), &hello()).await.0.unwrap_err();
    assert_eq!(fault.code, ErrorCode::UpstreamUnreachable, "{}", fault.message);
    assert!(fault.message.contains("timed out"), "{}", fault.message);
}

#[tokio::test]
async fn the_models_are_listed_with_their_windows() {
    let models = json!({ "data": [{ "id": "a", "meta": { "n_ctx": 2048 } }, { "id": "b" }] });
    let upstream = Upstream::start_with(Setup { models, ..Setup::default() }, |_| Reply::text("unused")).await;
    let listed = provider(&upstream, ApiChoice::Auto).models().await.unwrap();
    let listed: Vec<_> = listed.iter().map(|model| (model.id.as_str(), model.window_tokens)).collect();
    assert_eq!(listed, [("a", Some(2048)), ("b", None)]);
}

#[test]
fn the_api_follows_the_address_unless_it_is_chosen() {
    for (base_url, api, expected) in [
        ("https://api.openai.com/v1", ApiChoice::Auto, openai::Api::Responses),
        ("https://api.openai.com/v1/", ApiChoice::Chat, openai::Api::Chat),
        ("http://127.0.0.1:8092/v1", ApiChoice::Auto, openai::Api::Chat),
        ("http://127.0.0.1:8092/v1/", ApiChoice::Responses, openai::Api::Responses),
        ("https://api.openai.com.example.org/v1", ApiChoice::Auto, openai::Api::Chat),
    ] {
        let provider = OpenAi::new(options(base_url.into(), api)).unwrap();
        assert_eq!(provider.api(), expected, "{base_url}");
        assert_eq!(provider.base_url(), base_url.trim_end_matches('/'));
    }
}

#[test]
fn options_that_cannot_work_are_named_without_secrets() {
    for (base_url, key, expected) in [
        (
            "localhost:8092",
            "k",
            "OPENAI_BASE_URL `localhost:8092` is not a valid address: it must begin with http:// or https://",
        ),
        ("", "k", "OPENAI_BASE_URL `` is not a valid address: it must look like https://host/v1"),
        (
            "https://h/v1?x=1",
            "k",
            "OPENAI_BASE_URL `https://h/v1?x=1` is not a valid address: it must not have a query or fragment",
        ),
        ("https://me:pw@h/v1", "k", "OPENAI_BASE_URL must not contain a user name or password; use OPENAI_API_KEY"),
        ("https://h/v1", "sk-a\nb", "OPENAI_API_KEY contains a character that cannot be sent in a header"),
    ] {
        let options = OpenAiOptions { api_key: Some(key.into()), ..options(base_url.into(), ApiChoice::Auto) };
        assert_eq!(OpenAi::new(options).unwrap_err().to_string(), expected);
    }
}
