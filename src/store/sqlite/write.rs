//! The writes. Each checks first and writes afterwards: a refused write has changed nothing, so the others of its group
//! can still be committed. Only damage is found while writing. Then the whole group is rolled back and executed again
//! without that write.

use super::{
    Fault, damaged_pages, is_damage,
    read::{self, FoundHead, int},
    spending,
    writer::{Size, Write},
};
use crate::{Append, Created, Error, Head, Lease, SessionHead, checksum, page, upgrade::RECORD_VERSION};
use reseed_protocol::{CommandId, SessionId, Timestamp};
use rusqlite::{Connection, ErrorCode};

/// Finds a row with this session and entry, or command.
const FIND_ENTRY: &str = "SELECT 1 FROM record WHERE session = ?1 AND entry = ?2";
const FIND_COMMAND: &str = "SELECT 1 FROM mark WHERE session = ?1 AND command = ?2";

/// Creates a session, unless its command already created one.
pub(super) struct Create {
    pub(super) session: SessionId,
    pub(super) owner: String,
    /// Identifies the new log.
    pub(super) epoch: String,
    /// The client's command that creates it, if there is one.
    pub(super) created_by: Option<CommandId>,
    /// Its first term.
    pub(super) term: u64,
    pub(super) now: Timestamp,
}

impl Write for Create {
    type Output = Created;

    fn write(&self, db: &Connection) -> Result<Created, Fault> {
        let earlier = self.created_by.as_ref().map(|command| read::created_by(db, &self.owner, command));
        if let Some(earlier) = earlier.transpose()?.flatten() {
            return Ok(Created::Before(earlier));
        }
        match read::number(db, &self.session).map_err(|fault| fault.writing(&self.session)) {
            Ok(_) => return Err(Error::Exists(self.session.clone()).into()),
            Err(Fault::Refused(Error::NotFound(_))) => {}
            Err(fault) => return Err(fault),
        }
        let head = SessionHead {
            session: self.session.clone(),
            owner: self.owner.clone(),
            epoch: self.epoch.clone(),
            last_seq: 0,
            term: self.term,
            holder: None,
            head: Head { created_at: self.now, updated_at: self.now, ..Head::default() },
        };
        let now = self.now.0;
        db.prepare_cached(
            "INSERT INTO session (id, owner, epoch, term, last_seq, name, name_folded, created_at, updated_at, \
             entries, token_count, window_tokens, running, checksum, unpriced_requests, created_by, bytes) \
             VALUES (?1, ?2, ?3, ?4, 0, '', '', ?5, ?5, 0, 0, 0, FALSE, ?6, 0, ?7, 0)",
        )?
        .execute((
            self.session.as_str(),
            &self.owner,
            &self.epoch,
            int(self.term),
            now,
            checksum::head(&head, self.term, None),
            self.created_by.as_ref().map(CommandId::as_str),
        ))?;
        let number = db.last_insert_rowid();
        db.prepare_cached("INSERT INTO session_state (session, state) VALUES (?1, '')")?.execute([number])?;
        let (session, epoch) = (self.session.clone(), self.epoch.clone());
        Ok(Created::Now(Lease { session, term: self.term, next_seq: 1, epoch }))
    }
}

pub(super) struct Open(pub(super) SessionId);

impl Write for Open {
    type Output = (Lease, SessionHead);

    fn write(&self, db: &Connection) -> Result<Self::Output, Fault> {
        let FoundHead { number, term, head, last_entry } =
            read::head(db, &self.0).map_err(|fault| fault.writing(&self.0))?;
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
        let found = self.check(db).map_err(|fault| fault.writing(session))?;
        self.write_records(db, &found)?;
        self.write_marks(db, found.number)?;
        spending::write(db, &self.append.usage)?;
        self.write_head(db, found).map_err(|error| self.refused(error, || Ok(())))
    }
}

impl AppendAt {
    /// Returns the session's row if the append may be written.
    fn check(&self, db: &Connection) -> Result<FoundHead, Fault> {
        let session = &self.lease.session;
        let found = read::head_without_state(db, session)?;
        self.lease.check(self.first_seq, &found.head.epoch, found.term, found.head.last_seq)?;
        self.append.check_distinct(&self.lease)?;
        self.check_new(db, found.number)?;
        Ok(found)
    }

    /// Checks that no entry and no command is stored already.
    fn check_new(&self, db: &Connection, number: i64) -> Result<(), Fault> {
        let session = || self.lease.session.clone();
        let mut earlier = db.prepare_cached(FIND_ENTRY)?;
        for entry in self.append.records.iter().filter_map(|record| record.entry.as_ref()) {
            if earlier.exists((number, entry.entry_id.as_str()))? {
                return Err(Error::DuplicateEntry { session: session(), entry: entry.entry_id.clone() }.into());
            }
        }
        let mut earlier = db.prepare_cached(FIND_COMMAND)?;
        for mark in &self.append.marks {
            if earlier.exists((number, &mark.command_id))? {
                let (session, command_id) = (session(), mark.command_id.clone());
                return Err(Error::DuplicateCommand { session, command_id }.into());
            }
        }
        Ok(())
    }

    /// Returns the reason why a row could not be written. `search` searches where rows of this session are.
    fn refused(&self, error: rusqlite::Error, search: impl FnOnce() -> rusqlite::Result<()>) -> Fault {
        // The row exists, although the search did not find it.
        let is_taken = error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation);
        // If a search also meets the damage, the damage is where this session's rows are. All other sessions continue.
        if is_taken || is_damage(&error) && search().is_err_and(|found| is_damage(&found)) {
            return Fault::Undone(damaged_pages(&self.lease.session));
        }
        error.into()
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
            let row = (
                found.number,
                int(seq),
                RECORD_VERSION,
                checksum::record(&self.lease.session, seq, entry, &record.body),
                entry.map(|entry| entry.entry_id.as_str()),
                parent,
                entry.map(|entry| entry.kind.as_str()),
                &*record.body,
                follows,
            );
            insert.execute(row).map_err(|error| {
                self.refused(error, || match entry {
                    Some(entry) => exists(db, FIND_ENTRY, found.number, entry.entry_id.as_str()),
                    None => Ok(()),
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
            let row = (number, &mark.command_id, mark.fingerprint.cast_signed(), &*mark.reply, checksum);
            insert
                .execute(row)
                .map_err(|error| self.refused(error, || exists(db, FIND_COMMAND, number, &mark.command_id)))?;
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

/// Searches for a row with one of the queries above.
fn exists(db: &Connection, sql: &str, number: i64, key: &str) -> rusqlite::Result<()> {
    db.prepare_cached(sql)?.exists((number, key)).map(drop)
}
