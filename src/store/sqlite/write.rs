//! The writes. Each checks first and writes afterwards: a refused write has changed nothing, so the others of its group
//! can still be committed. Only what is there already is found by writing it, and undone with the whole group, which is
//! written again without it: that is rare, and looking first would cost every append a search of two indexes.

use super::{
    Fault, damaged_pages, is_damage,
    read::{self, FoundHead, int},
    record,
    writer::{Size, Write},
};
use crate::store::{Append, Created, Error, Head, Lease, SessionHead, checksum, page};
use reseed_protocol::{CommandId, SessionId, Timestamp};
use rusqlite::{Connection, ErrorCode};

/// Creates a session.
pub(super) struct Create {
    pub(super) session: SessionId,
    pub(super) owner: String,
    /// Identifies the new log.
    pub(super) epoch: String,
    /// The command that creates it, if a client's does.
    pub(super) created_by: Option<CommandId>,
    pub(super) now: Timestamp,
}

impl Write for Create {
    type Output = Lease;

    fn write(&self, db: &Connection) -> Result<Lease, Fault> {
        match read::number(db, &self.session).map_err(|fault| fault.reading(&self.session)) {
            Ok(_) => return Err(Error::Exists(self.session.clone()).into()),
            Err(Fault::Refused(Error::NotFound(_))) => {}
            Err(fault) => return Err(fault),
        }
        let head = SessionHead {
            session: self.session.clone(),
            owner: self.owner.clone(),
            epoch: self.epoch.clone(),
            last_seq: 0,
            term: 1,
            holder: None,
            head: Head { created_at: self.now, updated_at: self.now, ..Head::default() },
        };
        let created_by = self.created_by.as_ref().map(CommandId::as_str);
        NewRow { number: None, head: &head, last_entry: None, created_by, bytes: 0 }.insert(db)?;
        Ok(Lease { session: self.session.clone(), term: 1, next_seq: 1, epoch: self.epoch.clone() })
    }
}

/// A session's row before it is inserted.
pub(super) struct NewRow<'a> {
    /// The number reserved for it; `None` takes the next one.
    pub(super) number: Option<i64>,
    pub(super) head: &'a SessionHead,
    /// The entry appended last, if known.
    pub(super) last_entry: Option<&'a str>,
    /// The command that created it.
    pub(super) created_by: Option<&'a str>,
    /// The bytes of what it has stored.
    pub(super) bytes: u64,
}

impl NewRow<'_> {
    /// Inserts the row, and the one with the session's state.
    pub(super) fn insert(&self, db: &Connection) -> rusqlite::Result<()> {
        let Self { number, head: found, last_entry, created_by, bytes } = *self;
        let head = &found.head;
        db.prepare_cached(
            "INSERT INTO session (number, id, owner, epoch, term, last_seq, name, name_folded, created_at, \
             updated_at, entries, token_count, window_tokens, running, checksum, last_entry, cost_nano_usd, \
             unpriced_requests, created_by, bytes) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
        )?
        .execute(rusqlite::params![
            number,
            found.session.as_str(),
            found.owner,
            found.epoch,
            int(found.term),
            int(found.last_seq),
            head.name,
            page::fold(&head.name),
            head.created_at.0,
            head.updated_at.0,
            int(head.entries),
            int(head.token_count),
            int(head.window_tokens),
            head.running,
            checksum::head(found, found.term, last_entry),
            last_entry,
            head.cost_nano_usd.map(int),
            int(head.unpriced_requests),
            created_by,
            int(bytes),
        ])?;
        let number = db.last_insert_rowid();
        let state = head.state.as_deref();
        let checksum = state.map(|state| checksum::state(&found.session, state));
        db.prepare_cached("INSERT INTO session_state (session, state, checksum) VALUES (?1, ?2, ?3)")?.execute((
            number,
            state.unwrap_or_default(),
            checksum,
        ))?;
        Ok(())
    }
}

