//! The servers that share the tables: one row each, with a counter that its server increments.
//!
//! Beats use a connection of their own, so that none waits behind a slow read. A crash of the database may move
//! counters back. An observer therefore takes any change of a counter as a sign of life.

use super::{
    changes,
    connection::{Connection, Connector},
    fault::Fault,
    readers::Readers,
    tickets,
    timeline::Timelines,
};
use crate::{
    Changes, Cluster, Error, NewTicket, SessionHead, StoreFuture, TicketBounds, TicketPut, TicketsOf,
    checksum::int,
    cluster::{LeasedSession, Membership, NewNode, NodeId, NodeRow, Pulse, Silent, by_name},
};
use reseed_protocol::{SessionId, Timestamp};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::timeout;
use tokio_postgres::{Row, types::ToSql};

/// The distance between the numbers of two servers; a random part fills it. A copy of the database that lacks the
/// newest rows assigns some numbers again, and without the random part two servers would be mistaken for one another.
const APART: i64 = 1 << 20;

/// The columns of a [`NodeRow`].
const COLUMNS: &str = "incarnation, name, address, version, lease_millis, beat, draining, sessions, \
                       connections, (extract(epoch FROM clock_timestamp() - beat_at) * 1000)::bigint";

/// The access to the table of servers.
pub(super) struct Nodes {
    connector: Connector,
    /// The connection for beats, while it is not in use.
    connection: Mutex<Option<Connection>>,
    readers: Arc<Readers>,
    pub(super) timelines: Arc<Timelines>,
    pub(super) member: Membership,
    /// The timeout for the answer to a beat, in milliseconds.
    limit_ms: AtomicU64,
}

/// The timeout for a beat, in tenths of the lease: two beats. After that its connection is closed, in case only the
/// connection is broken.
const LIMIT_TENTHS: u32 = 4;

impl Nodes {
    /// Creates the handle. `connector` makes the connection for beats.
    pub(super) fn new(connector: Connector, readers: Arc<Readers>, timelines: Arc<Timelines>) -> Self {
        Self {
            connector,
            connection: Mutex::default(),
            readers,
            timelines,
            member: Membership::default(),
            limit_ms: AtomicU64::new(0),
        }
    }

