//! Memory of readers that have stopped reading while much is produced for them.

use crate::{
    Sizes,
    client::{Client, Reading, Speaks},
    figures::{Figures, Goal},
    history_store,
    idle::{settled, share},
    process::Bench,
};
use anyhow::ensure;
use serde_json::json;

/// The readers' own buffers in the kernel, so that the kernel does not read for them.
const RECEIVE_BYTES: u32 = 4 * 1024;

pub(crate) async fn measure(
    bench: &Bench,
    Sizes { stalled_readers: readers, stalled_turns: turns, stalled_deltas: deltas, .. }: Sizes,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let database = bench.database("stalled");
    history_store::write(&database, "stalled", 100, true).await?;
    let base_url = bench.upstream.base_url();
    let settings = [
        ("OPENAI_BASE_URL", base_url.as_str()),
        ("CONTEXT_WINDOW", "100000000"),
        // They stay connected for as long as the measurement takes.
        ("SLOW_READER_SECS", "3600"),
        ("HEARTBEAT_SECS", "3600"),
    ];
    let server = bench.reseed_with(&database, &settings).await?;
    let text = bench.upstream.answer(deltas, None);
    let mut owner = Client::session(&server, Some("stalled")).await?;
    // The session's own growth, with only its owner connected, is not its readers'.
    let alone = settled(&server).await?;
    produce(&mut owner, turns, &text).await?;
    let grown = settled(&server).await?.saturating_sub(alone);
    let mut stalled = Vec::new();
    for _ in 0..readers {
        let reading = Reading { pause: None, receive_bytes: Some(RECEIVE_BYTES) };
        let mut reader = Client::connect(&server, Speaks::V2, reading).await?;
        reader.hello().await?;
        let open = json!({ "sessionId": "stalled", "role": "observer", "entries": 0 });
        reader.ask("open_session", open, "session_opened").await?;
        stalled.push(reader);
    }
    let before = settled(&server).await?;
    produce(&mut owner, turns, &text).await?;
    let produced = (2 * turns * text.len()) as f64 / (1024.0 * 1024.0);
    let after = settled(&server).await?;
    drop(stalled);
    let name = format!("stalled: memory of a reader that stopped, of {readers}, while {produced:.0} MiB were produced");
    figures.add(&name, share(before + grown, after, readers), "KiB", Goal::AtMost(64.0));
    Ok(())
}

/// Produces this many answers, each read whole by the owner.
async fn produce(owner: &mut Client, turns: usize, text: &str) -> anyhow::Result<()> {
    for _ in 0..turns {
        ensure!(owner.turn("Tell me everything.").await?.text == text, "an answer is not whole");
    }
    Ok(())
}
