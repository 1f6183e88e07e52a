//! The real process is killed at random moments while clients talk to it: streaming answers, waiting inputs,
//! compactions, cancelled turns. Nothing acknowledged may be lost, nothing may occur twice, and every client resumes
//! and ends with what the log says.
//!
//! `KILLS=200` kills more often (`tests/soak/kill.sh`), `SEED=n` repeats one run's choices, though not its timing.

use super::{fold::Fold, folder::Folder};
use crate::support::binary::Binary;
use reseed::store::{self, SessionStore};
use reseed_protocol::SessionId;
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::sync::watch;

/// Clients, each with a session of its own.
const CLIENTS: u64 = 6;

/// Kills in the normal run.
const KILLS: u64 = 20;

/// Maximum number of frames that clients receive between two kills.
const FRAMES_MAX: u64 = 400;

/// Inputs of a client that may wait for their turn.
const WAITING_MAX: usize = 2;

/// The offline model, slow enough to be killed during an answer, in a window that a few answers fill.
const SETTINGS: [(&str, &str); 2] = [("OFFLINE_WORD_MILLIS", "1"), ("CONTEXT_WINDOW", "2000")];

/// Prints how to repeat a run that fails.
pub(super) struct Told(pub(super) u64, pub(super) u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat with SEED={} KILLS={}", self.0, self.1);
        }
    }
}

/// Returns the number in this environment variable.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

/// The state that the clients and the killer share.
struct World {
    /// The number of starts of the server, and its address; `None` while it is down.
    server: watch::Sender<(u64, Option<String>)>,
    /// The number of frames that clients received.
    frames: watch::Sender<u64>,
    over: AtomicBool,
    kills: AtomicU64,
}

impl World {
    /// Returns the address of the server once it was started at least `after` times.
    async fn address(&self, after: u64) -> (u64, String) {
        let mut server = self.server.subscribe();
        let here = server.wait_for(|(starts, address)| *starts >= after && address.is_some()).await.unwrap();
        let (starts, address) = here.clone();
        (starts, address.unwrap())
    }
}

/// A client's record of what it did.
struct Story {
    fold: Fold,
    /// Inputs in the order in which they were given: the command and the text.
    said: Vec<(String, String)>,
    /// The commands among them that were acknowledged.
    acknowledged: Vec<String>,
    resumes: u64,
}

/// Talks until the killing is over and everything that was said has its reply.
async fn talk(world: Arc<World>, seed: u64, number: u64) -> Story {
    let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(1_000).wrapping_add(number));
    let mut client = Folder::new(&format!("client-{number:09}"), json!({})).unwitnessed();
    let mut said: Vec<(String, String)> = Vec::new();
    let (mut resumes, mut starts) = (0, 0);
    loop {
        if !client.is_connected() {
            let (started, address) = world.address(starts).await;
            let killed = world.kills.load(Ordering::SeqCst);
            if client.connect(&format!("ws://{address}/ws")).await {
                starts = started;
                resumes += 1;
            } else {
                // Only a server that was killed meanwhile refuses the connection.
                let mut server = world.server.subscribe();
                let _ = server.wait_for(|(now, here)| *now > started || here.is_none()).await;
                assert!(killed <= world.kills.load(Ordering::SeqCst));
                starts = started;
                continue;
            }
        }
        let frame = match client.step().await {
            Ok(frame) => frame,
            Err(code) => {
                assert_eq!(code, 1006, "client {number}: only a kill ends a connection");
                starts += 1;
                continue;
            }
        };
        world.frames.send_modify(|frames| *frames += 1);
        refused(&frame, number);
        if client.fold.session.is_empty() {
            continue;
        }
        let over = world.over.load(Ordering::SeqCst);
        let waiting = client.unanswered() + client.fold.queued;
        if over {
            if waiting > 0 || !client.fold.is_idle() {
                continue;
            }
            if has_all(&mut client, &frame).await {
                break;
            }
            continue;
        }
        act(&mut client, &mut rng, number, &mut said).await;
        if rng.u32(0..50) == 0 {
            client.look().await;
        }
    }
    client.settled(&["contextInfo"]).await;
    let acknowledged = |id: &String| client.replies.get(id).is_some_and(|reply| reply["type"] == "accepted");
    let acknowledged = said.iter().map(|(id, _)| id).filter(|id| acknowledged(id)).cloned().collect();
    Story { fold: client.fold, said, acknowledged, resumes }
}

/// Acts as clients do: gives a command, cuts the connection, or does nothing.
pub(super) async fn act(client: &mut Folder, rng: &mut fastrand::Rng, number: u64, said: &mut Vec<(String, String)>) {
    if client.unanswered() + client.fold.queued > WAITING_MAX {
        return;
    }
    let idle = client.fold.is_idle();
    match rng.u32(0..100) {
        chance if (idle && chance < 50) || chance < 6 => {
            let text = format!("Word {} of client {number}: write a text of {} words.", said.len(), rng.u32(5..60));
            let id = client.command("user_input", json!({ "input": text })).await;
            said.push((id, text));
        }
        50..52 => drop(client.command("start_compaction", json!({})).await),
        52 => drop(client.command("cancel_turn", json!({})).await),
        53 => drop(client.command("retry_turn", json!({})).await),
        54 => drop(client.command("rename_session", json!({ "name": format!("session {number}") })).await),
        // A connection may be lost without a kill as well.
        55 => client.cut(),
        // A client that says nothing in an idle session would wait indefinitely.
        _ if idle && client.unanswered() == 0 => drop(client.command("get_context_info", json!({})).await),
        _ => {}
    }
}

