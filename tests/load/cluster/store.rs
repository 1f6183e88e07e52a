//! The PostgreSQL store: appends against the least statement that writes the same bytes and against SQLite, the same
//! while somebody holds an old snapshot, and lists.

use super::{Sizes, postgres::Server};
use crate::{
    appends_store::{appending, create, percentile, run},
    client::Client,
    figures::{Figures, Goal, median, median_of, ms},
    history, history_list, history_store,
    process::{Bench, free_address},
};
use anyhow::Context as _;
use reseed::store::{Append, ListQuery, SessionStore, connect, sqlite::SqliteStore};
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::{Client as Database, NoTls, types::ToSql};

/// Connections of the floor, as many as the store writes with.
const FLOOR_CONNECTIONS: usize = 2;

/// Openings of each session, but at most two a round.
const OPENINGS: usize = 9;

pub(super) async fn measure(
    bench: &Bench,
    server: &Arc<Server>,
    sizes: Sizes,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    appends(bench, server, sizes, figures).await?;
    lists(server, sizes, figures).await?;
    openings(bench, server, sizes, figures).await
}

async fn appends(bench: &Bench, server: &Server, sizes: Sizes, figures: &mut Figures) -> anyhow::Result<()> {
    let Sizes { appenders, rounds, append_secs, .. } = sizes;
    let address = server.database("");
    let store = connect(&address).await?;
    create(&*store, appenders).await?;
    let sqlite = SqliteStore::open(&bench.database("cluster-appends"))?;
    create(&sqlite, appenders).await?;
    let floor = Floor::start(&server.database("")).await?;
    let (mut next, mut next_sqlite) = (vec![0; appenders], vec![0; appenders]);
    let (mut rates, mut to_floor, mut to_sqlite, mut p99s, mut cpus) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..rounds {
        let mut places = vec![0; appenders];
        let write = async |session: usize, append: Append| floor.write(session, append).await;
        let floored = run(appenders, append_secs, write, &mut places).await?;
        let before = own_cpu();
        let done = appending(&*store, appenders, append_secs, &mut next).await?;
        cpus.push((own_cpu() - before).as_secs_f64() * 1e6 / done.times.len() as f64);
        let beside = appending(&sqlite, appenders, append_secs, &mut next_sqlite).await?;
        to_floor.push(done.per_second / floored.per_second);
        to_sqlite.push(done.per_second / beside.per_second);
        p99s.push(percentile(&done.times, 0.99));
        rates.push(done.per_second);
    }
    let name = format!("cluster: durable appends of {appenders} sessions at once");
    figures.add(&name, median_of(rates), "/s", Goal::AtLeast(10_000.0));
    figures.add("cluster: acknowledged within, 99 of 100", median_of(p99s), "ms", Goal::AtMost(40.0));
    figures.add("cluster: store to a bare grouped insert", median_of(to_floor), "x", Goal::AtLeast(0.45));
    figures.add("cluster: store to the SQLite store", median_of(to_sqlite), "x", Goal::AtLeast(1.2));
    let name = "cluster: processor time of an append, of the server and of who appends";
    figures.add(name, median_of(cpus), "us", Goal::AtMost(20.0));
    old_snapshot(&*store, &address, sizes, next, figures).await?;
    sqlite.close().await?;
    store.close().await?;
    Ok(())
}

/// Appends while another connection holds a snapshot, as a report or a dump does, and as long without it before: what
/// is written in that time, and its checkpoints, slow down both.
async fn old_snapshot(
    store: &dyn SessionStore,
    address: &str,
    sizes: Sizes,
    mut next: Vec<u64>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let (without, wal) = pressed(store, address, sizes, &mut next).await?;
    let holder = database(address).await?;
    holder.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class").await?;
    let (beside, _) = pressed(store, address, sizes, &mut next).await?;
    holder.batch_execute("COMMIT").await?;
    let secs = sizes.snapshot_secs;
    figures.add(&format!("cluster: WAL that {secs} s of appends write"), wal, "MiB", Goal::None);
    let name = format!("cluster: appends beside a snapshot of {secs} s, to after {secs} s without");
    figures.add(&name, beside / without, "x", Goal::AtLeast(0.7));
    Ok(())
}

/// Appends for as long as a snapshot is held, in rounds. Returns the appends a second at the end, the median of the
/// later half of the rounds, and the MiB of WAL that were written.
async fn pressed(
    store: &dyn SessionStore,
    address: &str,
    Sizes { appenders, append_secs, snapshot_secs, .. }: Sizes,
    next: &mut [u64],
) -> anyhow::Result<(f64, f64)> {
    let database = database(address).await?;
    // Both begin with as many dirty pages as any other.
    database.batch_execute("CHECKPOINT").await?;
    let written = async || -> anyhow::Result<f64> {
        let row = database.query_one("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8", &[]).await?;
        Ok(row.get(0))
    };
    let before = written().await?;
    let rounds = (snapshot_secs / append_secs).max(1);
    let mut rates = Vec::new();
    for _ in 0..rounds {
        rates.push(appending(store, appenders, append_secs, next).await?.per_second);
    }
    let wal = (written().await? - before) / 1024.0 / 1024.0;
    Ok((median_of(rates.split_off(rates.len() / 2)), wal))
}

