//! `reseed migrate` between real databases: in both directions, killed on the way, refused while a server uses either
//! database, and as a client of a server on the target sees it.

use crate::support::{
    binary::{Binary, Ended, logged, run},
    client::Client,
    fixed,
    json::present,
    postgres,
};
use reseed::store::{
    Append, CommandMark, EntryColumns, Head, NewRecord, Secret, SessionStore, sqlite::SqliteStore, whole_mark,
};
use reseed_protocol::{EntryId, SessionId, Timestamp};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    process::Command,
    sync::Notify,
};

const NOW: Timestamp = Timestamp(1_795_243_504_123);

/// Settings of every server and command here.
const SETTINGS: [(&str, &str); 4] =
    [("UNSAFE_STORE", "true"), ("STORE_PATIENCE_SECS", "60"), ("NODE_LEASE_SECS", "2"), ("OFFLINE_WORD_MILLIS", "0")];

async fn database() -> String {
    tokio::task::spawn_blocking(postgres::database).await.unwrap()
}

async fn sql(address: &str, sql: &'static str) -> String {
    let name = address.rsplit('/').next().unwrap().to_owned();
    tokio::task::spawn_blocking(move || postgres::sql(&name, sql)).await.unwrap()
}

fn sqlite(path: &Path) -> String {
    format!("sqlite://{}", path.display())
}

async fn migrate(folder: &Path, from: &str, to: &str) -> Ended {
    run(folder, &["migrate", from, to], &SETTINGS).await
}

/// Migrates and returns what is printed.
async fn migrated(folder: &Path, from: &str, to: &str) -> String {
    let ended = migrate(folder, from, to).await;
    assert_eq!(ended.code, Some(0), "{from} to {to}: {ended:?}");
    ended.printed
}

/// Returns the line of a report that begins with this word.
fn line<'a>(report: &'a str, word: &str) -> &'a str {
    report.lines().find(|line| line.starts_with(word)).unwrap_or_else(|| panic!("no {word} in {report}"))
}

async fn serve(folder: &Path, address: &str) -> Binary {
    let mut settings = SETTINGS.to_vec();
    settings.push(("DATABASE_URL", address));
    Binary::start(folder, &settings).await
}

fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

/// A message `entry` below `parent` with this body.
fn message(entry: &str, parent: Option<&str>, body: &str) -> NewRecord {
    let columns = EntryColumns { entry_id: id(entry), parent_id: parent.map(id), kind: "message".into() };
    NewRecord { body: body.into(), entry: Some(columns) }
}

/// Fills a file with sessions: many small ones, and one with branches, whole tool results, odd texts and a large state.
async fn filled(path: &Path, small: u32) {
    let store = SqliteStore::open(path).unwrap();
    let session: SessionId = id("odd");
    let lease = store.create_once(&session, "ann\u{0}é", Some(&id("command-that-created-it")), NOW).await.unwrap();
    drop(lease);
    let (lease, _) = store.open(&session).await.unwrap();
    let whole: EntryId = id("b");
    let marks =
        [("command-000000001", "{\"type\":\"ok\"}".to_owned()), (&whole_mark(&whole), "é\u{0}".repeat(300_000))];
    let marks = marks.map(|(command, reply)| CommandMark {
        command_id: command.to_owned(),
        fingerprint: u64::MAX,
        reply: reply.into(),
    });
    let records = vec![
        NewRecord { body: "{\"type\":\"odd\",\"payload\":\"\\u0000 \u{0} 🦀\"}".into(), entry: None },
        message("a", None, "{ \"spaces\" :  1 }"),
        message("b", Some("a"), &"x".repeat(5_000_000)),
        message("c", Some("a"), "a second branch"),
        message("d", Some("gone"), "an orphan"),
    ];
    let head = Head {
        name: "Straße\u{0}".to_owned(),
        created_at: NOW,
        updated_at: Timestamp(NOW.0 + 7),
        entries: 4,
        token_count: 12,
        window_tokens: 4096,
        cost_nano_usd: Some(5),
        unpriced_requests: 2,
        running: true,
        state: Some("é".repeat(4000).into()),
    };
    store.append(&lease, 1, Append { records, marks: marks.into(), usage: Vec::new(), head }).await.unwrap();
    for n in 0..small {
        let session: SessionId = id(&format!("small-{n:04}"));
        let lease = store.create(&session, "bob", Timestamp(NOW.0 + i64::from(n))).await.unwrap();
        let records = vec![message("a", None, &format!("first of {n}")), message("b", Some("a"), "second")];
        let head = Head { updated_at: NOW, state: Some("{}".into()), ..Head::default() };
        store.append(&lease, 1, Append { records, marks: Vec::new(), usage: Vec::new(), head }).await.unwrap();
    }
    store.secret("seal", Secret([7; 32])).await.unwrap();
    store.close().await.unwrap();
}

