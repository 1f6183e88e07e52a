//! Appends, committed in groups: one statement carries the appends of many sessions, and one commit syncs the disk for
//! all.
//!
//! There are two lanes with a connection each, so that one group is prepared while the other is synced. A session
//! belongs to one lane, and a group holds at most one append of it: the next append starts where this one ends, so it
//! must wait.
//!
//! Invariants:
//! - nothing is answered `Ok` before the server has reported the commit, without a warning;
//! - after a lost connection, an append is sent again only when its position is known to be free and no other statement
//!   still locks its session. If a copy is executed later all the same, one of the two finds the position taken.

use super::{
    append::{self, AppendAt, Fate},
    closed,
    connection::{Connection, Connector},
    fault::{Fault, Meaning},
};
use crate::{Append, CommitStats, Error, Lease, Spaced};
use reseed_protocol::SessionId;
use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

/// The number of connections that append. With one, the server idles while a group is prepared; with four, groups are
/// too small.
const LANES: usize = 2;

/// The most appends that may wait for a lane. A session has one at a time, so the queue fills only if many sessions
/// write at the same time; their futures then wait for room.
const QUEUE_MAX: usize = 1024;

/// The most appends and bytes in a group. With more, all of them would wait long for one statement.
const GROUP_MAX: usize = 256;
const GROUP_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The first and the longest pause before a group is sent again.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Called after each commit, before its appends are answered.
pub(super) type Observer = Box<dyn Fn(CommitStats) + Send>;

/// An append that waits for its answer.
struct Job {
    at: AppendAt,
    deadline: Instant,
    /// True if it may have been executed by a statement whose answer was lost.
    was_sent: bool,
    answer: oneshot::Sender<Result<(), Error>>,
}

impl Job {
    fn answer(self, result: Result<(), Error>) {
        // The caller may be gone; the append is still valid.
        let _ = self.answer.send(result);
    }
}

/// The statistics that all lanes update.
struct Reports {
    stats: CommitStats,
    observer: Observer,
}

/// The handle of the lanes.
pub(super) struct Writer {
    lanes: Mutex<Vec<mpsc::Sender<Job>>>,
    tasks: tokio::sync::Mutex<Vec<JoinHandle<()>>>,
    patience: Duration,
}

impl Writer {
    pub(super) fn start(connector: &Connector, patience: Duration, observer: Observer) -> Self {
        let reports = Arc::new(Mutex::new(Reports { stats: CommitStats::default(), observer }));
        let (mut lanes, mut tasks) = (Vec::new(), Vec::new());
        for _ in 0..LANES {
            let (sender, queue) = mpsc::channel(QUEUE_MAX);
            let (connector, reports) = (connector.clone(), reports.clone());
            let lane = Lane {
                connector,
                connection: None,
                pause: PAUSE_MIN,
                reports,
                aside: Vec::new(),
                retries: Spaced::default(),
            };
            lanes.push(sender);
            tasks.push(tokio::spawn(lane.run(queue)));
        }
        Self { lanes: Mutex::new(lanes), tasks: tokio::sync::Mutex::new(tasks), patience }
    }

    /// Appends, and waits until the append is durable or refused.
    pub(super) async fn append(&self, lease: &Lease, first_seq: u64, append: Append) -> Result<(), Error> {
        append.check_distinct(lease)?;
        let lane = self.lane_of(&lease.session).ok_or_else(closed)?;
        let (answer, result) = oneshot::channel();
        let at = AppendAt { lease: lease.clone(), first_seq, append };
        let job = Job { at, deadline: Instant::now() + self.patience, was_sent: false, answer };
        lane.send(job).await.map_err(|_| closed())?;
        result.await.unwrap_or_else(|_| Err(Error::Unknown("the writer has ended".into())))
    }

    fn lane_of(&self, session: &SessionId) -> Option<mpsc::Sender<Job>> {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let hash = crc32fast::hash(session.as_str().as_bytes()) as usize;
        lanes.get(hash.checked_rem(lanes.len())?).cloned()
    }

    /// Returns the reason why appends fail until a restart, if there is one.
    pub(super) fn failure(&self) -> Option<Error> {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let has_ended = lanes.iter().any(mpsc::Sender::is_closed);
        has_ended.then(|| Error::Unknown("the writer has ended".into()))
    }

    /// Waits until everything accepted is answered, and refuses later calls.
    pub(super) async fn close(&self) {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).clear();
        // A concurrent call to close waits here too.
        let mut tasks = self.tasks.lock().await;
        for task in tasks.drain(..) {
            // The runtime has already reported a panic.
            let _ = task.await;
        }
    }
}

