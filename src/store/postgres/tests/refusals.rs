//! Databases that are refused, and damage that is reported.

use super::{
    super::{
        OpenError, PostgresStore, SchemaError,
        connection::{Connector, Use},
    },
    database, open, server, settings,
};
use crate::{
    EntryQuery, Error, ListQuery, NodeId, Part, Postgres, SessionStore as _,
    conformance::{NOW, append, append_of, entry, id},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

async fn sql(address: &str, sql: &'static str) -> String {
    let name = address.rsplit('/').next().unwrap().to_owned();
    tokio::task::spawn_blocking(move || server::sql(&name, sql)).await.unwrap()
}

async fn refusal(settings: &Postgres) -> OpenError {
    PostgresStore::open(settings, |_| {}).await.err().expect("it is refused")
}

#[tokio::test]
async fn a_server_that_may_lose_what_it_has_acknowledged_is_refused() {
    let address = database("").await;
    let strict = Postgres { allows_unsafe: false, ..settings(&address) };
    let error = refusal(&strict).await;
    let OpenError::Schema(SchemaError::Unsafe { setting, value, .. }) = &error else { panic!("{error}") };
    assert_eq!((setting.as_str(), value.as_str()), ("fsync", "off"));
    assert!(error.to_string().contains("set it to `on`"), "{error}");
}

#[tokio::test]
async fn a_newer_database_and_a_missing_one_are_refused() {
    let address = database("").await;
    let store = open(&address).await;
    // A second server may open it.
    open(&address).await.close().await.unwrap();
    // Another schema is another store.
    let other = Postgres { schema: "other".to_owned(), ..settings(&address) };
    PostgresStore::open(&other, |_| {}).await.unwrap().close().await.unwrap();
    store.close().await.unwrap();
    open(&address).await.close().await.unwrap();

    // A request to stop a server changes no tables, and accepts older ones that include servers.
    let drains = async || PostgresStore::open_for_nodes(&settings(&address)).await;
    let steps = "DROP TABLE reseed.deletion, reseed.secret, reseed.model_usage, reseed.minute; DELETE FROM reseed.schema_step WHERE step >= 4";
    sql(&address, steps).await;
    let store = drains().await.unwrap();
    assert_eq!(store.cluster().unwrap().nodes().await.unwrap(), []);
    assert!(!store.cluster().unwrap().ask_to_drain(NodeId(1)).await.unwrap());
    let tables = sql(&address, "SELECT count(*) FROM reseed.schema_step").await;
    assert_eq!(tables.trim(), "4", "nothing is brought up to date");
    sql(&address, "DELETE FROM reseed.schema_step WHERE step >= 2").await;
    assert!(matches!(drains().await.err().unwrap(), OpenError::Schema(SchemaError::Missing { .. })));
    sql(&address, "INSERT INTO reseed.schema_step (step) VALUES (99)").await;
    assert!(matches!(drains().await.err().unwrap(), OpenError::Schema(SchemaError::Newer { found: 100, .. })));
    let error = refusal(&settings(&address)).await;
    assert!(matches!(error, OpenError::Schema(SchemaError::Newer { found: 100, .. })), "{error}");

    // During a rolling update, older servers start beside newer ones if the new steps are harmless to them.
    sql(&address, "DELETE FROM reseed.schema_step WHERE step = 99").await;
    sql(&address, "INSERT INTO reseed.schema_step (step) VALUES (2), (3)").await;
    open(&address).await.close().await.unwrap();
    let crash_safe = sql(&address, "SELECT relpersistence FROM pg_class WHERE oid = 'reseed.deletion'::regclass").await;
    assert_eq!(crash_safe.trim(), "p");
    sql(&address, "INSERT INTO reseed.schema_step (step, harmless) VALUES (9, true), (10, true)").await;
    open(&address).await.close().await.unwrap();
    drains().await.unwrap();
    PostgresStore::open_read_only(&settings(&address)).await.unwrap().close().await.unwrap();
    let copied = PostgresStore::open_source(&settings(&address)).await.map(drop);
    assert!(matches!(copied, Err(OpenError::Schema(SchemaError::Newer { found: 11, .. }))), "{copied:?}");
    sql(&address, "INSERT INTO reseed.schema_step (step) VALUES (11)").await;
    let error = refusal(&settings(&address)).await;
    assert!(matches!(error, OpenError::Schema(SchemaError::Newer { found: 12, .. })), "{error}");
    let empty = Postgres { schema: "nothing".to_owned(), ..settings(&address) };
    let error = PostgresStore::open_read_only(&empty).await.err().unwrap();
    assert!(matches!(error, OpenError::Schema(SchemaError::Missing { .. })), "{error}");
    let error = refusal(&settings(&format!("{address}-gone"))).await;
    assert!(error.to_string().contains("3D000"), "{error}");
}

#[tokio::test]
async fn the_check_finds_what_a_start_would_refuse() {
    let address = database("").await;
    sql(&address, "CREATE ROLE limited LOGIN").await;
    let limited = settings(&address.replace("reseed@", "limited@"));
    let checked = async || PostgresStore::describe(&limited).await;
    let refused = refusal(&limited).await.to_string();
    assert!(refused.contains("42501"), "{refused}");
    for error in [refused, checked().await.unwrap_err().to_string()] {
        assert!(error.contains("create the schema with `CREATE SCHEMA \"reseed\" AUTHORIZATION …`"), "{error}");
    }
    sql(&address, "CREATE SCHEMA reseed AUTHORIZATION limited").await;
    checked().await.unwrap();
    let tables = sql(&address, "SELECT count(*) FROM pg_tables WHERE schemaname = 'reseed'").await;
    assert_eq!(tables.trim(), "0", "the check changes nothing");
    PostgresStore::open(&limited, |_| {}).await.unwrap().close().await.unwrap();
    checked().await.unwrap();

    // This is the target of an incomplete migration.
    sql(&address, "CREATE TABLE reseed.migration (source bytea)").await;
    let of_reader = PostgresStore::open_read_only(&limited).await.err().unwrap();
    for error in [refusal(&limited).await, of_reader, checked().await.unwrap_err()] {
        assert!(matches!(error, OpenError::Schema(SchemaError::Migrating { .. })), "{error}");
    }
    sql(&address, "DROP TABLE reseed.migration; INSERT INTO reseed.schema_step (step) VALUES (99)").await;
    for error in [refusal(&limited).await, checked().await.unwrap_err()] {
        assert!(matches!(error, OpenError::Schema(SchemaError::Newer { found: 100, .. })), "{error}");
    }
}

#[tokio::test]
async fn rows_that_do_not_read_back_as_written_are_damaged() {
    let address = database("").await;
    let store = open(&address).await;
    for session in ["s", "t"] {
        let lease = store.create(&id(session), "ann", NOW).await.unwrap();
        store.append(&lease, 1, append(vec![entry("e1", ""), entry("e2", "e1"), entry("e3", "e2")])).await.unwrap();
    }
    let number = "(SELECT number FROM reseed.session WHERE id = 's')";
    let damaged = |part| Error::Damaged { session: id("s"), part, reason: "checksum mismatch" };
    let sql = async |text: String| {
        let name = address.rsplit('/').next().unwrap().to_owned();
        tokio::task::spawn_blocking(move || server::sql(&name, &text)).await.unwrap()
    };
    sql(format!("UPDATE reseed.record SET body = 'other' WHERE seq = 2 AND session = {number}")).await;
    assert_eq!(store.read(&id("s"), 0, 9).await.unwrap_err(), damaged(Part::Record(2)));
    let path = EntryQuery::Path { from: id("e3"), limit: 9 };
    assert_eq!(store.entries(&id("s"), path.clone()).await.unwrap_err(), damaged(Part::Record(2)));
    assert_eq!(store.read(&id("t"), 0, 9).await.unwrap().len(), 3);

    // An entry that followed a lost one is not a root.
    sql(format!("DELETE FROM reseed.record WHERE seq = 2 AND session = {number}")).await;
    for result in [
        store.read(&id("s"), 0, 9).await,
        store.entries(&id("s"), path).await,
        store.entries(&id("s"), EntryQuery::Children { of: Some(id("e1")), after_seq: 0, limit: 9 }).await,
    ] {
        assert!(matches!(result, Err(Error::Damaged { part: Part::Record(_), .. })), "{result:?}");
    }

    sql(format!("UPDATE reseed.head SET entries = 77 WHERE session = {number}")).await;
    assert_eq!(store.head(&id("s")).await.unwrap_err(), damaged(Part::Head));
    assert_eq!(store.open(&id("s")).await.unwrap_err(), damaged(Part::Head));
    let page = store.list(ListQuery { limit: 9, ..ListQuery::default() }).await.unwrap();
    assert_eq!((page.items.len(), page.damaged), (1, vec![id("s")]));
    // If the stored state is damaged, the log is folded again.
    let lease = store.open(&id("t")).await.unwrap().0;
    let mut with_state = append_of(["x"]);
    with_state.head.state = Some("{}".into());
    store.append(&lease, 4, with_state).await.unwrap();
    assert!(store.head(&id("t")).await.unwrap().head.state.is_some());
    sql("UPDATE reseed.head SET state = 'other' WHERE state IS NOT NULL".to_owned()).await;
    assert_eq!(store.head(&id("t")).await.unwrap().head.state, None);
}

/// Returns the address of a host that refuses every client with this SQLSTATE code; with `None`, nothing listens there.
async fn host(code: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    if let Some(code) = code {
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let fields = format!("SFATAL\0VFATAL\0C{code}\0Mno\0\0");
                let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
                // The client may not wait for the answer.
                let _ = client.read(&mut [0; 1024]).await;
                let _ = client.write_all(&[b"E", length.as_slice(), fields.as_bytes()].concat()).await;
            }
        });
    }
    address
}

#[tokio::test]
async fn the_error_comes_from_the_host_that_is_worth_waiting_for() {
    let (starting, forbidden, unknown) = (Some("57P03"), Some("28000"), Some("3D000"));
    for (hosts, passes, says) in [
        ([None, None], true, "Connection refused"),
        ([None, starting], true, "57P03"),
        ([starting, None], true, "57P03"),
        // This host refuses for good, but the other one may come back.
        ([None, forbidden], true, "Connection refused"),
        ([forbidden, None], true, "Connection refused"),
        ([starting, forbidden], true, "57P03"),
        ([forbidden, starting], true, "57P03"),
        ([forbidden, unknown], false, "3D000"),
    ] {
        let addresses = [host(hosts[0]).await, host(hosts[1]).await].join(",");
        let settings = settings(&format!("postgres://reseed@{addresses}/reseed?sslmode=disable"));
        let connector = Connector::new(&settings, Use::Write, None).unwrap();
        let fault = connector.connect().await.err().expect("no host lets anybody in");
        assert_eq!(fault.is_passing(), passes, "{hosts:?}: {}", fault.describe());
        assert!(fault.describe().contains(says), "{hosts:?}: {}", fault.describe());
    }
}
