//! Replays the public chats that lie beside the project. The table in the compaction README shows the results, and a
//! test compares it.
//!
//! `cargo test` replays the first chat and compares it with `tests/fixtures/replay/one-chat.txt`. `CHATS=all`, as in
//! `tests/soak/full.sh`, replays all of them, which takes some minutes in a debug build, and compares the README;
//! `UPDATE=1` writes both. If the chats are missing, the test says so and passes, because we may not distribute them.

use super::{Replay, policy::Policy, read, report, summariser::Summariser};
use crate::{config::Settings, service};
use std::{fs, io::Write as _, path::Path};

const CHATS: &str = "../shared/corpora/beam-100k.jsonl.gz";
const README: &str = "src/core/compaction/README.md";
const ONE_CHAT: &str = "tests/fixtures/replay/one-chat.txt";

/// The model whose tokenizer counts.
const MODEL: &str = "gpt-4.1-mini";

/// Replays this many chats and returns the table.
fn table(chats: u64, windows: &[u64], summarisers: &[Summariser]) -> String {
    let settings = Settings::from_iter([("MODEL", MODEL)]).unwrap();
    let mut deployment = service::deployment_of(&settings, service::windows_of(&settings, Vec::new()));
    MODEL.clone_into(&mut deployment.model);
    let policies = ["none", "threshold", "pi", "codex", "truncation", "sliding"];
    let policies = policies.map(|policy| Policy::parse(policy, &deployment).unwrap());
    let mut replay = Replay::new(&deployment, windows, &policies, summarisers, false);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let counter = deployment.counter(MODEL);
    runtime.block_on(async {
        let mut source = read::open(CHATS, &[], counter).await.unwrap();
        while replay.sessions < chats
            && let Some(recorded) = source.next().await
        {
            replay.play(&recorded.unwrap()).unwrap();
        }
    });
    report::markdown(&replay)
}

/// Compares a table with the text between a file's marks, or writes it there.
fn compare(file: &str, table: &str) {
    const MARKS: (&str, &str) = ("<!-- replay -->\n", "<!-- /replay -->");
    let text = fs::read_to_string(file).unwrap_or_default();
    let (before, rest) = text.split_once(MARKS.0).unwrap_or_else(|| panic!("{file} has no mark"));
    let (found, after) = rest.split_once(MARKS.1).unwrap_or_else(|| panic!("{file} has no second mark"));
    if found == table {
        return;
    }
    assert!(
        std::env::var_os("UPDATE").is_some(),
        "{file} is out of date: run `UPDATE=1 cargo test -p reseed --lib replay::corpus`.\nIt has\n{found}\nnow it \
         is\n{table}"
    );
    fs::write(file, format!("{before}{}{table}{}{after}", MARKS.0, MARKS.1)).unwrap();
}

#[test]
fn the_table_matches_a_replay_of_the_chats() {
    if !Path::new(CHATS).exists() {
        // This bypasses the test's output capture, so that the skip is always visible.
        let _ =
            writeln!(std::io::stderr(), "SKIPPED: {CHATS} is not there, so the table of `reseed replay` is unchecked");
        return;
    }
    compare(ONE_CHAT, &table(1, &[32_000], &[Summariser::Empty]));
    if std::env::var_os("UPDATE").is_some() || std::env::var("CHATS").is_ok_and(|chats| chats == "all") {
        compare(README, &table(u64::MAX, &[32_000, 128_000], &[Summariser::Empty, Summariser::Quote]));
    }
}