struct Lane {
    connector: Connector,
    connection: Option<Connection>,
    pause: Duration,
    reports: Arc<Mutex<Reports>>,
    /// Appends to sessions that another transaction has locked. They must not hold up the others.
    aside: Vec<Job>,
    /// Rate-limits the log lines about retried groups.
    retries: Spaced,
}

impl Lane {
    async fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        let mut waiting = VecDeque::new();
        loop {
            if waiting.is_empty() && self.aside.is_empty() {
                let Some(first) = queue.recv().await else { return };
                waiting.push_back(first);
            }
            while waiting.len() < QUEUE_MAX {
                let Ok(next) = queue.try_recv() else { break };
                waiting.push_back(next);
            }
            let group = take_group(&mut waiting, &self.aside);
            if group.is_empty() {
                // All waiting appends are for locked sessions.
                match timeout(PAUSE_MAX, queue.recv()).await {
                    Ok(Some(next)) => waiting.push_back(next),
                    Ok(None) => tokio::time::sleep(PAUSE_MAX).await,
                    Err(_) => {}
                }
            } else {
                self.write(group).await;
            }
            let unlocked = self.unlocked().await;
            self.write(unlocked).await;
        }
    }

    /// Sends a group until each of its appends is answered or set aside.
    async fn write(&mut self, group: Vec<Job>) {
        // The groups still to be sent; the next one is last.
        let mut groups = vec![group];
        while let Some(group) = groups.pop() {
            groups.extend(self.step(group).await);
        }
    }

    /// Takes the appends that were set aside and whose sessions are no longer locked.
    async fn unlocked(&mut self) -> Vec<Job> {
        let mut aside = std::mem::take(&mut self.aside);
        self.give_up(&mut aside);
        let locked = match self.connection.as_ref().filter(|db| !db.is_closed()) {
            Some(db) if !aside.is_empty() => {
                append::locked(db, &aside.iter().map(|job| &job.at).collect::<Vec<_>>()).await
            }
            // Sending the appends shows whether their sessions are free.
            _ => return aside,
        };
        let Ok(locked) = locked else {
            self.connection = None;
            return aside;
        };
        let free = aside.extract_if(.., |job| !locked.contains(job.at.lease.session.as_str())).collect();
        self.aside = aside;
        free
    }

    /// Sets aside the appends of a group whose sessions are locked.
    async fn set_aside(&mut self, group: &mut Vec<Job>) {
        let Some(db) = &self.connection else { return };
        match append::locked(db, &group.iter().map(|job| &job.at).collect::<Vec<_>>()).await {
            Ok(locked) => {
                self.aside.extend(group.extract_if(.., |job| locked.contains(job.at.lease.session.as_str())));
            }
            Err(_) => self.connection = None,
        }
    }

    /// Sends a group, or determines its fate. Returns the groups that remain to be sent.
    async fn step(&mut self, mut group: Vec<Job>) -> Vec<Vec<Job>> {
        self.give_up(&mut group);
        let Some(until) = group.iter().map(|job| job.deadline).max() else { return Vec::new() };
        let mut sends = false;
        let done = timeout_at(until, self.attempt(&mut group, &mut sends)).await.unwrap_or(Err(Fault::Silence));
        let fault = match done {
            Ok(()) => return Vec::from_iter((!group.is_empty()).then_some(group)),
            Err(fault) => fault,
        };
        let meaning = fault.meaning();
        if meaning == Meaning::Refused {
            return self.part(group, fault).await;
        }
        if let Some(left_out) = self.retries.admit() {
            let why = fault.describe();
            tracing::warn!(appends = group.len(), left_out, "a group of appends is retried: {why}");
        }
        if meaning != Meaning::Again {
            self.connection = None;
        }
        if meaning == Meaning::Unknown && sends {
            group.iter_mut().for_each(|job| job.was_sent = true);
        }
        if fault.is_blocked() {
            self.set_aside(&mut group).await;
        }
        tokio::time::sleep(self.pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        vec![group]
    }

    /// Answers the appends that have waited for too long.
    fn give_up(&mut self, group: &mut Vec<Job>) {
        let now = Instant::now();
        let late: Vec<Job> = group.extract_if(.., |job| job.deadline <= now).collect();
        if late.is_empty() {
            return;
        }
        self.report(|stats| stats.failed += 1);
        for job in late {
            let what = if job.was_sent { "whether the append was written is unknown" } else { "nothing was written" };
            job.answer(Err(Error::Unknown(format!("the database was away for too long; {what}"))));
        }
    }

    /// Makes one attempt, and removes the appends that it answers from the group. The rest must be sent again. Sets
    /// `sends` once an append may have been executed.
    async fn attempt(&mut self, group: &mut Vec<Job>, sends: &mut bool) -> Result<(), Fault> {
        if self.connection.as_ref().is_none_or(Connection::is_closed) {
            self.connection = Some(self.connector.connect().await?);
        }
        let Some(db) = &self.connection else { return Ok(()) };
        // Both lanes count together. A warning about the other lane's group only costs another look at this one.
        let before = self.connector.unreplicated();
        if group.iter().any(|job| job.was_sent) {
            append::wait_for(db, &group.iter().map(|job| &job.at).collect::<Vec<_>>()).await?;
            if self.connector.unreplicated() != before {
                return Err(Fault::Silence);
            }
            answer_known(db, group).await?;
            if group.is_empty() {
                return Ok(());
            }
        }
        let began = Instant::now();
        // Until the answer arrives, a copy may be under way.
        *sends = true;
        let sent = append::send(db, &group.iter().map(|job| &job.at).collect::<Vec<_>>()).await?;
        if self.connector.unreplicated() != before {
            // The warning is "Committed locally, but might not have been replicated."
            return Err(Fault::Silence);
        }
        let mut written = sent.into_iter();
        let done: Vec<Job> = group.extract_if(.., |_| written.next().unwrap_or(false)).collect();
        self.pause = PAUSE_MIN;
        if !done.is_empty() {
            let records = done.iter().map(|job| job.at.append.records.len() as u64).sum::<u64>();
            let bytes = done.iter().map(|job| job.at.size()).sum::<u64>();
            let took = began.elapsed();
            self.report(|stats| {
                stats.commits += 1;
                stats.records += records;
                stats.bytes += bytes;
                stats.last_commit = took;
            });
        }
        done.into_iter().for_each(|job| job.answer(Ok(())));
        let Some(db) = &self.connection else { return Ok(()) };
        if !group.is_empty() {
            answer_known(db, group).await?;
        }
        Ok(())
    }

    /// Sends each append of a refused group alone, or answers the one that is left.
    async fn part(&mut self, mut group: Vec<Job>, fault: Fault) -> Vec<Vec<Job>> {
        if group.len() > 1 {
            return group.into_iter().rev().map(|job| vec![job]).collect();
        }
        let Some(job) = group.pop() else { return Vec::new() };
        let is_duplicate = fault.constraint().is_some();
        let Some(db) = self.connection.as_ref().filter(|_| is_duplicate) else {
            tracing::error!(session = %job.at.lease.session, "an append is refused: {}", fault.describe());
            let fault = fault.of(&job.at.lease.session);
            job.answer(Err(fault.into()));
            return Vec::new();
        };
        // The existing row may come from a lost attempt of this append.
        let fates = append::fates(db, &[(&job.at, job.was_sent)]).await;
        let answer = match fates.map(|mut fates| fates.pop()) {
            Ok(Some(Fate::Written)) => Ok(Ok(())),
            Ok(Some(Fate::Refused(error))) => Ok(Err(error)),
            Ok(Some(Fate::Free) | None) => append::duplicate(db, &job.at).await.map(Err),
            Err(fault) => Err(fault),
        };
        match answer {
            Ok(answer) => job.answer(answer),
            Err(fault) if fault.meaning() == Meaning::Refused => job.answer(Err(fault.into())),
            Err(_) => {
                self.connection = None;
                return vec![vec![job]];
            }
        }
        Vec::new()
    }

    fn report(&self, change: impl FnOnce(&mut CommitStats)) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut reports.stats);
        (reports.observer)(reports.stats);
    }
}