/// Everything that a file holds of its sessions, except for numbers, epochs and the checksums that cover them.
fn dump(path: &Path) -> Vec<String> {
    let db = rusqlite::Connection::open(path).unwrap();
    let mut rows = Vec::new();
    for sql in [
        "SELECT id, owner, term, last_seq, name, name_folded, created_at, updated_at, entries, token_count, \
         window_tokens, running, last_entry, cost_nano_usd, unpriced_requests, created_by, bytes, t.state, t.checksum \
         FROM session s JOIN session_state t ON t.session = s.number ORDER BY id",
        "SELECT s.id, seq, version, r.checksum, entry, parent, kind, body, follows FROM record r \
         JOIN session s ON s.number = r.session ORDER BY s.id, seq",
        "SELECT s.id, command, fingerprint, reply, m.checksum FROM mark m JOIN session s ON s.number = m.session \
         ORDER BY s.id, command",
        "SELECT owner, sessions, empty, bytes FROM usage ORDER BY owner",
        "SELECT (SELECT count(*) FROM record), (SELECT count(*) FROM mark), (SELECT count(*) FROM deletion)",
        "SELECT name, value FROM secret",
    ] {
        let mut statement = db.prepare(sql).unwrap();
        let columns = statement.column_count();
        let mut found = statement.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            rows.push((0..columns).map(|column| format!("{:?} ", row.get_ref(column).unwrap())).collect());
        }
    }
    rows
}

/// Compares two files; a difference is shown in part.
fn assert_same(left: &Path, right: &Path) {
    let (left, right) = (dump(left), dump(right));
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(&right) {
        let start = |text: &str| text.chars().take(500).collect::<String>();
        assert!(left == right, "{} is not {}", start(left), start(right));
    }
}

#[tokio::test]
async fn sessions_come_back_from_postgresql_as_they_went_there() {
    let folder = tempfile::tempdir().unwrap();
    let (from, back) = (folder.path().join("from.db"), folder.path().join("back.db"));
    filled(&from, 50).await;
    let (first, second) = (database().await, database().await);
    // The address, with its password, can be in a file.
    std::fs::write(folder.path().join("address"), format!("{}\n", first.replace("reseed@", "reseed:hunter2@")))
        .unwrap();
    for (from, to) in [(&*sqlite(&from), "@address"), ("@address", &second), (&second, &sqlite(&back))] {
        let ended = migrate(folder.path(), from, to).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.printed.contains("51 sessions, 105 records, 2 commands' marks"), "{ended:?}");
        assert!(ended.faults.contains("51 sessions, ") && ended.faults.contains(" records/s"), "{ended:?}");
        assert!(ended.faults.contains("backup"), "{ended:?}");
        assert!(!format!("{ended:?}").contains("hunter2"), "{ended:?}");
    }
    assert_same(&from, &back);
    let epochs = "SELECT string_agg(epoch, ' ') FROM reseed.session";
    assert_ne!(sql(&first, epochs).await, sql(&second, epochs).await, "no log has the name of another one");
    let ended = migrate(folder.path(), &sqlite(&from), &second).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.faults.contains("already holds sessions (51)"), "{ended:?}");
}

