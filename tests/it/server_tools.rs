//! Tools that the server runs: called, bounded, cancelled, and approved by people.

mod approvals;
mod misbehaving;
mod v1;

use crate::support::scripted::{Reply, Scripted};
use crate::support::{
    client::Client,
    json::present,
    server::Server,
    tools::{ask, finished, results},
};
use reseed::{
    core::need::{Need, Needs},
    store::{SessionStore, memory::MemoryStore},
    tools::{Call, CallFuture, Output, Tool},
};
use reseed_protocol::{
    Part, Role,
    tools::{ToolAnnotations, ToolOffer},
};
use serde_json::json;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::Semaphore;

/// A tool of a test: it repeats its arguments, or waits.
struct TestTool {
    offer: ToolOffer,
    /// Each call waits for a permit, if there is one.
    gate: Option<Arc<Semaphore>>,
    seen: Arc<Seen>,
    output: Output,
}

/// What the tools of a test have seen.
#[derive(Default)]
struct Seen {
    started: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
    dropped: AtomicUsize,
}

/// A running call. One that is dropped before its end was cancelled.
struct Running<'a>(&'a Seen, bool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        if !self.1 {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Tool for TestTool {
    fn offer(&self) -> ToolOffer {
        self.offer.clone()
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            self.seen.started.fetch_add(1, Ordering::SeqCst);
            let running = self.seen.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.seen.most.fetch_max(running, Ordering::SeqCst);
            let mut guard = Running(&self.seen, false);
            if let Some(gate) = &self.gate {
                call.progress.report(Some("at work".to_owned()));
                gate.acquire().await.expect("it is never closed").forget();
            }
            guard.1 = true;
            match self.output.text.as_str() {
                "" => Output::text(format!("called with {}", call.arguments)),
                _ => self.output.clone(),
            }
        })
    }
}

fn tool(name: &str, read_only: bool, seen: &Arc<Seen>) -> TestTool {
    let annotations = ToolAnnotations { read_only: Some(read_only), ..ToolAnnotations::default() };
    let parameters = json!({ "type": "object", "properties": { "at": { "type": "string" } } });
    let offer = ToolOffer { annotations: Some(annotations), ..ToolOffer::new(name, "A tool.", parameters) };
    TestTool { offer, gate: None, seen: seen.clone(), output: Output::default() }
}

fn call(at: usize, name: &str, arguments: &str) -> Part {
    let call_id = format!("call_{at}").parse().unwrap();
    Part::ToolCall { call_id, name: name.into(), arguments: arguments.into() }
}

async fn start(model: &Scripted, tools: Vec<TestTool>, settings: &[(&str, &str)]) -> Server {
    over(model, Arc::new(MemoryStore::new()), tools, settings).await
}

async fn over(
    model: &Scripted,
    store: Arc<dyn SessionStore>,
    tools: Vec<TestTool>,
    settings: &[(&str, &str)],
) -> Server {
    let tools = tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>).collect();
    Server::over_with_tools(model.clone(), store, tools, settings).await
}

