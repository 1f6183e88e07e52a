//! The expected content of the store: for each session what was acknowledged, and the result of the one write whose
//! outcome is unknown.

use reseed::store::{Append, CommandMark, EntryColumns, EntryQuery, Error, Head, Lease, NewRecord, SessionStore};
use reseed_protocol::{EntryId, SessionId, Timestamp};

/// A session that exists.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Content {
    pub(crate) records: Vec<NewRecord>,
    pub(crate) marks: Vec<CommandMark>,
    pub(crate) head: Head,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// The acknowledged content; `None` if the session does not exist.
    pub(crate) known: Option<Content>,
    /// The content if the write with the unknown outcome was executed.
    pub(crate) maybe: Option<Option<Content>>,
    /// The current lease, and an earlier one.
    pub(crate) lease: Option<Lease>,
    pub(crate) stale: Option<Lease>,
}

impl Session {
    pub(crate) fn new(id: SessionId) -> Self {
        Self { id, known: None, maybe: None, lease: None, stale: None }
    }

    /// Records the answer of a write that would turn the session into `after`. Returns `true` if it was acknowledged.
    pub(crate) fn answered<T>(&mut self, after: Option<Content>, answer: &Result<T, Error>) -> Result<bool, String> {
        match answer {
            Ok(_) => {
                self.known = after;
                Ok(true)
            }
            Err(Error::Unknown(_)) => {
                self.maybe = Some(after);
                self.lease = None;
                Ok(false)
            }
            Err(error) => Err(format!("session {}: a write that is in order is refused: {error}", self.id)),
        }
    }

    /// Reads the session and compares. Returns `false` if it could not be read; the expected content is as unknown as
    /// before.
    ///
    /// The content of a freshly opened store is final. Later a write with an unknown outcome may be absent from a read
    /// and yet be in the log that the next opening reads.
    pub(crate) async fn check(&mut self, store: &dyn SessionStore, just_opened: bool) -> Result<bool, String> {
        let candidates: Vec<Option<Content>> =
            [Some(self.known.clone()), self.maybe.clone()].into_iter().flatten().collect();
        let mut reasons = Vec::new();
        for candidate in candidates {
            match differs(store, &self.id, candidate.as_ref()).await {
                Err(Error::Unknown(_)) => return Ok(false),
                Err(error) => return Err(format!("session {}: {error}", self.id)),
                Ok(Some(reason)) => reasons.push(reason),
                Ok(None) => {
                    if just_opened || self.known != candidate {
                        (self.known, self.maybe) = (candidate, None);
                    }
                    return Ok(true);
                }
            }
        }
        Err(format!("session {}: {}", self.id, reasons.join("; and, had the last write been done, ")))
    }
}

/// Returns the difference between the store and what it should hold.
async fn differs(store: &dyn SessionStore, id: &SessionId, want: Option<&Content>) -> Result<Option<String>, Error> {
    let head = match (store.head(id).await, want) {
        (Ok(_), None) => return Ok(Some("it is there and should not be".into())),
        (Err(Error::NotFound(_)), None) => return Ok(None),
        (Err(Error::NotFound(_)), Some(_)) => return Ok(Some("it is lost".into())),
        (Err(error), _) => return Err(error),
        (Ok(head), Some(_)) => head,
    };
    let Some(want) = want else { return Ok(None) };
    if head.last_seq != want.records.len() as u64 {
        return Ok(Some(format!("it has {} records and should have {}", head.last_seq, want.records.len())));
    }
    let found = store.read(id, 0, u32::MAX).await?;
    let same = found.len() == want.records.len()
        && (1..).zip(&found).zip(&want.records).all(|((seq, found), want)| found.seq == seq && found.body == want.body);
    if !same {
        return Ok(Some(format!("its {} records are not those that were written", found.len())));
    }
    if head.head != want.head {
        return Ok(Some(format!("its head is {:?} and should be {:?}", head.head, want.head)));
    }
    for mark in &want.marks {
        if store.command(id, &mark.command_id).await?.as_ref() != Some(mark) {
            return Ok(Some(format!("the mark of {} is lost", mark.command_id)));
        }
    }
    let entries: Vec<&EntryColumns> = want.records.iter().filter_map(|record| record.entry.as_ref()).collect();
    if let Some(newest) = entries.last() {
        // Each entry's parent is the one before it.
        let path = EntryQuery::Path { from: newest.entry_id.clone(), limit: u32::MAX };
        let path = store.entries(id, path).await?;
        if path.len() != entries.len() {
            return Ok(Some(format!("its path has {} entries and should have {}", path.len(), entries.len())));
        }
        let first: &EntryId = &entries[0].entry_id;
        let leaf = store.entries(id, EntryQuery::NewestLeaf { below: first.clone() }).await?;
        if leaf.first().map(|record| record.seq) != path.first().map(|record| record.seq) {
            return Ok(Some("its newest leaf is not its newest entry".into()));
        }
    }
    Ok(None)
}

/// Returns the next append to this content, and its result.
pub(crate) fn next_append(random: &mut fastrand::Rng, id: &SessionId, content: &Content) -> (Append, Content) {
    let at = content.records.len();
    let long = |random: &mut fastrand::Rng| match random.u32(0..12) {
        0 => random.usize(8_000..30_000),
        1..4 => random.usize(1_000..4_000),
        _ => random.usize(0..400),
    };
    let mut parent = content.records.iter().rev().find_map(|record| record.entry.as_ref()).map(|e| e.entry_id.clone());
    let count = if random.u32(0..10) == 0 { 0 } else { random.usize(1..5) };
    let records = (at..at + count).map(|n| {
        let letter = char::from(b'a' + random.u8(0..26));
        let body = format!("{id} {n} {}", String::from(letter).repeat(long(random)));
        let entry = random.bool().then(|| {
            let entry_id: EntryId = format!("e{n}").parse().unwrap();
            let kind = if random.u32(0..4) == 0 { "label" } else { "message" };
            let parent_id = parent.replace(entry_id.clone());
            EntryColumns { entry_id, parent_id, kind: kind.into() }
        });
        NewRecord { body: body.into(), entry }
    });
    let records: Vec<NewRecord> = records.collect();
    let marks = (0..random.usize(0..3)).map(|n| CommandMark {
        command_id: format!("c{}.{n}", content.marks.len()),
        fingerprint: random.u64(..),
        reply: format!("reply {}", random.u32(..)).into(),
    });
    let marks: Vec<CommandMark> = marks.collect();
    let head = Head {
        name: format!("{id} at {at}"),
        updated_at: Timestamp(random.i64(0..1_000_000)),
        entries: at as u64,
        state: Some(format!("{at} {}", "s".repeat(random.usize(0..2_000))).into()),
        ..content.head.clone()
    };
    let mut after = content.clone();
    after.records.extend(records.iter().cloned());
    after.marks.extend(marks.iter().cloned());
    after.head = head.clone();
    (Append { records, marks, usage: Vec::new(), head }, after)
}
