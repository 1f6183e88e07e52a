//! The writes. Each decides first and writes then: what it refuses has changed nothing, so that the others of its group
//! can still be committed.

use super::{
    Fault, read,
    read::int,
    record,
    writer::{Size, Write},
};
use crate::store::{Append, Error, Lease, SessionHead, page};
use reseed_protocol::{SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension};

/// Makes a session.
pub(super) struct Create {
    pub(super) session: SessionId,
    pub(super) owner: String,
    /// The name of the new log.
    pub(super) epoch: String,
    pub(super) now: Timestamp,
}

impl Write for Create {
    type Output = Lease;

    fn write(&self, db: &Connection) -> Result<Lease, Fault> {
        match read::number(db, &self.session) {
            Ok(_) => return Err(Error::Exists(self.session.clone()).into()),
            Err(Fault::Refused(Error::NotFound(_))) => {}
            Err(fault) => return Err(fault),
        }
        db.prepare_cached(
            "INSERT INTO session (id, owner, epoch, term, last_seq, name, name_folded, created_at, updated_at, \
             entries, token_count, window_tokens, running) VALUES (?1, ?2, ?3, 1, 0, '', '', ?4, ?4, 0, 0, 0, 0)",
        )?
        .execute((self.session.as_str(), &self.owner, &self.epoch, self.now.0))?;
        db.prepare_cached("INSERT INTO session_state (session, state) VALUES (?1, '')")?
            .execute([db.last_insert_rowid()])?;
        Ok(Lease { session: self.session.clone(), term: 1, next_seq: 1, epoch: self.epoch.clone() })
    }
}

/// Becomes the writer of a session.
pub(super) struct Open(pub(super) SessionId);

impl Write for Open {
    type Output = (Lease, SessionHead);

    fn write(&self, db: &Connection) -> Result<Self::Output, Fault> {
        let head = read::head(db, &self.0)?;
        let term: i64 = db
            .prepare_cached("UPDATE session SET term = term + 1 WHERE id = ?1 RETURNING term")?
            .query_row([self.0.as_str()], |row| row.get(0))?;
        let lease = Lease {
            session: self.0.clone(),
            term: term.cast_unsigned(),
            next_seq: head.last_seq + 1,
            epoch: head.epoch.clone(),
        };
        Ok((lease, head))
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
        let bytes = bodies.chain(replies).sum::<u64>() + self.append.head.state.len() as u64;
        Size { records: self.append.records.len() as u64, bytes }
    }

    fn write(&self, db: &Connection) -> Result<(), Fault> {
        let number = self.check(db)?;
        self.write_records(db, number)?;
        self.write_marks(db, number)?;
        self.write_head(db, number)
    }
}

impl AppendAt {
    /// The session's number, when the append may be written.
    fn check(&self, db: &Connection) -> Result<i64, Fault> {
        let session = &self.lease.session;
        let found = db
            .prepare_cached("SELECT number, epoch, term, last_seq FROM session WHERE id = ?1")?
            .query_row([session.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
            .optional()?;
        let (number, epoch, term, last_seq): (i64, String, i64, i64) =
            found.ok_or_else(|| Error::NotFound(session.clone()))?;
        self.lease.check(self.first_seq, &epoch, term.cast_unsigned(), last_seq.cast_unsigned())?;
        self.append.check_distinct(&self.lease)?;

        let mut mark = db.prepare_cached("SELECT 1 FROM mark WHERE session = ?1 AND command = ?2")?;
        for found in &self.append.marks {
            if mark.exists((number, &found.command_id))? {
                let (session, command_id) = (session.clone(), found.command_id.clone());
                return Err(Error::DuplicateCommand { session, command_id }.into());
            }
        }
        let mut entry = db.prepare_cached("SELECT 1 FROM record WHERE session = ?1 AND entry = ?2")?;
        for found in self.append.records.iter().filter_map(|record| record.entry.as_ref()) {
            if entry.exists((number, found.entry_id.as_str()))? {
                return Err(Error::DuplicateEntry { session: session.clone(), entry: found.entry_id.clone() }.into());
            }
        }
        Ok(number)
    }

    fn write_records(&self, db: &Connection, number: i64) -> Result<(), Fault> {
        let mut insert = db.prepare_cached(
            "INSERT INTO record (session, seq, version, checksum, entry, parent, kind, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?;
        for (seq, record) in (self.first_seq..).zip(&self.append.records) {
            let entry = record.entry.as_ref();
            insert.execute((
                number,
                int(seq),
                record::VERSION,
                record::checksum(&self.lease.session, seq, entry, &record.body),
                entry.map(|entry| entry.entry_id.as_str()),
                entry.and_then(|entry| entry.parent_id.as_ref()).map(|parent| parent.as_str()),
                entry.map(|entry| entry.kind.as_str()),
                &*record.body,
            ))?;
        }
        Ok(())
    }

    fn write_marks(&self, db: &Connection, number: i64) -> Result<(), Fault> {
        let mut insert =
            db.prepare_cached("INSERT INTO mark (session, command, fingerprint, reply) VALUES (?1, ?2, ?3, ?4)")?;
        for mark in &self.append.marks {
            insert.execute((number, &mark.command_id, mark.fingerprint.cast_signed(), &*mark.reply))?;
        }
        Ok(())
    }

    fn write_head(&self, db: &Connection, number: i64) -> Result<(), Fault> {
        let head = &self.append.head;
        let last_seq = self.first_seq - 1 + self.append.records.len() as u64;
        db.prepare_cached(
            "UPDATE session SET last_seq = ?2, name = ?3, name_folded = ?4, created_at = ?5, updated_at = ?6, \
             entries = ?7, token_count = ?8, window_tokens = ?9, running = ?10 WHERE number = ?1",
        )?
        .execute((
            number,
            int(last_seq),
            &head.name,
            page::fold(&head.name),
            head.created_at.0,
            head.updated_at.0,
            int(head.entries),
            int(head.token_count),
            int(head.window_tokens),
            head.running,
        ))?;
        db.prepare_cached("UPDATE session_state SET state = ?2 WHERE session = ?1")?.execute((number, &*head.state))?;
        Ok(())
    }
}

/// Deletes a session.
pub(super) struct Delete(pub(super) SessionId);

impl Write for Delete {
    type Output = ();

    fn write(&self, db: &Connection) -> Result<(), Fault> {
        let number = read::number(db, &self.0)?;
        for table in
            ["record WHERE session", "mark WHERE session", "session_state WHERE session", "session WHERE number"]
        {
            db.prepare_cached(&format!("DELETE FROM {table} = ?1"))?.execute([number])?;
        }
        Ok(())
    }
}
