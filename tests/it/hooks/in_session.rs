//! Hooks in Rust that use the session they are called for.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, server::Server, talk::text_of};
use reseed::{
    core::hook::{HookFault, HookSpec},
    hooks::{Hook, Session, on_session},
};
use reseed_protocol::{
    ErrorBody,
    compaction::StartCompaction,
    content::InputContent,
    context::GetContext,
    hooks::{HookAnswer, HookCall, HookEvent, HookPoint},
    tree::{AppendCustom, AppendCustomMessage},
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

fn fault(error: ErrorBody) -> HookFault {
    HookFault::failed(format!("{}: {}", error.code, error.message))
}

fn note(text: &str) -> AppendCustomMessage {
    let content = InputContent::Text(text.into());
    AppendCustomMessage { custom_type: "note".into(), content, display: false, details: Some(json!({ "by": text })) }
}

/// Does everything that a hook may, at every point, and records what it receives.
async fn busybody(call: HookCall, session: Session, told: Arc<Mutex<Vec<String>>>) -> Result<HookAnswer, HookFault> {
    let point = call.event.point().as_str();
    let now = session.now().await.map_err(fault)?;
    assert_eq!(now.turn, call.turn_id.clone().or(now.turn.clone()), "it stands where the call says");
    let sent = session.context(GetContext { format: None, ephemeral: None }).await;
    let data = json!({ "at": point });
    session.append_custom(AppendCustom { custom_type: "mark".into(), data }).await.map_err(fault)?;
    session.append_message(note(&format!("noted at {point}"))).await.map_err(fault)?;
    let ordered = session.compact(StartCompaction::default()).await;
    let ordered = ordered.map_or_else(|error| error.code.to_string(), |_| "ordered".to_owned());
    let leaf = session.now().await.map_err(fault)?.leaf.expect("something was written");
    let path = session.path(leaf, 500).await.map_err(fault)?;
    let role = match &call.event {
        HookEvent::Message { message, .. } => format!(" {:?}", message.role),
        _ => String::new(),
    };
    let reads = if sent.is_ok() && !path.is_empty() { "reads" } else { "reads nothing" };
    told.lock().unwrap().push(format!("{point}{role}: {ordered}, {reads}"));
    Ok(HookAnswer::default())
}

fn hook_at(point: HookPoint, told: &Arc<Mutex<Vec<String>>>) -> Arc<dyn Hook> {
    let told = told.clone();
    on_session([HookSpec::new("busybody", point)], move |call, session| busybody(call, session, told.clone()))
}

#[tokio::test]
async fn a_hook_in_rust_reads_its_session_and_adds_to_it_while_it_is_asked() {
    for point in [HookPoint::BeforeAgentStart, HookPoint::Message, HookPoint::Context] {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let model = Scripted::answering(|_| Reply::text("It is calm."));
        let settings = [("CONTEXT_WINDOW", "8000")];
        let server = Server::with_hooks(model.clone(), vec![hook_at(point, &told)], &settings).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        assert_eq!(client.turn("How is the sea?").await["status"], "completed", "{point:?}");
        let noted = format!("noted at {}", point.as_str());
        assert_eq!(client.turn("And now?").await["status"], "completed", "{point:?}");
        let last = model.requests().last().cloned().unwrap();
        assert!(text_of(&last).contains(&noted), "{point:?}: the model is told: {}", text_of(&last));
        let entries = client.ask("get_entries", json!({})).await["payload"]["items"].clone();
        let of = |kind: &str| -> Vec<Value> {
            entries.as_array().unwrap().iter().filter(|entry| entry["type"] == kind).cloned().collect()
        };
        assert!(of("custom").iter().any(|entry| entry["data"]["at"] == point.as_str()), "{point:?}: {entries}");
        let messages = of("custom_message");
        assert!(messages.iter().all(|entry| entry["details"]["by"] == noted.as_str()), "{point:?}: {messages:?}");
        assert!(!messages.is_empty());
        let told = told.lock().unwrap().clone();
        assert!(told.len() >= 2 && told.iter().all(|line| line.ends_with(", reads")), "{point:?}: {told:?}");
        assert!(told.iter().all(|line| !line.contains("internal")), "{told:?}");
    }
}

#[tokio::test]
async fn a_session_that_has_left_memory_is_gone_for_its_hooks() {
    let kept: Arc<Mutex<Option<Session>>> = Arc::default();
    let keeps = kept.clone();
    let hook = on_session([HookSpec::new("keeps", HookPoint::BeforeAgentStart)], move |_, session| {
        *keeps.lock().unwrap() = Some(session);
        async { Ok(HookAnswer::default()) }
    });
    let server = Server::with_hooks(Scripted::answering(|_| Reply::text("Yes.")), vec![hook], &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.turn("Hello").await;
    let session = kept.lock().unwrap().clone().expect("it was asked");
    // It also works between two calls.
    session.append_message(note("later")).await.unwrap();
    assert_eq!(client.event("entry_appended").await["type"], "entry_appended");
    server.service.stop().await;
    let gone = session.append_message(note("too late")).await.unwrap_err();
    assert_eq!(gone.code.as_str(), "session_not_found");
}
