//! How PostgreSQL plans our statements: by index, whatever its statistics say. If a plan flips to reading a whole
//! table, or to sorting dead rows, an append costs fifty times as much.
//!
//! The statements are taken from the log of a server on which the contract runs, exactly as the store sends them. They
//! are also collected from the source, so that none is forgotten.

use super::{
    super::{
        append::{self, AppendAt},
        connection::{Connection, Connector, Use},
        history::Indexer,
    },
    server::Server,
    settings,
};
use crate::{
    SessionStore,
    conformance::{NOW, append_of, cluster, id, tests},
};
use futures_util::future::LocalBoxFuture;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Tables that must never be read as a whole.
const LARGE: [&str; 7] = ["record", "head", "session", "mark", "state", "words", "model_usage"];

/// Tables in which every append leaves a dead row.
const GROWING: [&str; 3] = ["head", "record", "mark"];

type Case = fn(&dyn SessionStore) -> LocalBoxFuture<'_, ()>;

/// Cases of the contract that together send every statement.
const CASES: &[Case] = &[
    |store| Box::pin(tests::writing::a_command_creates_one_session(store)),
    |store| Box::pin(tests::writing::a_session_is_found_by_the_command_that_created_it(store)),
    |store| Box::pin(tests::writing::a_wrong_seq_or_term_is_fenced_and_nothing_is_written(store)),
    |store| Box::pin(tests::writing::a_command_is_written_once(store)),
    |store| Box::pin(tests::writing::a_deleted_session_leaves_nothing_behind(store)),
    |store| Box::pin(tests::writing::the_usage_of_each_owner_is_counted(store)),
    |store| Box::pin(tests::spending::usage_is_written_with_its_append_and_kept(store)),
    |store| Box::pin(tests::spending::usage_is_summed_by_what_is_asked_for(store)),
    |store| Box::pin(tests::spending::old_usage_is_removed(store)),
    |store| Box::pin(tests::spending::usage_is_summed_in_steps(store)),
    |store| Box::pin(tests::spending::of_an_owner_who_is_forgotten_only_sums_are_left(store)),
    |store| Box::pin(tests::reading::empty_sessions_are_found_by_their_age(store)),
    |store| Box::pin(tests::reading::an_entry_is_found_by_its_id(store)),
    |store| Box::pin(tests::reading::a_path_is_one_branch_newest_first(store)),
    |store| Box::pin(tests::reading::a_log_window_holds_entries_only(store)),
    |store| Box::pin(tests::reading::a_path_after_an_entry_is_oldest_first(store)),
    |store| Box::pin(tests::reading::a_page_of_entries_ends_before_it_is_too_large(store)),
    |store| Box::pin(tests::trees::entries_of_one_kind_are_paged(store)),
    |store| Box::pin(tests::trees::a_circle_of_parents_ends_every_walk(store)),
    |store| Box::pin(tests::trees::a_random_tree_answers_like_its_plain_model(store)),
    |store| Box::pin(tests::reading::a_list_is_ordered_paged_searched_and_of_one_owner(store)),
    |store| Box::pin(tests::reading::sessions_that_have_not_changed_since_a_time_are_listed_alone(store)),
    |store| Box::pin(tests::reading::a_session_that_is_being_made_is_not_listed_among_the_others(store)),
    |store| Box::pin(tests::searching::a_path_and_a_position_bound_a_search(store)),
    |store| Box::pin(tests::searching::a_search_stays_with_its_session_and_owner(store)),
];

type ClusterCase = for<'a> fn(&'a dyn SessionStore, &'a dyn SessionStore) -> LocalBoxFuture<'a, ()>;

