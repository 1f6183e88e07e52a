//! The cost of a list with many sessions.

use crate::{
    figures::{Figures, Goal, median, ms},
    process::Bench,
};
use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use reseed::store::{Append, Head, ListQuery, NewRecord, SessionStore, sqlite::SqliteStore};
use reseed_protocol::Timestamp;
use std::time::{Duration, Instant};

/// Sessions written at once.
const AT_ONCE: u32 = 500;

/// The number of reads of each list.
const READS: usize = 11;

/// The longest that a list of all of them may take.
const GOAL_MS: f64 = 20.0;

pub(crate) async fn measure(bench: &Bench, sessions: u32, figures: &mut Figures) -> anyhow::Result<()> {
    let store = SqliteStore::open(&bench.database("list"))?;
    fill(&store, sessions).await?;
    let all = ListQuery { limit: sessions, ..ListQuery::default() };
    let mine = ListQuery { owner: Some("alice".into()), limit: sessions, ..ListQuery::default() };
    let searched = ListQuery { search: Some("order 00".into()), limit: sessions, ..ListQuery::default() };
    let page = ListQuery { limit: 50, ..ListQuery::default() };
    for (what, query, want) in [
        ("list all", all, sessions as usize),
        ("list the half that is one owner's", mine, sessions as usize / 2),
        ("search all names", searched, 100),
        ("the first page of 50", page, 50),
    ] {
        let time = read(&store, &query, want).await.context(what)?;
        figures.add(&format!("history: of {sessions} sessions, {what}"), ms(time), "ms", Goal::AtMost(GOAL_MS));
    }
    store.close().await?;
    Ok(())
}

/// Writes this many sessions, each with one record.
pub(crate) async fn fill(store: &dyn SessionStore, sessions: u32) -> anyhow::Result<()> {
    for first in (0..sessions).step_by(AT_ONCE as usize) {
        try_join_all((first..sessions.min(first + AT_ONCE)).map(|n| write(store, n))).await?;
    }
    Ok(())
}

/// Returns the time to read a list that must have this many sessions.
pub(crate) async fn read(store: &dyn SessionStore, query: &ListQuery, want: usize) -> anyhow::Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..READS {
        let began = Instant::now();
        let found = store.list(query.clone()).await?.items.len();
        times.push(began.elapsed());
        ensure!(found == want, "{found} instead of {want}");
    }
    Ok(median(times))
}

async fn write(store: &dyn SessionStore, n: u32) -> anyhow::Result<()> {
    let owner = if n.is_multiple_of(2) { "alice" } else { "bob" };
    let lease = store.create(&format!("s{n}").parse()?, owner, Timestamp(0)).await?;
    let head = Head {
        name: format!("What came of the order {n:04}"),
        // One a minute: PostgreSQL's index is by minute.
        updated_at: Timestamp(i64::from(n) * 60_000),
        state: Some("s".repeat(800).into()),
        ..Head::default()
    };
    let record = NewRecord { body: "{}".into(), entry: None };
    store.append(&lease, 1, Append { records: vec![record], marks: Vec::new(), usage: Vec::new(), head }).await?;
    Ok(())
}
