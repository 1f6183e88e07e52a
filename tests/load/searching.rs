//! The cost of the search index: searches of a long session, and durable appends with the index and without it.

use crate::{
    figures::{Figures, Goal, median, median_of, ms},
    process::Bench,
};
use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use reseed::store::{
    Append, EntryColumns, Head, NewRecord, SearchQuery, SessionStore,
    sqlite::{Options, SqliteStore},
};
use reseed_protocol::{SessionId, Timestamp, event::Event};
use serde_json::json;
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// The longest that a search may take, and the part of the appends that the index may cost.
const SEARCH_GOAL_MS: f64 = 20.0;
const RATIO_GOAL: f64 = 0.85;

/// The number of times that each search runs.
const SEARCHES: usize = 11;

/// Entries written at once, and after how many the session branches.
const AT_ONCE: usize = 500;
const BRANCHES_EVERY: usize = 1_000;

/// Words of a message: some 700 bytes.
const WORDS: usize = 110;

/// Sessions of another user in the same database, so that the index has more than the one session.
const OTHERS: usize = 20;

pub(crate) async fn measure(
    bench: &Bench,
    entries: usize,
    sessions: usize,
    secs: u64,
    rounds: usize,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    searches(bench, entries, figures).await?;
    appends(bench, sessions, secs, rounds, figures).await
}

async fn searches(bench: &Bench, entries: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let path = bench.database("searching");
    let store = SqliteStore::open(&path)?;
    let mut words = Words::new(1);
    for other in 0..OTHERS {
        write(&store, &format!("other{other}"), "bob", entries / 100, &mut words).await?;
    }
    write(&store, "long", "ann", entries, &mut words).await?;
    let began = Instant::now();
    store.indexed().await;
    let name = format!("searching: index the last of {entries} entries");
    figures.add(&name, ms(began.elapsed()), "ms", Goal::None);
    // So rare that it occurs some ten times.
    let (common, second, rare) = (words.word(0), words.word(1), words.word(entries.min(19_000)));
    let last = format!("e{:07}", entries - 1).parse()?;
    let queries = [
        ("a common word", common.clone(), true),
        ("a rare word", rare.clone(), true),
        ("two common words", format!("{common} {second}"), true),
        ("a common and a rare word", format!("{common} {rare}"), true),
        ("a phrase of common words", format!("\"{common} {second}\""), true),
        ("a phrase that does not occur", format!("\"{rare} {rare} {rare}\""), false),
        ("a word that does not occur", "unheardof".to_owned(), false),
        ("the beginning of a word", format!("{}*", &rare[..3]), true),
        ("one letter", "k*".to_owned(), true),
        ("an identifier, in one entry", "src/part_0000007/mod.rs".to_owned(), true),
        ("Chinese, in one entry", "编号七号".to_owned(), true),
    ];
    let mut worst = 0.0_f64;
    for (what, text, is_there) in &queries {
        for on_path in [false, true] {
            let query = SearchQuery {
                on_path_to: on_path.then(|| Clone::clone(&last)),
                ..SearchQuery::in_session(&"long".parse()?, text, 20)
            };
            let time = timed(&store, query, Some(*is_there)).await?;
            worst = worst.max(time);
            if !on_path {
                figures.add(&format!("searching: {what}"), time, "ms", Goal::AtMost(SEARCH_GOAL_MS));
            }
        }
    }
    let some = SearchQuery {
        any: true,
        on_path_to: Some(last),
        ..SearchQuery::in_session(&"long".parse()?, &format!("{common} {second} {rare} unheardof"), 20)
    };
    let time = timed(&store, some, Some(true)).await?;
    figures.add("searching: some of four words", time, "ms", Goal::AtMost(SEARCH_GOAL_MS));
    figures.add("searching: the slowest, path included", worst.max(time), "ms", Goal::AtMost(SEARCH_GOAL_MS));
    let owner = timed(&store, SearchQuery::of_owner("bob", &rare, 20), None).await?;
    figures.add(&format!("searching: all of a user's {OTHERS} sessions"), owner, "ms", Goal::None);

    let began = Instant::now();
    store.delete(&"long".parse()?).await?;
    store.settled().await;
    figures.add("searching: delete and erase the session", ms(began.elapsed()), "ms", Goal::AtMost(60_000.0));
    store.close().await?;
    Ok(())
}

async fn timed(store: &SqliteStore, query: SearchQuery, is_there: Option<bool>) -> anyhow::Result<f64> {
    let mut times = Vec::new();
    for _ in 0..SEARCHES {
        let began = Instant::now();
        let hits = store.search(query.clone()).await?;
        times.push(began.elapsed());
        ensure!(is_there.is_none_or(|there| there != hits.items.is_empty()), "{query:?}: {} hits", hits.items.len());
    }
    Ok(ms(median(times)))
}

