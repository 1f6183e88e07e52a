//! Durable appends per second of the store with many sessions at once, compared with the minimum that makes the same
//! bytes durable: one thread that appends what waits to one file, syncs it and answers.
//!
//! Both run alternately, on the same disk, so that a busy machine slows both. An append is what a turn of the server
//! writes: an entry of some 600 bytes, the state of the session, and for every second append the mark of a command.

use crate::{
    figures::{Figures, Goal, median_of, ms},
    process::Bench,
};
use anyhow::Context as _;
use futures_util::future::try_join_all;
use reseed::store::{Append, CommandMark, EntryColumns, Head, NewRecord, SessionStore, sqlite::SqliteStore};
use reseed_protocol::{EntryId, Timestamp};
use std::{
    fs::File,
    io::Write as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, oneshot};

/// The goals: durable appends per second, and the time in which 99 of 100 are acknowledged, divided by the floor's.
const APPENDS_GOAL: f64 = 12_000.0;
const P99_RATIO_GOAL: f64 = 3.0;

/// The sizes in bytes of an entry's body, of a state and of a reply.
const BODY_BYTES: usize = 600;
const STATE_BYTES: usize = 800;
const REPLY_BYTES: usize = 120;

/// The results of one contender in a round.
pub(crate) struct Round {
    pub(crate) per_second: f64,
    pub(crate) times: Vec<Duration>,
}

pub(crate) async fn measure(
    bench: &Bench,
    sessions: usize,
    rounds: usize,
    secs: u64,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let store = SqliteStore::open(&bench.database("appends-store"))?;
    let floor = Floor::start(&bench.database("appends-floor"))?;
    let mut next = vec![0; sessions];
    let (mut ours, mut floors, mut p99s, mut floor_p99s) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut places = vec![0; sessions];
        let floored = run(sessions, secs, async |_, append| floor.write(bytes_of(&append)).await, &mut places);
        let floored = floored.await?;
        if round == 0 {
            create(&store, sessions).await?;
        }
        let done = appending(&store, sessions, secs, &mut next).await?;
        p99s.push(percentile(&done.times, 0.99));
        floor_p99s.push(percentile(&floored.times, 0.99));
        ours.push(done.per_second);
        floors.push(floored.per_second);
    }
    let name = format!("appends: durable, of {sessions} sessions at once");
    figures.add(&name, median_of(ours), "/s", Goal::AtLeast(APPENDS_GOAL));
    figures.add("appends: the floor, a bare group-committing writer", median_of(floors), "/s", Goal::None);
    let (p99, floor_p99) = (median_of(p99s), median_of(floor_p99s));
    figures.add("appends: acknowledged within, 99 of 100", p99, "ms", Goal::None);
    figures.add("appends: the same of the floor", floor_p99, "ms", Goal::None);
    figures.add("appends: 99 of 100, store to floor", p99 / floor_p99, "x", Goal::AtMost(P99_RATIO_GOAL));
    store.close().await?;
    Ok(())
}

/// Creates the sessions that append.
pub(crate) async fn create(store: &dyn SessionStore, sessions: usize) -> anyhow::Result<()> {
    for session in 0..sessions {
        store.create(&format!("s{session}").parse()?, "", Timestamp(0)).await?;
    }
    Ok(())
}

/// Makes all sessions append to a store until the time is over; `next` counts what each has appended.
pub(crate) async fn appending(
    store: &dyn SessionStore,
    sessions: usize,
    secs: u64,
    next: &mut [u64],
) -> anyhow::Result<Round> {
    let mut leases = Vec::new();
    for session in 0..sessions {
        leases.push(store.open(&format!("s{session}").parse()?).await?.0);
    }
    let write = async |session: usize, append: Append| {
        let seq = append.head.entries;
        store.append(&leases[session], seq, append).await.context("append")
    };
    run(sessions, secs, write, next).await
}