/// Returns true if an idle client has all events. If this frame does not show that, queries the server. A reply comes
/// before its events. They are checked once the session, which answers in order, has published them.
pub(super) async fn has_all(client: &mut Folder, frame: &Value) -> bool {
    match frame["type"].as_str().unwrap() {
        "pong" if frame["payload"]["inSync"] == true => return true,
        "context_info" => drop(client.command("ping", json!({ "seq": client.fold.seq })).await),
        _ => drop(client.command("get_context_info", json!({})).await),
    }
    false
}

/// Checks that a refusal is possible in such a conversation: the command came too late or too early.
pub(super) fn refused(frame: &Value, number: u64) {
    let fine = ["no_turn", "nothing_to_retry", "turn_running", "nothing_to_compact", "compaction_running"];
    if frame["type"] == "error" {
        let code = frame["payload"]["code"].as_str().unwrap();
        assert!(fine.contains(&code), "client {number}: {frame}");
    }
}

/// Kills the server this many times and restarts it each time; returns the last one.
async fn kill(world: &World, folder: &Path, seed: u64, kills: u64) -> Binary {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut server = Binary::start(folder, &SETTINGS).await;
    world.server.send_replace((1, Some(server.address.clone())));
    for killed in 1..=kills {
        // Sometimes this is before any client has come back.
        let frames = if rng.u32(0..10) == 0 { 0 } else { rng.u64(1..FRAMES_MAX) };
        let at = *world.frames.borrow() + frames;
        world.frames.subscribe().wait_for(|frames| *frames >= at).await.unwrap();
        world.server.send_replace((killed, None));
        world.kills.store(killed, Ordering::SeqCst);
        server.kill().await;
        server = Binary::start(folder, &SETTINGS).await;
        world.server.send_replace((killed + 1, Some(server.address.clone())));
    }
    server
}

/// Returns the whole log, from the store.
pub(super) async fn log(store: &dyn SessionStore, session: &SessionId) -> Vec<(u64, Value)> {
    let mut log: Vec<(u64, Value)> = Vec::new();
    loop {
        let after = log.last().map_or(0, |(seq, _)| *seq);
        let page = store.read(session, after, 500).await.unwrap();
        if page.is_empty() {
            return log;
        }
        log.extend(page.iter().map(|record| (record.seq, serde_json::from_str(&record.body).unwrap())));
    }
}

fn check(number: usize, story: &Story, log: &[(u64, Value)]) {
    let Story { fold, said, acknowledged, .. } = story;
    assert_eq!(fold.snapshots, 1, "client {number}: every resume is a replay");
    let seqs: Vec<u64> = log.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(seqs, (1..=fold.seq).collect::<Vec<_>>(), "client {number}: the log has a hole, or more than was told");
    let first = *fold.log.keys().next().expect("something was said");
    let known: Vec<(u64, Value)> = fold.log.iter().map(|(seq, event)| (*seq, event.clone())).collect();
    assert_eq!(known, log[usize::try_from(first).unwrap() - 1..], "client {number}");
    let asked = fold.asked();
    for id in acknowledged {
        assert!(asked.iter().any(|(known, _)| known == id), "client {number}: {id} was acknowledged and is lost");
    }
    // Each input is there once, with its own text, in the order in which they were said, and none was lost.
    assert_eq!(&asked, said, "client {number}");
    assert_eq!(acknowledged.len(), said.len(), "client {number}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_at_any_moment_loses_nothing_that_it_acknowledged() {
    let seed = number("SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    let kills = number("KILLS").unwrap_or(KILLS);
    let _told = Told(seed, kills);
    let folder = tempfile::tempdir().unwrap();
    let world = Arc::new(World {
        server: watch::Sender::new((0, None)),
        frames: watch::Sender::new(0),
        over: AtomicBool::new(false),
        kills: AtomicU64::new(0),
    });
    let clients: Vec<_> = (0..CLIENTS).map(|number| tokio::spawn(talk(world.clone(), seed, number))).collect();
    let talking = async {
        let mut stories = Vec::new();
        for client in clients {
            stories.push(client.await.unwrap());
        }
        stories
    };
    let killing = async {
        let server = kill(&world, folder.path(), seed, kills).await;
        world.over.store(true, Ordering::SeqCst);
        server
    };
    // If a client fails, the test ends even while the killing continues.
    let (server, stories) = tokio::join!(killing, talking);
    server.stop().await;
    let url = format!("sqlite://{}", folder.path().join("data/reseed.db").display());
    let store = store::connect(&url).await.unwrap();
    for (number, story) in stories.iter().enumerate() {
        let session = story.fold.session.parse().unwrap();
        check(number, story, &log(&*store, &session).await);
    }
    let count = |of: fn(&Story) -> u64| stories.iter().map(of).sum::<u64>();
    let events = count(|story| story.fold.seq);
    let (void, resumes) = (count(|story| story.fold.void.len() as u64), count(|story| story.resumes));
    let inputs = count(|story| story.acknowledged.len() as u64);
    eprintln!("{kills} kills: {events} events, {inputs} inputs, {resumes} resumes, {void} answers void; SEED={seed}");
    store.close().await.unwrap();
}