/// Takes the appends for one statement, at most one per session, in order of arrival. A session with an append set
/// aside has to wait for that one.
fn take_group(waiting: &mut VecDeque<Job>, aside: &[Job]) -> Vec<Job> {
    let (mut group, mut later) = (Vec::new(), VecDeque::new());
    let mut sessions: HashSet<SessionId> = aside.iter().map(|job| job.at.lease.session.clone()).collect();
    let mut bytes = 0;
    while let Some(job) = waiting.pop_front() {
        let is_full = group.len() >= GROUP_MAX || bytes >= GROUP_BYTES_MAX;
        if is_full || !sessions.insert(job.at.lease.session.clone()) {
            later.push_back(job);
            continue;
        }
        bytes += job.at.size();
        group.push(job);
    }
    *waiting = later;
    group
}

/// Answers the appends of a group whose fate is known, and removes them.
async fn answer_known(db: &Connection, group: &mut Vec<Job>) -> Result<(), Fault> {
    let fates = append::fates(db, &group.iter().map(|job| (&job.at, job.was_sent)).collect::<Vec<_>>()).await?;
    let mut left = Vec::new();
    for (job, fate) in std::mem::take(group).into_iter().zip(fates) {
        match fate {
            Fate::Written => job.answer(Ok(())),
            Fate::Refused(error) => job.answer(Err(error)),
            Fate::Free => left.push(job),
        }
    }
    *group = left;
    Ok(())
}
