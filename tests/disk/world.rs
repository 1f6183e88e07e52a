//! Seeded lives of a store: it is opened, written to by several sessions at once, and ends, by a power loss at a random
//! write, by a kill or regularly; then it is opened again on what the disk still has. After each opening everything is
//! compared with the model: nothing acknowledged is lost, each log is whole appends without a gap, and a write with an
//! unknown outcome was executed wholly or not at all.

use super::{
    broken::{Broken, How},
    device::{Disk, Fault, Lie},
    model::{Content, Session, next_append},
    vfs::Mounted,
};
use futures_util::{future::join_all, poll};
use reseed::store::{
    Error, Head, Lease, ListQuery, SessionStore, StoreFuture,
    sqlite::{Options, SqliteStore},
};
use reseed_protocol::{SessionId, Timestamp};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

/// The most sessions that are created.
const SESSIONS_MAX: usize = 8;

/// The disk and the store of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) lie: Lie,
    pub(crate) how: How,
}

impl Setup {
    /// Returns an honest disk and the real store.
    pub(crate) fn sound() -> Self {
        Self { lie: Lie::None, how: How::Right }
    }
}

/// Counts of what happened in a run, to see that something did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) lives: u64,
    pub(crate) power_lost: u64,
    pub(crate) acknowledged: u64,
    pub(crate) unknown: u64,
    pub(crate) refused_stale: u64,
    pub(crate) syncs_failed: u64,
    /// A checksum of everything written to the disk.
    pub(crate) trace: u64,
}

impl Summary {
    pub(crate) fn add(&mut self, other: &Self) {
        self.lives += other.lives;
        self.power_lost += other.power_lost;
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.refused_stale += other.refused_stale;
        self.syncs_failed += other.syncs_failed;
        self.trace ^= other.trace;
    }
}

struct World {
    random: fastrand::Rng,
    disk: Arc<Disk>,
    sessions: Vec<Session>,
    made: usize,
    summary: Summary,
}

/// Runs one seed; returns an error that says what is wrong.
pub(crate) async fn run(seed: u64, setup: Setup) -> Result<Summary, String> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let disk = Disk::new(seed, setup.lie);
    let mounted = Mounted::new(format!("disk{}", RUNS.fetch_add(1, Ordering::Relaxed)), disk.clone());
    let random = fastrand::Rng::with_seed(seed ^ 0x5eed);
    let mut world = World { random, disk, sessions: Vec::new(), made: 0, summary: Summary::default() };
    let lives = world.random.usize(2..5);
    for life in 0..=lives {
        let last = life == lives;
        let (crash_at, faults) = if last { (None, Vec::new()) } else { world.fate() };
        world.disk.begin(crash_at, faults);
        world.summary.lives += 1;
        let options = Options {
            checkpoint_pages: [1, 10, 40, 4000][world.random.usize(0..4)],
            // Never by the clock, which would make each run of a seed another one.
            retry: Duration::from_secs(3600),
            index: false,
            vfs: Some(mounted.vfs()),
            ..Options::default()
        };
        match SqliteStore::open_with(&mounted.database(), options) {
            Ok(store) => {
                let store = Broken::new(store, setup.how);
                let lived = world.live(&store, last).await;
                world.die(store).await;
                lived.map_err(|error| format!("life {life}: {error}"))?;
            }
            Err(_) if world.disk.has_failed() => {}
            Err(error) => return Err(format!("life {life}: it does not open: {error}")),
        }
        world.summary.syncs_failed += u64::from(world.disk.has_failed_to_sync());
        // A kill keeps what the system has accepted.
        if !last && (crash_at.is_some() && world.disk.is_dead() || world.random.bool()) {
            world.disk.lose_power();
            world.summary.power_lost += 1;
        }
    }
    world.summary.trace = world.disk.trace();
    Ok(world.summary)
}

impl World {
    /// Draws the moment of the power loss, and the faults before it.
    fn fate(&mut self) -> (Option<u64>, Vec<(u64, Fault)>) {
        let most = [80, 400, 1500][self.random.usize(0..3)];
        let crash_at = (self.random.u32(0..4) > 0).then(|| self.random.u64(1..most));
        let count = if self.random.u32(0..3) == 0 { self.random.usize(1..3) } else { 0 };
        let faults = (0..count).map(|_| {
            let fault = match self.random.u32(0..6) {
                0 => Fault::Write,
                1 | 2 => Fault::Sync,
                3 => Fault::Read,
                _ => Fault::Full(self.random.u64(1..100)),
            };
            (self.random.u64(1..500), fault)
        });
        let faults = faults.collect();
        (crash_at, faults)
    }