#[tokio::test]
async fn a_client_goes_on_with_its_session_on_the_other_database() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (sqlite(&folder.path().join("first.db")), sqlite(&folder.path().join("second.db")));
    let database = database().await;
    let server = serve(folder.path(), &first).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let session = present(&opened["sessionId"]).clone();
    let named = client.id();
    client.send_as(&named, "rename_session", json!({ "name": "Miso" })).await;
    client.turn("My cat is called Miso.").await;
    client.turn("It likes tea.").await;
    let mut resume = json!({ "epoch": opened["epoch"], "seq": client.newest_seq() });
    // It is refused while a server uses the source.
    let ended = migrate(folder.path(), &first, &database).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.faults.contains("open the source") && ended.faults.contains("in use by process"), "{ended:?}");
    server.stop().await;
    let mut from = first;
    for (to, said) in [(&database, "It also likes milk."), (&second, "And fish.")] {
        migrated(folder.path(), &from, to).await;
        let server = serve(folder.path(), to).await;
        let mut client = Client::v2(&server.ws()).await;
        let open = json!({ "sessionId": session, "resume": resume, "entries": 50 });
        let back = client.ask("open_session", open).await;
        // The log has another epoch here, so the client gets all of it instead of what follows.
        assert_eq!(back["payload"]["resumed"], "snapshot", "{back}");
        assert_ne!(present(&back["payload"]["epoch"]), present(&resume["epoch"]), "{back}");
        let texts = present(&back["payload"]["entries"]).to_string();
        assert!(texts.contains("called Miso") && texts.contains("likes tea"), "{back}");
        // A command that was executed before is not executed again.
        client.send_as(&named, "rename_session", json!({ "name": "Miso" })).await;
        let again = client.until(|frame| frame["re"] == named.as_str()).await;
        assert_eq!(again["payload"]["duplicate"], true, "{again}");
        client.turn(said).await;
        let found = client.ask("search_history", json!({ "query": "tea" })).await;
        assert!(found["payload"]["items"].as_array().is_some_and(|items| !items.is_empty()), "{found}");
        resume = json!({ "epoch": back["payload"]["epoch"], "seq": client.newest_seq() });
        if *to == database {
            // It is refused while a server uses the source, which the database itself does not prevent.
            let ended = migrate(folder.path(), to, &second).await;
            assert_eq!(ended.code, Some(1), "{ended:?}");
            assert!(ended.faults.contains("the source is in use by server"), "{ended:?}");
        }
        server.stop().await;
        from.clone_from(to);
    }
    assert!(!logged(folder.path()).contains("Miso"), "the log holds no text");
}

/// A proxy before PostgreSQL that lets this many bytes of requests pass, and then nothing more.
struct Dam {
    folder: tempfile::TempDir,
    full: Arc<Notify>,
}

impl Dam {
    fn after(bytes: i64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let (left, full) = (Arc::new(AtomicI64::new(bytes)), Arc::<Notify>::default());
        let server = postgres::socket();
        let told = full.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server.clone(), left.clone(), told.clone()));
            }
        });
        Self { folder, full }
    }

    fn address(&self, database: &str) -> String {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://reseed@{folder}/{}", database.rsplit('/').next().unwrap())
    }
}

async fn pass(client: UnixStream, server: PathBuf, left: Arc<AtomicI64>, full: Arc<Notify>) {
    let server = UnixStream::connect(server).await.unwrap();
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let answers = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut bytes = vec![0; 8 * 1024];
    while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
        if left.fetch_sub(count as i64, Ordering::SeqCst) < count as i64 {
            full.notify_one();
            // This waits until the process is killed.
            std::future::pending::<()>().await;
        }
        to_server.write_all(&bytes[..count]).await.unwrap();
    }
    answers.abort();
}

/// Starts a migration through a dam and kills it when the dam is full.
async fn killed(folder: &Path, from: &str, to: &str, bytes: i64) {
    let dam = Dam::after(bytes);
    let mut command = Command::new(env!("CARGO_BIN_EXE_reseed"));
    command.args(["migrate", from, &dam.address(to)]).current_dir(folder).env_clear().envs(fixed::variables(&SETTINGS));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    tokio::select! {
        () = dam.full.notified() => child.kill().await.unwrap(),
        ended = child.wait() => panic!("{bytes}: it ended: {ended:?}"),
    }
}