/// Creates a session, unless its command has created one before.
pub(super) struct CreateOnce(pub(super) Create);

impl Write for CreateOnce {
    type Output = Created;

    fn write(&self, db: &Connection) -> Result<Created, Fault> {
        let Create { owner, created_by, .. } = &self.0;
        let earlier = match created_by {
            Some(command) => read::created_by(db, owner, command)?,
            None => None,
        };
        match earlier {
            Some(earlier) => Ok(Created::Before(earlier)),
            None => self.0.write(db).map(Created::Now),
        }
    }
}

/// Becomes the writer of a session.
pub(super) struct Open(pub(super) SessionId);

impl Write for Open {
    type Output = (Lease, SessionHead);

    fn write(&self, db: &Connection) -> Result<Self::Output, Fault> {
        let FoundHead { number, term, head, last_entry } =
            read::head(db, &self.0).map_err(|fault| fault.reading(&self.0))?;
        let term = term + 1;
        db.prepare_cached("UPDATE session SET term = ?2, checksum = ?3 WHERE number = ?1")?.execute((
            number,
            int(term),
            checksum::head(&head, term, last_entry.as_deref()),
        ))?;
        let lease = Lease { session: self.0.clone(), term, next_seq: head.last_seq + 1, epoch: head.epoch.clone() };
        Ok((lease, SessionHead { term, ..head }))
    }
}

/// Appends to a session.
pub(super) struct AppendAt {
    pub(super) lease: Lease,
    pub(super) first_seq: u64,
    pub(super) append: Append,
}

impl Write for AppendAt {
    type Output = ();

    fn size(&self) -> Size {
        let bodies = self.append.records.iter().map(|record| record.body.len() as u64);
        let replies = self.append.marks.iter().map(|mark| mark.reply.len() as u64);
        let bytes =
            bodies.chain(replies).sum::<u64>() + self.append.head.state.as_ref().map_or(0, |state| state.len() as u64);
        Size { records: self.append.records.len() as u64, bytes }
    }

    fn adds_to(&self) -> Option<&SessionId> {
        self.append.records.iter().any(|record| record.entry.is_some()).then_some(&self.lease.session)
    }

    fn write(&self, db: &Connection) -> Result<(), Fault> {
        let session = &self.lease.session;
        let found = self.check(db).map_err(|fault| fault.reading(session))?;
        self.write_records(db, &found)?;
        self.write_marks(db, found.number)?;
        self.write_head(db, found).map_err(|error| self.refused(error, || Ok(None)))
    }
}

impl AppendAt {
    /// Returns the session's row if the append may be written.
    fn check(&self, db: &Connection) -> Result<FoundHead, Fault> {
        let session = &self.lease.session;
        let found = read::head_without_state(db, session)?;
        self.lease.check(self.first_seq, &found.head.epoch, found.term, found.head.last_seq)?;
        self.append.check_distinct(&self.lease)?;
        Ok(found)
    }