const CLUSTER_CASES: &[ClusterCase] = &[
    |a, b| Box::pin(cluster::a_released_session_is_free_and_a_stale_lease_releases_nothing(a, b)),
    |a, b| Box::pin(cluster::a_silent_node_loses_requested_sessions_unless_it_beats_again(a, b)),
    |a, b| Box::pin(cluster::a_node_that_leaves_holds_nothing(a, b)),
    |a, b| Box::pin(cluster::a_node_finds_the_sessions_that_it_has_lost(a, b)),
    |a, b| Box::pin(cluster::changes_are_found_for_several_owners_together(a, b)),
    |a, b| Box::pin(cluster::sessions_with_a_running_turn_are_found_for_several_owners(a, b)),
    |a, b| Box::pin(cluster::beats_are_counted_and_report_a_nodes_status(a, b)),
    |a, b| Box::pin(cluster::a_node_finds_with_its_beat_that_it_is_asked_to_drain(a, b)),
    |a, b| Box::pin(cluster::a_node_that_was_removed_holds_nothing_and_can_join_again(a, b)),
    |a, b| Box::pin(cluster::a_ticket_is_redeemed_once_by_any_handle(a, b)),
    |a, b| Box::pin(cluster::tickets_have_bounds_and_are_withdrawn_by_their_service(a, b)),
];

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

async fn connected(address: &str) -> Connection {
    Connector::new(&settings(address), Use::Write, Some("on")).unwrap().connect().await.unwrap()
}

/// Sends every statement at least once.
async fn send_all(server: &Arc<Server>) {
    let database = async || {
        let server = server.clone();
        blocking(move || server.database("")).await
    };
    for case in CASES {
        let mut store = super::open(&database().await).await;
        store.indexer = Some(Indexer::start(store.readers.clone(), 2));
        store.waits_for_index = true;
        case(&store).await;
        store.settled().await;
    }
    // These are the statements that only faults need, and those that only servers of a cluster send.
    let address = database().await;
    let (store, db) = (super::open(&address).await, connected(&address).await);
    let lease = store.create(&id("s"), "", NOW).await.unwrap();
    let at = AppendAt { lease: lease.clone(), first_seq: 1, append: append_of(["a"]) };
    append::wait_for(&db, &[&at]).await.unwrap();
    append::locked(&db, &[&at]).await.unwrap();
    append::duplicate(&db, &at).await.unwrap();
    store.check_writable().await.unwrap();
    for case in CLUSTER_CASES {
        let address = database().await;
        let (a, b) = (super::open(&address).await, super::open(&address).await);
        case(&a, &b).await;
    }
}

/// Returns the statements that the store has prepared, taken from the log.
fn logged(log: &str) -> BTreeSet<String> {
    let of_store = |entry: &&str| entry.starts_with("reseed@");
    let entries = log.split("\n#").filter(of_store);
    let sent = entries.filter_map(|entry| entry.split_once("execute ")?.1.split_once(": "));
    sent.map(|(_, sql)| one_line(sql)).collect()
}

fn one_line(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the texts in a Rust source that are statements on our tables; `…` replaces inserted parts.
fn written(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code: String =
        source.lines().filter(|line| !line.trim_start().starts_with("//")).fold(String::new(), |mut code, line| {
            code.push_str(line);
            code.push('\n');
            code
        });
    let mut texts = Vec::new();
    // No statement contains a double quote.
    for text in code.replace("'\"'", "").replace("\\\"", "").split('"').skip(1).step_by(2) {
        let text = one_line(&text.replace("\\\n", "\n"));
        let is_statement =
            ["SELECT ", "WITH ", "INSERT ", "UPDATE ", "DELETE "].iter().any(|verb| text.starts_with(verb));
        let tables = LARGE.iter().chain(&["{table}", "removal", "node", "ticket", "deletion"]);
        let of =
            |table: &&&str| ["FROM ", "INTO ", "UPDATE "].iter().any(|word| text.contains(&format!("{word}{table}")));
        if is_statement && tables.clone().any(|table| of(&table)) {
            texts.push(text);
        }
    }
    texts
}

/// Returns true if a statement that matches this text was sent, whatever was inserted.
fn was_sent(text: &str, sent: &BTreeSet<String>) -> bool {
    let parts: Vec<&str> = text
        .split('{')
        .enumerate()
        .map(|(n, part)| if n == 0 { part } else { part.split_once('}').map_or("", |(_, rest)| rest) })
        .collect();
    sent.iter().any(|sql| {
        let Some(mut rest) = sql.strip_prefix(parts[0]) else { return false };
        parts[1..].iter().all(|part| {
            let found = rest.find(part).map(|at| &rest[at + part.len()..]);
            rest = found.unwrap_or(rest);
            found.is_some()
        })
    })
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true if path.ends_with("tests") => Vec::new(),
            true => sources(&path),
            false => vec![path],
        })
        // Statements that run while no server does may read whole tables, and the search for what a deletion has left
        // must.
        .filter(|path| !["schema.rs", "renew.rs", "transfer.rs", "traces.rs"].iter().any(|name| path.ends_with(name)))
        .collect()
}