    /// Closes the connection for beats.
    pub(super) fn close(&self) {
        drop(self.connection.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Sends a beat. If this future fails or is dropped, its connection is closed.
    async fn send_beat(&self, pulse: Pulse) -> Result<Option<Vec<NodeRow>>, Error> {
        let Some(me) = self.member.me() else { return Ok(None) };
        let kept = self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        let db = match kept.filter(|db| !db.is_closed()) {
            Some(db) => db,
            None => self.connector.connect().await?,
        };
        let sql = format!(
            "WITH mine AS (UPDATE node SET beat = beat + 1, beat_at = clock_timestamp(), draining = draining OR $2, \
             sessions = $3, connections = $4 \
             WHERE incarnation = $1 RETURNING 1) \
             SELECT {COLUMNS}, EXISTS (SELECT FROM mine) FROM node"
        );
        let (sessions, connections) = (int(pulse.sessions), int(pulse.connections));
        let params: [&(dyn ToSql + Sync); 4] = [&me.0, &pulse.draining, &sessions, &connections];
        let limit = Duration::from_millis(self.limit_ms.load(Ordering::Relaxed));
        let rows = timeout(limit, db.rows(&sql, &params)).await.unwrap_or(Err(Fault::Silence))?;
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = Some(db);
        let is_member = rows.first().is_some_and(|row| row.try_get(10).unwrap_or(false));
        Ok(if is_member { Some(decoded(&rows)?) } else { None })
    }
}

impl Cluster for Nodes {
    fn join<'a>(&'a self, node: &'a NewNode) -> StoreFuture<'a, Result<NodeId, Error>> {
        Box::pin(async move {
            // The column's own sequence, which older versions use, advances together with these numbers. A copy of the
            // database may have lost some numbers, but the next one is still above those of all servers in it.
            let sql = &format!(
                "WITH own AS MATERIALIZED (SELECT name, nextval(name) AS n \
                   FROM pg_get_serial_sequence('node', 'incarnation') AS name), \
                 top AS (SELECT coalesce(max(incarnation), 0) / {APART} + 1 AS n FROM node) \
                 INSERT INTO node (incarnation, name, address, version, lease_millis) OVERRIDING SYSTEM VALUE \
                 SELECT CASE WHEN own.n >= top.n THEN own.n ELSE setval(own.name, top.n) END * {APART} + $1, \
                 $2, $3, $4, $5 \
                 FROM own, top RETURNING incarnation"
            );
            let lease = i64::try_from(node.lease.as_millis()).unwrap_or(i64::MAX);
            let limit = u64::try_from((node.lease * LIMIT_TENTHS / 10).as_millis()).unwrap_or(u64::MAX);
            self.limit_ms.store(limit, Ordering::Relaxed);
            // An attempt whose answer was lost leaves a row without a server, which is silent and holds nothing.
            let row = self
                .readers
                .write(|db, _| async move {
                    db.row(sql, &[&random_part()?, &node.name, &node.address, &node.version, &lease]).await
                })
                .await?;
            let row = row.ok_or_else(|| Error::Unknown("the database did not add this server".to_owned()))?;
            let me = NodeId(row.try_get(0).map_err(Fault::from)?);
            self.member.set_me(Some(me));
            Ok(me)
        })
    }

    fn beat(&self, pulse: Pulse) -> StoreFuture<'_, Result<Option<Vec<NodeRow>>, Error>> {
        Box::pin(self.send_beat(pulse))
    }

    fn judge(&self, silent: Vec<Silent>, failovers: u64) {
        self.member.judge(silent, failovers);
    }

    fn leave(&self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let Some(me) = self.member.me() else { return Ok(()) };
            let sql = "DELETE FROM node WHERE incarnation = $1";
            self.readers.write(|db, _| async move { db.rows(sql, &[&me.0]).await.map(drop) }).await?;
            self.member.set_me(None);
            self.close();
            Ok(())
        })
    }

    fn nodes(&self) -> StoreFuture<'_, Result<Vec<NodeRow>, Error>> {
        Box::pin(async move {
            let sql = &format!("SELECT {COLUMNS} FROM node");
            self.readers.read(|db| async move { decoded(&db.rows(sql, &[]).await?) }).await.map(by_name)
        })
    }

    fn remove<'a>(&'a self, silent: &'a [Silent]) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let (nodes, beats) = &columns(silent);
            let sql = "DELETE FROM node USING unnest($1::bigint[], $2::bigint[]) AS q(silent, at) \
                       WHERE incarnation = q.silent AND beat = q.at";
            self.readers.write(|db, _| async move { db.rows(sql, &[nodes, beats]).await.map(drop) }).await
        })
    }

    fn ask_to_drain(&self, node: NodeId) -> StoreFuture<'_, Result<bool, Error>> {
        Box::pin(async move {
            let sql = "UPDATE node SET draining = true WHERE incarnation = $1 RETURNING 1";
            self.readers.write(|db, _| async move { Ok(db.row(sql, &[&node.0]).await?.is_some()) }).await
        })
    }

    fn lost<'a>(&'a self, held: &'a [LeasedSession]) -> StoreFuture<'a, Result<Vec<SessionId>, Error>> {
        Box::pin(async move {
            let ids: &Vec<&str> = &held.iter().map(|held| held.session.as_str()).collect();
            let epochs: &Vec<&str> = &held.iter().map(|held| held.epoch.as_str()).collect();
            let terms: &Vec<i64> = &held.iter().map(|held| int(held.term)).collect();
            let seqs: &Vec<i64> = &held.iter().map(|held| int(held.last_seq)).collect();
            // A copy of the database that lacks an opening assigns its term again, under another epoch.
            let sql = "SELECT i.at FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY \
                       AS i(id, epoch, term, seq, at) LEFT JOIN session s ON s.id = i.id AND s.epoch = i.epoch \
                       LEFT JOIN LATERAL (SELECT seq FROM head WHERE session = s.number ORDER BY seq DESC LIMIT 1) h \
                       ON true WHERE s.term IS DISTINCT FROM i.term OR h.seq < i.seq";
            let rows = self.readers.read(|db| async move { db.rows(sql, &[ids, epochs, terms, seqs]).await }).await?;
            let at = |row: &Row| usize::try_from(row.try_get::<_, i64>(0).ok()?).ok()?.checked_sub(1);
            Ok(rows.iter().filter_map(at).filter_map(|at| held.get(at)).map(|held| held.session.clone()).collect())
        })
    }

    fn changes<'a>(
        &'a self,
        owners: &'a [String],
        since: Timestamp,
        within: Duration,
    ) -> StoreFuture<'a, Result<Changes, Error>> {
        Box::pin(changes::since(&self.readers, owners, since, within))
    }

    fn running<'a>(&'a self, owners: &'a [String]) -> StoreFuture<'a, Result<Vec<SessionHead>, Error>> {
        Box::pin(changes::running(&self.readers, owners))
    }

    fn failovers(&self) -> u64 {
        self.timelines.failovers()
    }

    fn put_ticket<'a>(
        &'a self,
        ticket: &'a NewTicket,
        bounds: TicketBounds,
    ) -> StoreFuture<'a, Result<TicketPut, Error>> {
        Box::pin(tickets::put(&self.readers, ticket, bounds))
    }

    fn take_ticket<'a>(&'a self, hash: &'a [u8; 32]) -> StoreFuture<'a, Result<Option<(String, Duration)>, Error>> {
        Box::pin(tickets::take(&self.readers, hash))
    }

    fn withdraw_tickets<'a>(&'a self, service: &'a str, of: TicketsOf<'a>) -> StoreFuture<'a, Result<u64, Error>> {
        Box::pin(tickets::withdraw(&self.readers, service, of))
    }
}

/// Returns the random part of a server's number.
fn random_part() -> Result<i64, Error> {
    let random = getrandom::u32().map_err(|error| Error::Unknown(format!("make a number for this server: {error}")))?;
    Ok(i64::from(random) % APART)
}

/// Returns verdicts as the parameters of a statement.
pub(super) fn columns(silent: &[Silent]) -> (Vec<i64>, Vec<i64>) {
    silent.iter().map(|silent| (silent.node.0, int(silent.beat))).unzip()
}

fn decoded(rows: &[Row]) -> Result<Vec<NodeRow>, Fault> {
    let count = |row: &Row, column| row.try_get::<_, i64>(column).map(i64::cast_unsigned);
    let decode = |row: &Row| {
        Ok(NodeRow {
            id: NodeId(row.try_get(0)?),
            node: NewNode {
                name: row.try_get(1)?,
                address: row.try_get(2)?,
                version: row.try_get(3)?,
                lease: Duration::from_millis(count(row, 4)?),
            },
            beat: count(row, 5)?,
            pulse: Pulse { draining: row.try_get(6)?, sessions: count(row, 7)?, connections: count(row, 8)? },
            age: Duration::from_millis(row.try_get::<_, i64>(9)?.max(0).cast_unsigned()),
        })
    };
    rows.iter().map(decode).collect()
}
