//! The cost of the connections that watch one session. A durable event is serialised once for all of them, and so is a
//! piece of text for those at the same position: what a further one costs is its socket.

use crate::{
    client::{Client, Reading, Speaks},
    figures::{Figures, Goal},
    process::{Bench, Process},
};
use anyhow::ensure;
use futures_util::future::{try_join, try_join_all};
use serde_json::json;
use std::time::{Duration, Instant};

/// Deltas of an answer, at the pace of a quick model: enough for the processor's time to be more than its clock's tick.
const DELTAS: usize = 200;
const PACE: Duration = Duration::from_millis(2);

pub(crate) async fn measure(bench: &Bench, watchers: usize, turns: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let server = bench.reseed(&bench.database("fanout")).await?;
    let text = bench.upstream.answer(DELTAS, Some(PACE));
    let mut writer = Client::session(&server, None).await?;
    // The first turn names the session.
    writer.turn("Tell me.").await?;
    let (alone, _) = produce(&server, &mut writer, &mut [], turns, &text).await?;
    let session = writer.session_id()?.to_owned();
    let mut watching = Vec::new();
    for _ in 0..watchers {
        let mut watcher = Client::connect(&server, Speaks::V2, Reading::default()).await?;
        watcher.hello().await?;
        let open = json!({ "sessionId": session, "role": "observer", "entries": 0 });
        watcher.ask("open_session", open, "session_opened").await?;
        watching.push(watcher);
    }
    let (watched, frames) = produce(&server, &mut writer, &mut watching, turns, &text).await?;
    let (alone, watched) = (alone.as_secs_f64(), watched.as_secs_f64());
    let name = format!("fanout: processor time of a turn that {watchers} connections watch, against one without them");
    figures.add(&name, watched / alone.max(f64::MIN_POSITIVE), "x", Goal::None);
    let per_frame = (watched - alone).max(0.0) * 1e6 / (frames.max(1) as f64);
    figures.add("fanout: processor time of a frame to a watching connection", per_frame, "us", Goal::None);
    Ok(())
}

/// Produces this many turns, each read to its end by everyone before the next begins; returns the server's processor
/// time, and the frames that those who only watch were given.
async fn produce(
    server: &Process,
    writer: &mut Client,
    watching: &mut [Client],
    turns: usize,
    text: &str,
) -> anyhow::Result<(Duration, u64)> {
    let (before, mut frames) = (server.cpu()?, 0);
    for _ in 0..turns {
        let watched = try_join_all(watching.iter_mut().map(|watcher| watcher.watch(Instant::now())));
        let (turn, watched) = try_join(writer.turn("Tell me."), watched).await?;
        for turn in watched.iter().chain([&turn]) {
            ensure!(turn.text == text, "an answer is not whole");
        }
        frames += watched.iter().map(|turn| turn.deltas + turn.events).sum::<u64>();
    }
    Ok((server.cpu()?.saturating_sub(before), frames))
}