/// Returns the plan of a statement, one step per line.
async fn plan(db: &Connection, name: &str, sql: &str) -> Vec<String> {
    let parameters = (1..100).take_while(|n| sql.contains(&format!("${n}"))).count();
    db.batch(&format!("PREPARE {name} AS {sql}")).await.unwrap_or_else(|fault| panic!("{sql}: {}", fault.describe()));
    let given = if parameters == 0 { String::new() } else { format!("({})", vec!["NULL"; parameters].join(", ")) };
    let rows = db.rows(&format!("EXPLAIN EXECUTE {name}{given}"), &[]).await;
    let rows = rows.unwrap_or_else(|fault| panic!("{sql}: {}", fault.describe()));
    db.batch(&format!("DEALLOCATE {name}")).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Returns the problems of a plan.
fn faults(sql: &str, plan: &[String]) -> Vec<String> {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let reads = |line: &str, table: &str| {
        line.contains(" Scan") && (line.contains(&format!(" on {table} ")) || line.contains(&format!(" {table}  ")))
    };
    let writes = ["INSERT ", "UPDATE ", "DELETE "].iter().any(|verb| sql.contains(verb));
    let mut faults = Vec::new();
    for (at, line) in plan.iter().enumerate() {
        if line.contains("Seq Scan") && LARGE.iter().any(|table| reads(line, table)) || line.contains("Bitmap") {
            faults.push(line.trim().to_owned());
        }
        let is_sort = line.trim_start().trim_start_matches("->").trim_start().starts_with("Sort");
        if writes && is_sort && !line.contains("Sort Key") {
            let below = plan[at + 1..].iter().take_while(|below| depth(below) > depth(line));
            let over = below.filter(|below| GROWING.iter().any(|table| reads(below, table)));
            faults.extend(over.map(|below| format!("sorts {}", below.trim())));
        }
    }
    faults
}

/// Fills sessions with entries, marks and everything that an index leaves out.
const FILL: &str = "
INSERT INTO session (id, owner, checksum, epoch, timeline, term, name, name_folded, created_at, listed_at, holder)
  SELECT 's' || n, ('o' || n % 20)::bytea, 0, 'e', '00000001', 1, '', '', n, n, CASE WHEN n % 3 = 0 THEN 1 END
  FROM generate_series(1, 1000) n;
INSERT INTO head (session, seq, updated_at, entries, token_count, window_tokens, unpriced_requests, running, bytes,
    checksum, state_checksum)
  SELECT number, 40, number, 30, 0, 0, 0, false, 0, 0, 0 FROM session;
INSERT INTO record (session, seq, checksum, version, follows, entry, parent, kind, body)
  SELECT number, n, 0, 1, n % 4 <> 3, CASE WHEN n % 4 > 0 THEN 'e' || n END,
    CASE WHEN n % 4 > 0 AND n > 1 THEN 'e' || n - 1 END,
    CASE WHEN n % 4 > 0 THEN CASE WHEN n % 8 = 1 THEN 'custom' ELSE 'message' END END, 'x'
  FROM session, generate_series(1, 40) n;
INSERT INTO mark (session, command, fingerprint, reply, checksum)
  SELECT number, 'c' || n, 0, '', 0 FROM session, generate_series(1, 10) n;
INSERT INTO state (session, state, checksum) SELECT number, '', 0 FROM session WHERE number % 10 = 0;
INSERT INTO words (session, first_seq, last_seq, words) SELECT number, 1, 40, 'x' FROM session WHERE number % 2 = 0;
INSERT INTO model_usage (id, at, owner, session, model, purpose, reported, input, cached, cache_write,
    cache_write_hour, output, reasoning, cost_nano_usd)
  SELECT n::text, n::bigint * 1000000, ('o' || n % 20)::bytea, 's' || n % 1000, 'm', 'turn', true, 9, 0, 0, 0, 1, 0, 5
  FROM generate_series(1, 20000) n;
ANALYZE";

/// Creates what appends leave behind while an old snapshot exists.
const BLOAT: &str = "
DO $$ BEGIN FOR n IN 41..60 LOOP
  WITH gone AS (DELETE FROM head RETURNING *)
    INSERT INTO head (session, seq, updated_at, entries, token_count, window_tokens, unpriced_requests, running, bytes,
      checksum, state_checksum)
    SELECT session, seq + 1, updated_at, 30, 0, 0, 0, false, 0, 0, 0 FROM gone;
  UPDATE session SET term = term + 1, listed_at = listed_at + 1;
END LOOP; END $$;
ANALYZE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_is_planned_by_index_whatever_the_statistics_say() {
    let log = "log_statement = 'all'\nlog_parameter_max_length = 0\nlog_line_prefix = '#%a@'\nfsync = off";
    let server = Arc::new(blocking(|| Server::start(log)).await);
    send_all(&server).await;
    let reads = server.clone();
    let statements = logged(&blocking(move || reads.log()).await);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("postgres");
    let in_source: Vec<String> =
        sources(&folder).iter().flat_map(|path| written(&fs::read_to_string(path).unwrap())).collect();
    assert!(in_source.len() > 30, "{in_source:#?}");
    let missing: Vec<&String> = in_source.iter().filter(|text| !was_sent(text, &statements)).collect();
    assert!(missing.is_empty(), "add a case to `CASES` that sends these: {missing:#?}");

    let named = server.clone();
    let address = blocking(move || named.database("")).await;
    drop(super::open(&address).await);
    let (db, old) = (connected(&address).await, connected(&address).await);
    let mut wrong = Vec::new();
    for (state, sql) in [("empty", ""), ("analyzed", FILL), ("bloated", BLOAT)] {
        if state == "bloated" {
            let snapshot = "SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ; \
                            SELECT count(*) FROM session";
            old.batch(snapshot).await.unwrap();
        }
        // It runs as an administrator would run it, without our settings, which make it slow.
        let (filled, name) = (server.clone(), address.rsplit('/').next().unwrap().to_owned());
        blocking(move || filled.sql(&name, &format!("SET search_path = reseed; {sql}"))).await;
        for (n, sql) in statements.iter().enumerate() {
            let is_search = sql.starts_with("SELECT count(*) FROM \"");
            let is_ours = LARGE.iter().any(|table| sql.contains(table)) && !sql.contains("schema_step") && !is_search;
            if is_ours {
                let plan = plan(&db, &format!("p{n}"), sql).await;
                let faults = faults(sql, &plan);
                if !faults.is_empty() {
                    wrong.push(format!("{state}: {faults:?}\n{sql}\n{}", plan.join("\n")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    // The settings of our connections make the difference: without them, this test finds the plans that it looks for.
    db.batch("SET enable_seqscan = on; SET enable_bitmapscan = on").await.unwrap();
    let mut found = 0;
    for (n, sql) in
        statements.iter().enumerate().filter(|(_, sql)| sql.contains("head") && !sql.contains("schema_step"))
    {
        found += usize::from(!faults(sql, &plan(&db, &format!("q{n}"), sql).await).is_empty());
    }
    assert!(found > 0, "no plan is wrong without our settings");
}