#[tokio::test]
async fn a_migration_that_is_killed_leaves_a_target_that_nothing_uses() {
    let folder = tempfile::tempdir().unwrap();
    let (from, back) = (folder.path().join("from.db"), folder.path().join("back.db"));
    filled(&from, 200).await;
    let before = dump(&from);
    let part = database().await;
    // These points are in the large session, which takes 5.9 MB, and among the small ones behind it.
    for bytes in [3_000_000, 5_970_000] {
        killed(folder.path(), &sqlite(&from), &part, bytes).await;
        assert!(dump(&from) == before, "the source is as it was");
        // No server starts on an incomplete migration, and no command mistakes it for a complete one.
        for arguments in [&["import", "x.jsonl"][..], &["check"], &["sessions"], &["restored"]] {
            let ended = run(folder.path(), arguments, &[SETTINGS[0], ("DATABASE_URL", &part)]).await;
            assert_eq!(ended.code, Some(1), "{ended:?}");
            assert!(ended.faults.contains("is not complete, so it cannot be used"), "{ended:?}");
        }
        for (from, to) in [(&sqlite(&from), &part), (&part, &sqlite(&back))] {
            let ended = migrate(folder.path(), from, to).await;
            assert!(ended.faults.contains("is not complete, so it cannot be used"), "{ended:?}");
        }
        sql(&part, "DROP SCHEMA reseed CASCADE").await;
    }
    migrated(folder.path(), &sqlite(&from), &part).await;
    migrated(folder.path(), &part, &sqlite(&back)).await;
    assert_same(&from, &back);
}

#[tokio::test]
async fn damage_is_named_and_a_database_in_memory_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from.db");
    filled(&from, 3).await;
    let (first, second) = (database().await, database().await);
    migrated(folder.path(), &sqlite(&from), &first).await;
    let damage = "UPDATE reseed.record SET body = 'private' WHERE session = (SELECT number FROM reseed.session \
                  WHERE id = 'small-0001') AND seq = 2";
    sql(&first, damage).await;
    let ended = migrate(folder.path(), &first, &second).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let said = "record 2 of session `small-0001` is damaged: checksum mismatch";
    assert!(ended.faults.contains(said) && ended.faults.contains("--skip-damaged"), "{ended:?}");
    assert!(!format!("{ended:?}").contains("private"), "{ended:?}");
    sql(&second, "DROP SCHEMA reseed CASCADE").await;
    let ended = run(folder.path(), &["migrate", "--skip-damaged", &first, &second], &SETTINGS).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(line(&ended.printed, "left out").contains(said), "{ended:?}");
    assert!(line(&ended.printed, "verified").contains(" 3 sessions"), "{ended:?}");
    for (from, to, said) in [
        ("memory:", &*first, "cannot be read by another process"),
        (&*first, "memory:", "cannot be read by another process"),
        (&*first, &*first, "is both the source and the target"),
        ("mysql://ann:hunter22@host/x", &*first, "allowed are `sqlite://`"),
        ("host=127.0.0.1 user=reseed password=hunter22 dbname=reseed", &*first, "allowed are `sqlite://`"),
        ("postgres//reseed:hunter22@127.0.0.1/reseed", &*first, "allowed are `sqlite://`"),
        ("postgres://reseed:hun?ter22@127.0.0.1/reseed", &*first, "percent-encoded"),
        ("data/reseed.db", &*first, "`data/reseed.db` is of no supported form"),
        ("@missing", &*first, "read the file missing"),
        ("@postgres://reseed:hunter22@127.0.0.1/reseed", &*first, "read the file whose name is behind `@`"),
    ] {
        let ended = migrate(folder.path(), from, to).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.faults.contains(said), "{said}: {ended:?}");
        for part in ["hun", "ter22", "`memory:`"] {
            assert!(!ended.faults.contains(part), "{said}: {ended:?}");
        }
    }
    let help = run(folder.path(), &["migrate", "--help"], &[]).await.printed;
    for word in ["backup", "starts over", "--skip-damaged", "@FILE"] {
        assert!(help.contains(word), "{word}: {help}");
    }
}
