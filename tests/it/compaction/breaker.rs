//! The circuit breaker: three failed summaries open it, wherever they failed; while open, no model is used and nobody
//! waits.

use super::{WAITED_FOR, fill, info, session};
use crate::support::scripted::{Reply, Scripted};
use crate::support::talk::{facts, summaries, summary, text_of, words};
use reseed::core::model::{ModelFault, Purpose};
use reseed_protocol::ErrorCode;
use serde_json::json;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Returns a model that talks, and whose server answers 500 to every request for a summary until healed.
fn failing() -> (Scripted, Arc<AtomicBool>) {
    let healed = Arc::new(AtomicBool::new(false));
    let (heals, mut asked) = (healed.clone(), 0);
    let model = Scripted::answering(move |request| match request.purpose {
        Purpose::Turn => {
            asked += 1;
            Reply::text(words(asked, 60))
        }
        Purpose::Summary if heals.load(Ordering::Relaxed) => Reply::text(summary(&facts(&text_of(request)))),
        Purpose::Summary => Reply::fault(ModelFault::new(ErrorCode::UpstreamError, "it broke")),
    });
    (model, healed)
}

#[tokio::test]
async fn three_failures_in_the_foreground_open_it_and_nobody_waits_any_more() {
    let (model, healed) = failing();
    // Half of what is said here comes from the user. Kept word for word, it would leave an order nothing to gain.
    let (_server, mut client) = session(&model, &[WAITED_FOR, ("strategy.userShare", "0.5")]).await;
    let mut compactions = Vec::new();
    for number in 0..120 {
        let finished = client.turn(&words(number, 60)).await;
        assert_eq!(finished["status"], "completed", "{finished}");
        let made = finished["contextInfo"]["compactions"].as_u64().unwrap();
        while (compactions.len() as u64) < made {
            compactions.push(client.event("context_compacted").await["payload"].clone());
        }
        if made >= 8 {
            break;
        }
        if made == 3 {
            let breaker = &finished["contextInfo"]["breaker"];
            assert_eq!((&breaker["reason"], &breaker["failures"]), (&json!("failures"), &json!(3)), "{finished}");
        }
    }
    assert!(compactions.len() >= 8, "a hundred turns, and {} compactions", compactions.len());
    assert_eq!(summaries(&model.requests()), 3, "the model was asked while the breaker was open");
    for (number, compacted) in compactions.iter().enumerate() {
        assert_eq!(compacted["rung"], "extract", "{compacted}");
        let reason = if number < 3 { json!("upstream_error") } else { json!(null) };
        assert_eq!(compacted["failedRungs"][0]["reason"], reason, "{number}: {compacted}");
    }
    // A person's request is always allowed, and a summary closes it.
    healed.store(true, Ordering::Relaxed);
    fill(&mut client, 1_000).await;
    super::compact(&mut client, json!({})).await;
    assert!(summaries(&model.requests()) > 3, "the model was not asked");
    assert!(info(&mut client).await["breaker"].is_null(), "{}", info(&mut client).await);
}

#[tokio::test]
async fn failures_count_wherever_they_happened() {
    let (model, _) = failing();
    let (_server, mut client) = session(&model, &[WAITED_FOR, ("strategy.userShare", "0")]).await;
    fill(&mut client, 1_000).await;
    let shown = client.ask("preview_compaction", json!({})).await;
    assert_eq!(shown["type"], "compaction_preview", "{shown}");
    super::compact(&mut client, json!({})).await;
    assert!(info(&mut client).await["breaker"].is_null());
    fill(&mut client, 1_000).await;
    super::compact(&mut client, json!({})).await;
    let open = info(&mut client).await["breaker"].clone();
    assert_eq!((&open["reason"], &open["failures"]), (&json!("failures"), &json!(3)), "{open}");
    let message = open["message"].as_str().unwrap();
    assert!(message.contains("3 summaries failed") && message.contains("ask for a compaction"), "{message}");
}