    async fn live(&mut self, store: &Broken, last: bool) -> Result<(), String> {
        for session in &mut self.sessions {
            session.lease = None;
            session.stale = None;
        }
        quiesce(store).await;
        self.check(store, true).await?;
        for _ in 0..self.random.usize(3..20) {
            if self.disk.is_dead() {
                return Ok(());
            }
            match self.random.u32(0..10) {
                0 => self.create(store).await?,
                1 => self.delete(store).await?,
                2 => self.write_late(store).await?,
                _ => self.write(store).await?,
            }
            quiesce(store).await;
        }
        if self.random.bool() || last {
            self.check(store, false).await?;
        }
        Ok(())
    }

    /// Ends a life.
    async fn die(&mut self, store: Broken) {
        match self.random.u32(0..3) {
            0 => drop(store.close().await),
            1 => self.disk.stop(),
            _ => {}
        }
        drop(store);
    }

    /// Compares everything with the model.
    async fn check(&mut self, store: &Broken, just_opened: bool) -> Result<(), String> {
        let mut all_read = true;
        for session in &mut self.sessions {
            all_read &= session.check(store, just_opened).await?;
        }
        let listed = store.list(ListQuery { limit: 1000, ..ListQuery::default() }).await;
        match listed {
            Ok(page) if all_read => {
                let found: BTreeSet<String> = page.items.iter().map(|item| item.session.to_string()).collect();
                let want = self.sessions.iter().filter(|session| session.known.is_some());
                let want: BTreeSet<String> = want.map(|session| session.id.to_string()).collect();
                if found != want || !page.damaged.is_empty() {
                    return Err(format!("listed are {found:?} (damaged: {:?}), there are {want:?}", page.damaged));
                }
            }
            Ok(_) => {}
            Err(_) if self.disk.has_failed() => all_read = false,
            Err(error) => return Err(format!("the list cannot be read: {error}")),
        }
        if all_read || self.disk.has_failed() { Ok(()) } else { Err("it cannot be read, without any fault".into()) }
    }

    /// Counts an answer; a failure must have a cause, and nothing may be acknowledged after a failed sync.
    fn count<T>(&mut self, answer: &Result<T, Error>, sync_had_failed: bool) -> Result<(), String> {
        match answer {
            Ok(_) if sync_had_failed => return Err("a write was acknowledged after a sync that failed".into()),
            Ok(_) => self.summary.acknowledged += 1,
            Err(Error::Unknown(reason)) if !self.disk.has_failed() => {
                return Err(format!("a write failed without any fault: {reason}"));
            }
            Err(_) => self.summary.unknown += 1,
        }
        Ok(())
    }

    async fn create(&mut self, store: &Broken) -> Result<(), String> {
        if self.sessions.len() == SESSIONS_MAX {
            return Ok(());
        }
        self.made += 1;
        let mut session = Session::new(format!("s{}", self.made).parse().unwrap());
        let now = Timestamp(self.random.i64(0..1000));
        let failed = self.disk.has_failed_to_sync();
        let answer = store.create(&session.id, "", now).await;
        self.count(&answer, failed)?;
        let head = Head { created_at: now, updated_at: now, ..Head::default() };
        session.answered(Some(Content { head, ..Content::default() }), &answer)?;
        session.lease = answer.ok();
        self.sessions.push(session);
        Ok(())
    }

    /// Picks a session that is known to exist.
    fn any(&mut self) -> Option<usize> {
        let there = |session: &Session| session.known.is_some() && session.maybe.is_none();
        let there: Vec<usize> = (0..self.sessions.len()).filter(|at| there(&self.sessions[*at])).collect();
        (!there.is_empty()).then(|| there[self.random.usize(0..there.len())])
    }

    async fn delete(&mut self, store: &Broken) -> Result<(), String> {
        let Some(at) = self.any().filter(|_| self.sessions.len() > 3) else { return Ok(()) };
        let failed = self.disk.has_failed_to_sync();
        let answer = store.delete(&self.sessions[at].id).await;
        self.count(&answer, failed)?;
        let session = &mut self.sessions[at];
        session.lease = None;
        session.answered(None, &answer)?;
        Ok(())
    }