async fn lists(server: &Server, sizes: Sizes, figures: &mut Figures) -> anyhow::Result<()> {
    let store = connect(&server.database("")).await?;
    history_list::fill(&*store, sizes.listed).await?;
    let page = ListQuery { limit: 50, ..ListQuery::default() };
    let all = ListQuery { limit: sizes.listed, ..ListQuery::default() };
    for (what, query, want, goal) in
        [("a page of 50", page, sizes.listed.min(50), 2.0), ("all", all, sizes.listed, 60.0)]
    {
        let time = history_list::read(&*store, &query, want as usize).await.context(what)?;
        let name = format!("cluster: list {what}, of {} sessions", sizes.listed);
        figures.add(&name, ms(time), "ms", Goal::AtMost(goal));
    }
    store.close().await?;
    Ok(())
}

async fn openings(bench: &Bench, server: &Server, sizes: Sizes, figures: &mut Figures) -> anyhow::Result<()> {
    let address = server.database("");
    history_store::write_at(&address, "whole", sizes.entries, false).await?;
    history_store::write_at(&address, "compacted", sizes.entries, true).await?;
    let base_url = bench.upstream.base_url();
    let settings = [("DATABASE_URL", address.as_str()), ("OPENAI_BASE_URL", &base_url), ("CONTEXT_WINDOW", "1000000")];
    let server = bench.reseed_at(free_address()?, &settings).await?;
    bench.upstream.answer(1, None);
    Client::session(&server, None).await?.turn("Are you there?").await?;
    for (session, what, goal) in [("whole", "none compacted", 100.0), ("compacted", "compacted", 6.0)] {
        let mut times = Vec::new();
        for _ in 0..OPENINGS.min(2 * sizes.rounds) {
            times.push(history::opening(&server, session).await?);
        }
        let name = format!("cluster: open a session of {} entries, {what}", sizes.entries);
        figures.add(&name, ms(median(times)), "ms", Goal::AtMost(goal));
    }
    Ok(())
}

/// Returns the processor time that this program has used, by threads that have ended too: an idle thread may end while
/// others are measured.
fn own_cpu() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(used.tv_sec).unwrap_or(0), u32::try_from(used.tv_nsec).unwrap_or(0))
}

/// Connects to the database at an address whose host is a percent-encoded path.
async fn database(address: &str) -> anyhow::Result<Database> {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await.context("connect to PostgreSQL")?;
    tokio::spawn(connection);
    Ok(client)
}

type Waiting = (usize, Append, oneshot::Sender<Result<(), Arc<tokio_postgres::Error>>>);

/// The least that writes the same bytes: one statement inserts what waits into a table without an index.
struct Floor(Vec<mpsc::Sender<Waiting>>);

impl Floor {
    async fn start(address: &str) -> anyhow::Result<Self> {
        let first = database(address).await?;
        first.batch_execute("CREATE TABLE floor (session bigint, seq bigint, body bytea, state bytea)").await?;
        let mut queues = Vec::new();
        for _ in 0..FLOOR_CONNECTIONS {
            let (queue, waiting) = mpsc::channel(1024);
            tokio::spawn(insert(database(address).await?, waiting));
            queues.push(queue);
        }
        Ok(Self(queues))
    }

    async fn write(&self, session: usize, append: Append) -> anyhow::Result<()> {
        let (answer, written) = oneshot::channel();
        let queue = &self.0[session % self.0.len()];
        queue.send((session, append, answer)).await.ok().context("the floor's writer has ended")?;
        Ok(written.await??)
    }
}

/// Inserts what waits, group by group, until nobody can send any more.
async fn insert(database: Database, mut waiting: mpsc::Receiver<Waiting>) {
    let sql = "INSERT INTO floor SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[])";
    let Ok(statement) = database.prepare(sql).await else { return };
    while let Some(first) = waiting.recv().await {
        let mut group = vec![first];
        while group.len() < 1024
            && let Ok(next) = waiting.try_recv()
        {
            group.push(next);
        }
        let sessions: Vec<i64> = group.iter().map(|(session, ..)| *session as i64).collect();
        let numbers: Vec<i64> = group.iter().map(|(_, append, _)| append.head.entries as i64).collect();
        let texts = |append: &Append| {
            let records = append.records.iter().map(|record| &*record.body);
            records.chain(append.marks.iter().map(|mark| &*mark.reply)).collect::<String>().into_bytes()
        };
        let bodies: Vec<Vec<u8>> = group.iter().map(|(_, append, _)| texts(append)).collect();
        let states: Vec<&[u8]> =
            group.iter().map(|(_, append, _)| append.head.state.as_deref().unwrap_or_default().as_bytes()).collect();
        let columns: [&(dyn ToSql + Sync); 4] = [&sessions, &numbers, &bodies, &states];
        let done = database.execute(&statement, &columns).await.map(drop).map_err(Arc::new);
        for (.., answer) in group {
            // A caller that has gone does not wait for it.
            let _ = answer.send(done.clone());
        }
    }
}