#[tokio::test]
async fn a_read_only_tool_runs_without_asking_and_the_model_reads_its_result() {
    let (model, seen) = (Scripted::new(), Arc::new(Seen::default()));
    let server = start(&model, vec![tool("peek", true, &seen)], &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    model.push(Reply::parts(vec![call(0, "peek", r#"{"at":"sea"}"#), call(1, "peek", r#"{"at":7}"#)]));
    model.push(Reply::text("It is blue."));
    ask(&mut client, "How is the sea?").await;
    let called = client.event("tool_call").await;
    assert_eq!(called["payload"]["place"], "server");
    assert_eq!(client.event("call_resolved").await["payload"]["outcome"], "answered");
    assert_eq!(finished(&mut client).await["status"], "completed");
    assert!(client.seen.iter().all(|frame| frame["type"] != "run_tool"), "no client is asked to run it");
    let told = results(&model.requests()[1]);
    let [(wrong, true), (right, false)] = &told[..] else { panic!("{told:?}") };
    assert!(wrong.contains("string"), "its schema is checked: {wrong}");
    assert_eq!(right, r#"called with {"at":"sea"}"#);
    assert_eq!(seen.started.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_client_cannot_answer_for_a_tool_of_the_server() {
    let (model, seen) = (Scripted::new(), Arc::new(Seen::default()));
    let gate = Arc::new(Semaphore::new(0));
    let slow = TestTool { gate: Some(gate.clone()), ..tool("peek", true, &seen) };
    let server = start(&model, vec![slow], &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    model.push(Reply::parts(vec![call(0, "peek", "{}")]));
    model.push(Reply::text("I see."));
    ask(&mut client, "Look!").await;
    let call_id = client.event("tool_call").await["payload"]["toolCallId"].clone();
    let progressed = client.event("call_progressed").await;
    assert_eq!(progressed["payload"]["message"], "at work");
    let forged = client.ask("tool_result", json!({ "toolCallId": call_id, "output": "forged" })).await;
    assert_eq!(forged["payload"]["code"], "unknown_call", "{forged}");
    let forged = client.ask("call_progress", json!({ "toolCallId": call_id })).await;
    assert_eq!(forged["payload"]["code"], "unknown_call", "{forged}");
    gate.add_permits(1);
    assert_eq!(finished(&mut client).await["status"], "completed");
    assert_eq!(results(&model.requests()[1]), [("called with {}".to_owned(), false)]);
}

#[tokio::test]
async fn calls_run_in_parallel_up_to_the_bound_and_sequential_ones_alone() {
    for (sequential, calls, most) in [(false, 10, 8), (false, 5, 5), (true, 5, 1)] {
        let (model, seen) = (Scripted::new(), Arc::new(Seen::default()));
        let gate = Arc::new(Semaphore::new(0));
        let mut slow = TestTool { gate: Some(gate.clone()), ..tool("peek", true, &seen) };
        slow.offer.sequential = Some(sequential);
        let server = start(&model, vec![slow], &[]).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        model.push(Reply::parts((0..calls).map(|at| call(at, "peek", "{}")).collect()));
        model.push(Reply::text("I see."));
        ask(&mut client, "Look several times!").await;
        // Each call reports its start. Once as many have started as may run, all of them are let through.
        for _ in 0..most {
            client
                .until(|frame| frame["type"] == "call_progressed" && present(&frame["payload"]["message"]) == "at work")
                .await;
        }
        gate.add_permits(calls);
        assert_eq!(finished(&mut client).await["status"], "completed");
        assert_eq!(results(&model.requests()[1]).len(), calls);
        assert_eq!(seen.most.load(Ordering::SeqCst), most, "{sequential} {calls}");
    }
}

#[tokio::test]
async fn a_cancelled_turn_cancels_its_calls_and_appends_a_result_for_each() {
    let (model, seen) = (Scripted::new(), Arc::new(Seen::default()));
    let gate = Arc::new(Semaphore::new(0));
    let slow = TestTool { gate: Some(gate), ..tool("peek", true, &seen) };
    let server = start(&model, vec![slow], &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    model.push(Reply::parts(vec![call(0, "peek", "{}"), call(1, "peek", "{}")]));
    ask(&mut client, "Look!").await;
    for _ in 0..2 {
        client.event("call_progressed").await;
    }
    assert_eq!(client.ask("cancel_turn", json!({})).await["type"], "ok");
    for _ in 0..2 {
        assert_eq!(client.event("tool_cancelled").await["payload"]["outcome"], "dropped");
    }
    assert_eq!(finished(&mut client).await["status"], "cancelled");
    while seen.dropped.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    model.push(Reply::text("Fine."));
    ask(&mut client, "Never mind.").await;
    assert_eq!(finished(&mut client).await["status"], "completed");
    let told = results(&model.requests().pop().unwrap());
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|(text, is_error)| *is_error && text.contains("turn ended")), "{told:?}");
}

#[tokio::test]
async fn a_large_result_is_cut_to_the_limit_and_images_are_sent() {
    let (model, seen) = (Scripted::new(), Arc::new(Seen::default()));
    let picture = "data:image/png;base64,iVBORw0KGgo=".to_owned();
    let output = Output { text: "ore ".repeat(8_000), images: vec![picture.clone()], is_error: false };
    let large = TestTool { output, ..tool("peek", true, &seen) };
    // A result may have a quarter of it.
    let settings = [("CONTEXT_WINDOW", "8000")];
    let server = start(&model, vec![large], &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    model.push(Reply::parts(vec![call(0, "peek", "{}")]));
    model.push(Reply::text("I see."));
    ask(&mut client, "Look!").await;
    assert_eq!(finished(&mut client).await["status"], "completed");
    let request = model.requests().pop().unwrap();
    let message = request.messages().find(|message| message.message.role == Role::Tool).unwrap().message.clone();
    let [Part::ToolResult { output, .. }, Part::Image { url, .. }] = &message.content[..] else {
        panic!("{message:?}")
    };
    assert!(output.len() < 12_000 && output.contains("left out"), "{} bytes", output.len());
    assert_eq!(*url, picture);
}

#[tokio::test]
async fn a_hosts_tool_replaces_one_of_the_server_and_tools_off_offers_none() {
    let seen = Arc::new(Seen::default());
    for (settings, off, offered) in [
        (&[][..], json!([]), vec!["peek", "dig", "look"]),
        (&[][..], json!(["dig", "look"]), vec!["peek"]),
        (&[("TOOLS", "off")][..], json!([]), vec![]),
    ] {
        let model = Scripted::new();
        let server = start(&model, vec![tool("peek", true, &seen), tool("dig", false, &seen)], settings).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        let parameters = json!({ "type": "object" });
        let look = json!([{ "name": "look", "description": "The host's.", "parameters": parameters }]);
        assert_eq!(client.ask("register_tools", json!({ "tools": look })).await["type"], "ok");
        assert_eq!(client.ask("set_tools", json!({ "off": off })).await["type"], "ok");
        model.push(Reply::text("Hello."));
        ask(&mut client, "Hello!").await;
        finished(&mut client).await;
        let names: Vec<String> = model.requests()[0].envelope.tools.iter().map(|tool| tool.name.clone()).collect();
        assert_eq!(names, offered, "{settings:?} {off}");
    }
}

#[tokio::test]
async fn a_turn_that_takes_too_long_fails_and_what_ran_is_cancelled() {
    let (model, seen) = (Scripted::new(), Arc::new(Seen::default()));
    let slow = TestTool { gate: Some(Arc::new(Semaphore::new(0))), ..tool("peek", true, &seen) };
    let server = start(&model, vec![slow], &[("TURN_TIMEOUT_SECS", "1")]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    model.push(Reply::parts(vec![call(0, "peek", "{}")]));
    ask(&mut client, "Look!").await;
    let end = finished(&mut client).await;
    assert_eq!((&end["status"], &end["error"]["code"]), (&json!("failed"), &json!("turn_timeout")));
    assert_eq!(seen.started.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_model_that_was_found_to_take_no_tools_is_never_offered_any_again() {
    let (model, seen) = (Scripted::new(), Arc::new(Seen::default()));
    let server = start(&model, vec![tool("peek", true, &seen)], &[]).await;
    model.push(Reply::text("Hello.").having_learnt(Needs::of(&[Need::NoTools, Need::NoImages])));
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let listed = client.ask("list_models", json!({})).await["payload"]["items"][0].clone();
    assert_eq!((listed.get("tools"), listed.get("images")), (None, None));
    ask(&mut client, "Hello!").await;
    assert_eq!(finished(&mut client).await["status"], "completed");
    model.push(Reply::text("Hello again."));
    ask(&mut client, "Hello!").await;
    let end = finished(&mut client).await;
    assert_eq!(end["status"], "completed");
    let (mut other, _) = Client::v2_session(&server.ws()).await;
    model.push(Reply::text("Hello."));
    ask(&mut other, "Hello!").await;
    assert_eq!(finished(&mut other).await["status"], "completed");
    let offered: Vec<usize> = model.requests().iter().map(|request| request.envelope.tools.len()).collect();
    assert_eq!(offered, [1, 0, 0]);
    let listed = client.ask("list_models", json!({})).await["payload"]["items"][0].clone();
    assert_eq!((&listed["tools"], &listed["images"]), (&json!(false), &json!(false)));
}