/// Makes all sessions append one after the other until the time is over.
pub(crate) async fn run(
    sessions: usize,
    secs: u64,
    write: impl AsyncFn(usize, Append) -> anyhow::Result<()>,
    next: &mut [u64],
) -> anyhow::Result<Round> {
    let began = Instant::now();
    let until = began + Duration::from_secs(secs);
    let write = &write;
    let talks = (0..sessions).zip(next.iter_mut()).map(async |(session, next)| {
        let mut times = Vec::new();
        while Instant::now() < until {
            *next += 1;
            let append = append(session, *next)?;
            let began = Instant::now();
            write(session, append).await?;
            times.push(began.elapsed());
        }
        anyhow::Ok(times)
    });
    let times: Vec<Duration> = try_join_all(talks).await?.into_iter().flatten().collect();
    Ok(Round { per_second: times.len() as f64 / began.elapsed().as_secs_f64(), times })
}

/// Returns the `seq`-th append of a session, which also has that number of `entries` in its head.
fn append(session: usize, seq: u64) -> anyhow::Result<Append> {
    let entry_id: EntryId = format!("e{session:05}{seq:06}").parse()?;
    let parent_id = if seq == 1 { None } else { Some(format!("e{session:05}{:06}", seq - 1).parse()?) };
    let body = format!("{entry_id}{}", "b".repeat(BODY_BYTES - 12));
    let record =
        NewRecord { body: body.into(), entry: Some(EntryColumns { entry_id, parent_id, kind: "message".to_owned() }) };
    let mark = seq.is_multiple_of(2).then(|| CommandMark {
        command_id: format!("command-{seq}"),
        fingerprint: seq.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        reply: "r".repeat(REPLY_BYTES).into(),
    });
    let head = Head {
        name: "A talk about shipments".to_owned(),
        updated_at: Timestamp(seq as i64),
        entries: seq,
        token_count: seq * 100,
        window_tokens: 1_000_000,
        state: Some("s".repeat(STATE_BYTES).into()),
        ..Head::default()
    };
    Ok(Append { records: vec![record], marks: mark.into_iter().collect(), usage: Vec::new(), head })
}

/// Returns the bytes of an append that must be kept.
fn bytes_of(append: &Append) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BODY_BYTES + STATE_BYTES + REPLY_BYTES);
    bytes.extend(append.records.iter().flat_map(|record| record.body.as_bytes()));
    bytes.extend(append.marks.iter().flat_map(|mark| mark.reply.as_bytes()));
    bytes.extend(append.head.state.iter().flat_map(|state| state.as_bytes()));
    bytes
}

pub(crate) fn percentile(times: &[Duration], part: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
    times.get(at).map_or(0.0, |time| ms(*time))
}

type Waiting = (Vec<u8>, oneshot::Sender<std::io::Result<()>>);

/// One file that is appended to, and synced for all that wait.
struct Floor(mpsc::Sender<Waiting>);

impl Floor {
    fn start(path: &Path) -> anyhow::Result<Self> {
        let mut file = File::create(path)?;
        let (queue, mut waiting) = mpsc::channel::<Waiting>(1024);
        thread::spawn(move || {
            while let Some(first) = waiting.blocking_recv() {
                let mut group = vec![first];
                while group.len() < 1024
                    && let Ok(next) = waiting.try_recv()
                {
                    group.push(next);
                }
                let bytes: Vec<u8> = group.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect();
                let written = file.write_all(&bytes).and_then(|()| file.sync_data());
                for (_, answer) in group {
                    let written = written.as_ref().copied().map_err(|error| std::io::Error::from(error.kind()));
                    // A caller that has gone does not wait for it.
                    let _ = answer.send(written);
                }
            }
        });
        Ok(Self(queue))
    }

    async fn write(&self, bytes: Vec<u8>) -> anyhow::Result<()> {
        let (answer, written) = oneshot::channel();
        self.0.send((bytes, answer)).await.ok().context("the floor's writer has ended")?;
        Ok(written.await??)
    }
}
