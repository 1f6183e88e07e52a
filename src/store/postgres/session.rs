//! Creating, opening and deleting sessions. Each is a single statement that can be sent again if its answer was lost.

use super::{
    fault::Fault,
    nodes,
    read::{self, listed_at},
    readers::{Db, Readers},
    timeline::{LINEAGE, Timelines},
};
use crate::{
    Created, Error, Head, Lease, SessionHead,
    checksum::{self, int},
    cluster::{Membership, NodeId},
    epoch::new_epoch,
};
use reseed_protocol::{CommandId, SessionId, Timestamp};
use tokio_postgres::types::ToSql;

/// A session to create.
pub(super) struct New<'a> {
    pub(super) session: &'a SessionId,
    pub(super) owner: &'a str,
    /// The client's command that creates it, if there is one.
    pub(super) created_by: Option<&'a CommandId>,
    /// The node that creates it.
    pub(super) holder: Option<NodeId>,
    /// Its first term.
    pub(super) term: u64,
    pub(super) now: Timestamp,
}

impl New<'_> {
    /// Creates the session, unless its command already created one.
    pub(super) async fn create(&self, readers: &Readers) -> Result<Created, Error> {
        let epoch = &new_epoch()?;
        let (session, term) = (self.session, self.term);
        let lease = || Lease { session: session.clone(), term, next_seq: 1, epoch: epoch.clone() };
        readers
            .write(|db, _| async move {
                if self.insert(&db, epoch).await? {
                    return Ok(Created::Now(lease()));
                }
                if let Some(command) = self.created_by
                    && let Some((earlier, of)) = read::created_by(&db, self.owner, command).await?
                {
                    // The session was created by an attempt whose answer was lost, or earlier by the same command.
                    let is_ours = of == *epoch;
                    return Ok(if is_ours { Created::Now(lease()) } else { Created::Before(earlier) });
                }
                let sql = "SELECT epoch FROM session WHERE id = $1";
                match db.row(sql, &[&self.session.as_str()]).await? {
                    Some(row) if row.try_get::<_, &str>(0)? == epoch => Ok(Created::Now(lease())),
                    Some(_) => Err(Error::Exists(self.session.clone()).into()),
                    // The session was deleted just now, or never existed.
                    None => {
                        expect_member(&db, self.holder).await?;
                        Err(Error::Unknown("the session could not be created".to_owned()).into())
                    }
                }
            })
            .await
    }

    /// Returns true if the session was created now.
    async fn insert(&self, db: &Db, epoch: &str) -> Result<bool, Fault> {
        let head = Head { created_at: self.now, updated_at: self.now, ..Head::default() };
        let is_member = is_member("$9");
        let sql = format!(
            "WITH s AS (INSERT INTO session (id, owner, checksum, created_by, epoch, timeline, term, name, name_folded, \
             created_at, listed_at, holder) SELECT $1, $2, $3, $4, $5, {LINEAGE}, $10, '', '', $6, $7, $9 \
             WHERE {is_member} ON CONFLICT DO NOTHING RETURNING number) \
             INSERT INTO head (session, seq, updated_at, entries, token_count, window_tokens, unpriced_requests, \
             running, bytes, checksum, state_checksum) \
             SELECT number, 0, $6, 0, 0, 0, 0, false, 0, $8, 0 FROM s RETURNING session"
        );
        let row = db
            .row(
                &sql,
                &[
                    &self.session.as_str(),
                    &self.owner.as_bytes(),
                    &i64::from(checksum::owner(self.session, self.owner)),
                    &self.created_by.map(CommandId::as_str),
                    &epoch,
                    &self.now.0,
                    &listed_at(self.now),
                    &i64::from(read::head_checksum(self.session, 0, &head)),
                    &self.holder.map(|node| node.0),
                    &int(self.term),
                ],
            )
            .await?;
        Ok(row.is_some())
    }
}

/// Returns the condition that the table contains the node named by a parameter. It holds if the parameter is NULL.
fn is_member(holder: &str) -> String {
    format!("({holder}::bigint IS NULL OR EXISTS (SELECT FROM node m WHERE m.incarnation = {holder}))")
}

/// Fails if the table does not contain this node.
async fn expect_member(db: &Db, me: Option<NodeId>) -> Result<(), Fault> {
    let Some(me) = me else { return Ok(()) };
    match db.row("SELECT FROM node WHERE incarnation = $1", &[&me.0]).await? {
        Some(_) => Ok(()),
        None => Err(Error::NotMember(me).into()),
    }
}