    /// Opens a session that is not open. Returns `false` if that fails.
    async fn open(&mut self, store: &Broken, at: usize) -> Result<bool, String> {
        let failed = self.disk.has_failed_to_sync();
        let session = &mut self.sessions[at];
        if session.lease.is_some() {
            return Ok(true);
        }
        let id = session.id.clone();
        let answer = store.open(&id).await;
        self.count(&answer, failed)?;
        match answer {
            Ok((lease, _)) => {
                self.sessions[at].lease = Some(lease);
                Ok(true)
            }
            Err(Error::Unknown(_)) => Ok(false),
            Err(error) => Err(format!("session {id} does not open: {error}")),
        }
    }

    /// Opens a session a second time, and writes to it with the older lease.
    async fn write_late(&mut self, store: &Broken) -> Result<(), String> {
        let Some(at) = self.any() else { return Ok(()) };
        if !self.open(store, at).await? {
            return Ok(());
        }
        let stale = self.sessions[at].lease.take();
        if !self.open(store, at).await? {
            return Ok(());
        }
        let session = &self.sessions[at];
        let (Some(stale), Some(content)) = (stale, &session.known) else { return Ok(()) };
        let (append, _) = next_append(&mut self.random, &session.id, content);
        match store.append(&stale, content.records.len() as u64 + 1, append).await {
            Err(Error::Fenced { .. }) => self.summary.refused_stale += 1,
            Err(Error::Unknown(_)) if self.disk.has_failed() => {}
            other => return Err(format!("session {}: a stale writer got {other:?}", session.id)),
        }
        Ok(())
    }

    /// Appends to some sessions, to all but the first in one group.
    async fn write(&mut self, store: &Broken) -> Result<(), String> {
        let mut chosen = BTreeSet::new();
        for _ in 0..self.random.usize(1..7) {
            if let Some(at) = self.any()
                && self.open(store, at).await?
            {
                chosen.insert(at);
            }
        }
        if chosen.is_empty() {
            return self.create(store).await;
        }
        quiesce(store).await;
        let failed = self.disk.has_failed_to_sync();
        let mut appends = Vec::new();
        let mut afters = Vec::new();
        for at in &chosen {
            let session = &self.sessions[*at];
            let (Some(content), Some(lease)) = (&session.known, &session.lease) else { continue };
            let (append, after) = next_append(&mut self.random, &session.id, content);
            appends.push(store.append(lease, content.records.len() as u64 + 1, append));
            afters.push((*at, after));
        }
        let answers = at_once(&self.disk, appends).await;
        for ((at, after), answer) in afters.into_iter().zip(answers) {
            self.count(&answer, failed)?;
            self.sessions[at].answered(Some(after), &answer)?;
        }
        Ok(())
    }
}

/// Runs writes so that their groups are the same in each run: the first alone, and while the writer is held before its
/// transaction the others are queued.
async fn at_once(disk: &Disk, mut writes: Vec<StoreFuture<'_, Result<(), Error>>>) -> Vec<Result<(), Error>> {
    let mut first = writes.remove(0);
    disk.close_gate();
    let early = loop {
        if let Poll::Ready(answer) = poll!(&mut first) {
            break Some(answer);
        }
        if disk.is_at_gate() {
            break None;
        }
    };
    let mut answers = Vec::new();
    match early {
        Some(answer) => {
            disk.open_gate();
            answers.push(answer);
            for write in writes {
                answers.push(write.await);
            }
        }
        None => {
            let others = join_all(writes);
            tokio::pin!(others);
            let early = poll!(&mut others);
            disk.open_gate();
            answers.push(first.await);
            answers.extend(match early {
                Poll::Ready(others) => others,
                Poll::Pending => others.await,
            });
        }
    }
    answers
}

/// Waits for the writer to finish what it does after its answers: a refused write is answered after that. Then waits
/// until deleted sessions are removed.
async fn quiesce(store: &Broken) {
    let session: SessionId = "nobody".parse().unwrap();
    let lease = Lease { session, term: 1, next_seq: 1, epoch: String::new() };
    let nothing =
        reseed::store::Append { records: Vec::new(), marks: Vec::new(), usage: Vec::new(), head: Head::default() };
    let _ = store.append(&lease, 1, nothing).await;
    store.settled().await;
}