    /// Returns why a row could not be written. `duplicate` looks for the one that is there already.
    fn refused(&self, error: rusqlite::Error, duplicate: impl FnOnce() -> rusqlite::Result<Option<Error>>) -> Fault {
        let is_taken = error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation);
        if !is_taken && !is_damage(&error) {
            return error.into();
        }
        match duplicate() {
            Ok(Some(duplicate)) if is_taken => Fault::Undone(duplicate),
            // It is there although nothing finds it.
            Ok(_) if is_taken => Fault::Undone(damaged_pages(&self.lease.session)),
            // The damage is where only this session's rows are searched: the others go on.
            Err(found) if is_damage(&found) => Fault::Undone(damaged_pages(&self.lease.session)),
            Err(found) if is_taken => found.into(),
            _ => error.into(),
        }
    }

    fn write_records(&self, db: &Connection, found: &FoundHead) -> Result<(), Fault> {
        let mut insert = db.prepare_cached(
            "INSERT INTO record (session, seq, version, checksum, entry, parent, kind, body, follows) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        let mut last = found.last_entry.as_deref();
        for (seq, record) in (self.first_seq..).zip(&self.append.records) {
            let entry = record.entry.as_ref();
            let parent = entry.and_then(|entry| entry.parent_id.as_ref()).map(|parent| parent.as_str());
            let follows = (parent.is_some() && parent == last).then_some(1);
            last = entry.map(|entry| entry.entry_id.as_str()).or(last);
            let written = insert.execute((
                found.number,
                int(seq),
                record::VERSION,
                checksum::record(&self.lease.session, seq, entry, &record.body),
                entry.map(|entry| entry.entry_id.as_str()),
                parent,
                entry.map(|entry| entry.kind.as_str()),
                &*record.body,
                follows,
            ));
            written.map_err(|error| {
                self.refused(error, || {
                    let Some(entry) = entry else { return Ok(None) };
                    let mut earlier = db.prepare("SELECT 1 FROM record WHERE session = ?1 AND entry = ?2")?;
                    let is_there = earlier.exists((found.number, entry.entry_id.as_str()))?;
                    let (session, entry) = (self.lease.session.clone(), entry.entry_id.clone());
                    Ok(is_there.then_some(Error::DuplicateEntry { session, entry }))
                })
            })?;
        }
        Ok(())
    }

    fn write_marks(&self, db: &Connection, number: i64) -> Result<(), Fault> {
        let mut insert = db.prepare_cached(
            "INSERT INTO mark (session, command, fingerprint, reply, checksum) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        for mark in &self.append.marks {
            let checksum = checksum::mark(&self.lease.session, mark);
            let written =
                insert.execute((number, &mark.command_id, mark.fingerprint.cast_signed(), &*mark.reply, checksum));
            written.map_err(|error| {
                self.refused(error, || {
                    let mut earlier = db.prepare("SELECT 1 FROM mark WHERE session = ?1 AND command = ?2")?;
                    let is_there = earlier.exists((number, &mark.command_id))?;
                    let (session, command_id) = (self.lease.session.clone(), mark.command_id.clone());
                    Ok(is_there.then_some(Error::DuplicateCommand { session, command_id }))
                })
            })?;
        }
        Ok(())
    }

    fn write_head(&self, db: &Connection, found: FoundHead) -> rusqlite::Result<()> {
        let head = &self.append.head;
        let last_seq = self.first_seq - 1 + self.append.records.len() as u64;
        let mut entries = self.append.records.iter().filter_map(|record| record.entry.as_ref());
        let last_entry = entries.next_back().map(|entry| entry.entry_id.as_str()).or(found.last_entry.as_deref());
        let written = SessionHead { last_seq, head: Head { state: None, ..head.clone() }, ..found.head };
        db.prepare_cached(
            "UPDATE session SET last_seq = ?2, name = ?3, name_folded = ?4, created_at = ?5, updated_at = ?6, \
             entries = ?7, token_count = ?8, window_tokens = ?9, running = ?10, checksum = ?11, last_entry = ?12, \
             cost_nano_usd = ?13, unpriced_requests = ?14, bytes = bytes + ?15 WHERE number = ?1",
        )?
        .execute((
            found.number,
            int(last_seq),
            &head.name,
            page::fold(&head.name),
            head.created_at.0,
            head.updated_at.0,
            int(head.entries),
            int(head.token_count),
            int(head.window_tokens),
            head.running,
            checksum::head(&written, found.term, last_entry),
            last_entry,
            head.cost_nano_usd.map(int),
            int(head.unpriced_requests),
            int(self.append.bytes()),
        ))?;
        if let Some(state) = &head.state {
            let checksum = checksum::state(&self.lease.session, state);
            db.prepare_cached("UPDATE session_state SET state = ?2, checksum = ?3 WHERE session = ?1")?.execute((
                found.number,
                &**state,
                checksum,
            ))?;
        }
        Ok(())
    }
}