/// Becomes the only writer of a session: raises the term in one statement, unless a living node holds the session. A
/// second statement reads the head. Its snapshot includes every append that the first statement waited for. A log on
/// another timeline may have lost its end, so it gets a new epoch, and clients take a new snapshot.
pub(super) async fn open(
    readers: &Readers,
    session: &SessionId,
    member: &Membership,
    timelines: &Timelines,
) -> Result<(Lease, SessionHead), Error> {
    let (fresh, is_member) = (&new_epoch()?, is_member("$3"));
    let sql = &format!(
        "UPDATE session s SET term = term + 1, holder = $3, timeline = {LINEAGE}, \
         epoch = CASE WHEN timeline = {LINEAGE} THEN epoch ELSE $2 END WHERE id = $1 \
         AND (holder IS NULL OR holder = $3 OR NOT EXISTS (SELECT FROM node n WHERE n.incarnation = s.holder) \
           OR EXISTS (SELECT FROM unnest($4::bigint[], $5::bigint[]) AS q(silent, at) \
             JOIN node n ON n.incarnation = q.silent AND n.beat = q.at WHERE q.silent = s.holder)) \
         AND {is_member} RETURNING term, epoch"
    );
    let node = member.me();
    let me = node.map(|node| node.0);
    readers
        .write(|db, _| async move {
            // A damaged head is reported before anything is changed.
            read::head(&db, session).await.map_err(|fault| fault.of(session))?;
            // This connection may be the first one to another copy, where the verdicts are not valid.
            let (nodes, beats) = nodes::columns(&member.silent(timelines.failovers()));
            let params: [&(dyn ToSql + Sync); 5] = [&session.as_str(), fresh, &me, &nodes, &beats];
            let mut opened = db.row(sql, &params).await.map_err(|fault| fault.of(session))?;
            if opened.is_none() {
                refused(&db, session, node).await?;
                // The session was released in between.
                opened = db.row(sql, &params).await.map_err(|fault| fault.of(session))?;
            }
            let Some(row) = opened else {
                let what = format!("session `{session}` is opened and closed by others; try again");
                return Err(Error::Unknown(what).into());
            };
            let (term, epoch): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
            let found = read::head(&db, session).await.map_err(|fault| fault.of(session))?;
            let term = term.cast_unsigned();
            let head = SessionHead { epoch: epoch.clone(), term, ..found.head };
            let next_seq = head.last_seq + 1;
            Ok((Lease { session: session.clone(), term, next_seq, epoch }, head))
        })
        .await
}

/// Fails with the reason why a session was not opened, unless it is no longer held.
async fn refused(db: &Db, session: &SessionId, me: Option<NodeId>) -> Result<(), Fault> {
    expect_member(db, me).await?;
    let row = db.row("SELECT holder FROM session WHERE id = $1", &[&session.as_str()]).await?;
    let Some(row) = row else { return Err(Error::NotFound(session.clone()).into()) };
    match row.try_get::<_, Option<i64>>(0)?.map(NodeId) {
        Some(node) if Some(node) != me => Err(Error::Held { session: session.clone(), node }.into()),
        _ => Ok(()),
    }
}

/// Releases a lease, if it is still the newest.
pub(super) async fn release(readers: &Readers, lease: &Lease, member: &Membership) -> Result<(), Error> {
    let Some(me) = member.me() else { return Ok(()) };
    let sql = "UPDATE session SET holder = NULL WHERE id = $1 AND epoch = $2 AND term = $3 AND holder = $4";
    let (session, term) = (lease.session.as_str(), int(lease.term));
    readers.write(|db, _| async move { db.rows(sql, &[&session, &lease.epoch, &term, &me.0]).await.map(drop) }).await
}

/// Deletes a session: it can no longer be found. Its rows are deleted in the background (`upkeep.rs`).
pub(super) async fn delete(readers: &Readers, session: &SessionId) -> Result<(), Error> {
    // The session is looked up first. So after a lost answer, a session that never existed is not mistaken for one that
    // the lost attempt deleted.
    let number = &readers.read(|db| async move { read::number(&db, session).await }).await?;
    let sql = "WITH s AS (DELETE FROM session WHERE number = $1 RETURNING number, id, owner), \
               h AS (DELETE FROM head USING s WHERE head.session = s.number), \
               d AS (INSERT INTO deletion (id, owner) SELECT id, owner FROM s) \
               INSERT INTO removal (session) SELECT number FROM s RETURNING session";
    readers
        .write(|db, was_sent| async move {
            match db.row(sql, &[number]).await.map_err(|fault| fault.of(session))? {
                Some(_) => Ok(()),
                // An attempt whose answer was lost has deleted it.
                None if was_sent => Ok(()),
                None => Err(Error::NotFound(session.clone()).into()),
            }
        })
        .await
}

/// Checks that the server accepts writes now.
pub(super) async fn check_writable(readers: &Readers) -> Result<(), Error> {
    // No session has number 0.
    let sql = "WITH added AS (INSERT INTO state (session, state, checksum) VALUES (0, '', $1) \
               ON CONFLICT (session) DO UPDATE SET checksum = excluded.checksum RETURNING 1) SELECT 1 FROM added";
    readers.write(|db, _| async move { db.row(sql, &[&int(0)]).await.map(drop) }).await
}