/// Appends by many sessions at once, alternating between a store with the index and one without.
async fn appends(
    bench: &Bench,
    sessions: usize,
    secs: u64,
    rounds: usize,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let open = |path: &Path, index| SqliteStore::open_with(path, Options { index, ..Options::default() });
    let stores = [open(&bench.database("indexed"), true)?, open(&bench.database("plain"), false)?];
    let mut next = [vec![0; sessions], vec![0; sessions]];
    let (mut ratios, mut whole, mut speeds) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut found = [(0.0, 0.0); 2];
        // Which comes first alternates too.
        for at in [round % 2, 1 - round % 2] {
            let (store, next) = (&stores[at], &mut next[at]);
            let before: usize = next.iter().sum();
            let began = Instant::now();
            let until = began + Duration::from_secs(secs);
            let talks = next.iter_mut().enumerate().map(|(session, next)| talk(store, session, next, until));
            try_join_all(talks).await?;
            let count = (next.iter().sum::<usize>() - before) as f64;
            let appended = began.elapsed();
            store.indexed().await;
            found[at] = (count / appended.as_secs_f64(), count / began.elapsed().as_secs_f64());
        }
        speeds.push(found[0].0);
        ratios.push(found[0].0 / found[1].0);
        whole.push(found[0].1 / found[1].1);
    }
    let name = format!("searching: durable appends with the index, of {sessions} sessions at once");
    figures.add(&name, median_of(speeds), "/s", Goal::None);
    figures.add("searching: appends with the index to without", median_of(ratios), "x", Goal::AtLeast(RATIO_GOAL));
    figures.add("searching: the same until all is indexed", median_of(whole), "x", Goal::None);
    for store in stores {
        store.close().await?;
    }
    Ok(())
}

async fn talk(store: &SqliteStore, session: usize, next: &mut usize, until: Instant) -> anyhow::Result<()> {
    let id: SessionId = format!("s{session}").parse()?;
    if *next == 0 {
        store.create(&id, "ann", Timestamp(0)).await?;
    }
    let lease = store.open(&id).await?.0;
    let mut words = Words::new(session as u64 + 7);
    while Instant::now() < until {
        let records = vec![said(*next, next.checked_sub(1), &words.text(WORDS))?];
        let state = Some("s".repeat(800).into());
        let head = Head { updated_at: Timestamp(1), state, ..Head::default() };
        store
            .append(&lease, *next as u64 + 1, Append { records, marks: Vec::new(), usage: Vec::new(), head })
            .await
            .context("append")?;
        *next += 1;
    }
    Ok(())
}

async fn write(store: &SqliteStore, name: &str, owner: &str, entries: usize, words: &mut Words) -> anyhow::Result<()> {
    let lease = store.create(&name.parse()?, owner, Timestamp(0)).await?;
    for first in (0..entries).step_by(AT_ONCE) {
        let records = (first..entries.min(first + AT_ONCE)).map(|n| {
            let mut text = words.text(WORDS);
            text.push_str(&format!(" src/part_{n:07}/mod.rs"));
            if n == 7 {
                text.push_str(" 这是编号七号的条目。");
            }
            // Every so often the last few entries are another branch.
            let back = if n.is_multiple_of(BRANCHES_EVERY) && n > 4 { 4 } else { 1 };
            said(n, n.checked_sub(back), &text)
        });
        let records = records.collect::<anyhow::Result<Vec<_>>>()?;
        let head = Head { updated_at: Timestamp(1), ..Head::default() };
        store.append(&lease, first as u64 + 1, Append { records, marks: Vec::new(), usage: Vec::new(), head }).await?;
    }
    Ok(())
}

/// Returns the record of a message.
fn said(n: usize, parent: Option<usize>, text: &str) -> anyhow::Result<NewRecord> {
    let id = |n: usize| format!("e{n:07}");
    let entry = json!({ "entryId": id(n), "parentId": parent.map(id), "timestamp": "2026-11-21T09:15:00.300Z",
        "type": "message", "role": if n.is_multiple_of(2) { "user" } else { "assistant" },
        "content": [{ "type": "text", "text": text }] });
    let body = json!({ "type": "entry_appended", "payload": { "entry": entry } }).to_string();
    let event: Event = serde_json::from_str(&body)?;
    Ok(NewRecord { body: body.into(), entry: EntryColumns::of(&event) })
}

/// Makes texts of words that are as common as words are: the n-th is used 1/n as often as the first.
struct Words(fastrand::Rng);

/// The number of different words.
const VOCABULARY: f64 = 20_000.0;

impl Words {
    fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    fn text(&mut self, words: usize) -> String {
        let mut text = String::new();
        for _ in 0..words {
            let rank = VOCABULARY.powf(self.0.f64()) as usize - 1;
            text.push_str(&self.word(rank));
            text.push(' ');
        }
        text
    }

    /// Returns the word with this rank; common ones are short.
    fn word(&self, rank: usize) -> String {
        let syllables = ["ka", "lo", "mi", "ten", "sur", "pa", "ri", "vo", "den", "ma", "chu", "ger", "li"];
        let (mut word, mut left) = (String::new(), rank + 1);
        while left > 0 {
            word.push_str(syllables[left % syllables.len()]);
            left /= syllables.len();
        }
        word
    }
}
