//! The tables, and the migrations that bring an older database up to date.
//!
//! Step n of [`STEPS`] leads to version n + 1. A released step never changes, and steps only add, so that two versions
//! of the server can share the tables: see [`HARMLESS`]. What people and models wrote is stored as `bytea`,
//! because a text may hold NUL and the database may have any encoding; ids and names of the server's own are ASCII, and
//! are `text`. There are no foreign keys, because they lock a row and run a trigger for each record.

use super::{
    connection::Connection,
    fault::{Fault, describe},
};
use tokio_postgres::error::SqlState;

/// The newest version of the tables that this program supports.
pub(super) const VERSION: i32 = STEPS.len() as i32;

/// The oldest PostgreSQL that has every feature we use.
const SERVER_VERSION_MIN: i32 = 140_000;

/// Step 0: a session's row changes when it is opened or renamed, and at most once a minute while it is written to.
/// (`listed_at` is indexed, so that no column that changes with each append has to be.) Its head is deleted and
/// inserted with each append instead of updated: while an old snapshot exists, a row that is updated thousands of times
/// becomes a chain that every append walks. A state of more than 2 KB has a row of its own, so that not every append
/// copies it.
///
/// Step 1: the words of entries, in blocks (see `history.rs`).
///
/// Step 2: the servers that share the tables, and which of them holds a session (see `nodes.rs`).
///
/// Step 3: unused tickets (see `tickets.rs`).
///
/// Step 4: recently deleted sessions (see `changes.rs`). Servers that do not know the table neither read nor write it.
/// The only effect is that watchers of a list are not notified of what those servers delete.
///
/// Step 5: the rows of step 4 survive a crash of the database. A published table without a primary key allows deletions
/// only if it has another replica identity.
///
/// Step 6: secrets that the servers share. Servers that do not know the table have secrets of their own.
///
/// Step 7: what requests to models cost (see `spending.rs`). Servers that do not know the table do not record theirs.
///
/// Step 8: what each server counted in each minute of the last week (see `minutes.rs`). Servers that do not know the
/// table have no rows in it.
const STEPS: &[&str] = &[
    r#"
CREATE TABLE session (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE, owner bytea NOT NULL,
  checksum bigint NOT NULL, created_by text COLLATE "C", epoch text COLLATE "C" NOT NULL, timeline text NOT NULL,
  term bigint NOT NULL, name bytea NOT NULL, name_folded bytea NOT NULL, created_at bigint NOT NULL,
  listed_at bigint NOT NULL) WITH (fillfactor = 80);
CREATE INDEX session_recent ON session (listed_at, number);
CREATE INDEX session_recent_of_owner ON session (owner, listed_at, number);
CREATE UNIQUE INDEX session_created_by ON session (owner, created_by) WHERE created_by IS NOT NULL;
CREATE TABLE head (
  session bigint NOT NULL, seq bigint NOT NULL, last_entry text COLLATE "C", updated_at bigint NOT NULL,
  entries bigint NOT NULL, token_count bigint NOT NULL, window_tokens bigint NOT NULL, cost_nano_usd bigint,
  unpriced_requests bigint NOT NULL, running boolean NOT NULL, bytes bigint NOT NULL, checksum bigint NOT NULL,
  state bytea, state_checksum bigint NOT NULL, PRIMARY KEY (session, seq))
  WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX head_empty ON head (session) WHERE seq < 2;
CREATE TABLE state (session bigint PRIMARY KEY, state bytea NOT NULL, checksum bigint NOT NULL);
CREATE TABLE record (
  session bigint NOT NULL, seq bigint NOT NULL, checksum bigint NOT NULL, version smallint NOT NULL,
  follows boolean NOT NULL, entry text COLLATE "C", parent text COLLATE "C", kind text COLLATE "C", body bytea NOT NULL,
  PRIMARY KEY (session, seq));
CREATE UNIQUE INDEX record_entry ON record (session, entry) WHERE entry IS NOT NULL;
CREATE INDEX record_parent ON record (session, parent, seq) WHERE parent IS NOT NULL AND NOT follows;
CREATE INDEX record_root ON record (session, seq) WHERE parent IS NULL AND entry IS NOT NULL;
CREATE INDEX record_kind ON record (session, kind, seq) WHERE kind <> 'message';
CREATE TABLE mark (
  session bigint NOT NULL, command text COLLATE "C" NOT NULL, fingerprint bigint NOT NULL, reply bytea NOT NULL,
  checksum bigint NOT NULL, PRIMARY KEY (session, command));
CREATE TABLE removal (session bigint PRIMARY KEY);
"#,
    r"
CREATE TABLE words (
  session bigint NOT NULL, first_seq bigint NOT NULL, last_seq bigint NOT NULL, words bytea NOT NULL,
  PRIMARY KEY (session, first_seq));
",
    r"
CREATE TABLE node (
  incarnation bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL, address text, version text NOT NULL,
  lease_millis bigint NOT NULL, beat bigint NOT NULL DEFAULT 1, draining boolean NOT NULL DEFAULT false,
  sessions bigint NOT NULL DEFAULT 0, connections bigint NOT NULL DEFAULT 0,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  beat_at timestamptz NOT NULL DEFAULT clock_timestamp()) WITH (fillfactor = 50);
ALTER TABLE session ADD COLUMN holder bigint;
CREATE INDEX session_holder ON session (holder) WHERE holder IS NOT NULL;
",
    r#"
CREATE UNLOGGED TABLE ticket (
  hash bytea PRIMARY KEY, id text COLLATE "C" NOT NULL, owner bytea NOT NULL, service bytea, body bytea NOT NULL,
  made_at timestamptz NOT NULL, expires_at timestamptz NOT NULL);
"#,
    r#"
CREATE UNLOGGED TABLE deletion (
  id text COLLATE "C" NOT NULL, owner bytea NOT NULL, deleted_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX deletion_recent ON deletion (deleted_at);
"#,
    "ALTER TABLE deletion SET LOGGED, REPLICA IDENTITY FULL",
    r#"
CREATE TABLE secret (
  name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp());
"#,
    r#"
CREATE TABLE model_usage (
  number bigint GENERATED ALWAYS AS IDENTITY, id text COLLATE "C" PRIMARY KEY, at bigint NOT NULL,
  owner bytea NOT NULL, session text COLLATE "C" NOT NULL, model bytea NOT NULL, purpose text COLLATE "C" NOT NULL,
  reported boolean NOT NULL, input bigint NOT NULL, cached bigint NOT NULL, cache_write bigint NOT NULL,
  cache_write_hour bigint NOT NULL, output bigint NOT NULL, reasoning bigint NOT NULL, cost_nano_usd bigint);
CREATE UNIQUE INDEX model_usage_number ON model_usage (number);
CREATE INDEX model_usage_at ON model_usage (at);
CREATE INDEX model_usage_of_owner ON model_usage (owner, at);
CREATE INDEX model_usage_of_session ON model_usage (session, at);
"#,
    r#"
CREATE TABLE minute (
  minute bigint NOT NULL, process text COLLATE "C" NOT NULL, body bytea NOT NULL, PRIMARY KEY (minute, process));
"#,
];

/// Steps that are harmless to servers that do not know them: those servers neither miss nor damage anything. The
/// database stores this flag with the step, so that an older version can start beside newer servers during a rolling
/// update. Any other step keeps older versions from starting.
const HARMLESS: &[usize] = &[4, 5, 6, 7, 8];

/// If the server has lz4, bodies are compressed in a quarter of the time.
const COMPRESSION: &str = "
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)) THEN
    ALTER TABLE record ALTER body SET COMPRESSION lz4;
    ALTER TABLE head ALTER state SET COMPRESSION lz4;
    ALTER TABLE state ALTER state SET COMPRESSION lz4;
  END IF;
END $$";

/// The reason a database cannot be used as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The server is too old.
    #[error("the server is PostgreSQL {found}; 14 or newer is needed")]
    Server {
        /// The major version found.
        found: i32,
    },
    /// The tables were made by a newer program.
    #[error(
        "its tables have version {found}, with changes that this program, which knows version {known}, cannot work \
         with: run a newer one"
    )]
    Newer {
        /// The version of the tables.
        found: i32,
        /// The newest version known.
        known: i32,
    },
    /// The tables are missing or older, and the database is open read-only.
    #[error("it has no tables of this version in the schema `{schema}`; the server creates them when it starts")]
    Missing {
        /// The schema.
        schema: String,
    },
    /// A migration into the schema is not complete: it holds only some of the sessions.
    #[error(
        "a migration into the schema `{schema}` is not complete, so it cannot be used: drop it, and run \
         `reseed migrate` again into an empty one"
    )]
    Migrating {
        /// The schema.
        schema: String,
    },
    /// The server may lose acknowledged writes.
    #[error("`{setting}` is `{value}` on the server, so it may lose what it has acknowledged; set it to `{wanted}`")]
    Unsafe {
        /// The server's setting.
        setting: String,
        /// Its value.
        value: String,
        /// The value that it must have.
        wanted: &'static str,
    },
    /// The database aborted the change of the tables, because another program held a lock that it needed.
    #[error("{0}; another program uses the tables, so try again")]
    Contended(String),
    /// The database failed.
    #[error("{0}")]
    Failed(String),
}

impl From<Fault> for SchemaError {
    fn from(fault: Fault) -> Self {
        match &fault {
            Fault::Database(error)
                if matches!(error.code(), Some(&SqlState::T_R_DEADLOCK_DETECTED | &SqlState::LOCK_NOT_AVAILABLE)) =>
            {
                Self::Contended(fault.describe())
            }
            _ => Self::Failed(fault.describe()),
        }
    }
}

/// Checks that the server is new enough and keeps what it acknowledges. With `allows_unsafe`, an unsafe setting is
/// logged instead of refused.
pub(super) async fn check_server(db: &Connection, allows_unsafe: bool) -> Result<(), SchemaError> {
    let rows = db
        .rows(
            "SELECT current_setting('server_version_num')::int, current_setting('fsync'), \
             current_setting('full_page_writes'), current_setting('synchronous_commit')",
            &[],
        )
        .await?;
    let row = rows.first().ok_or_else(|| SchemaError::Failed("it does not tell its settings".to_owned()))?;
    let version: i32 = row.get(0);
    if version < SERVER_VERSION_MIN {
        return Err(SchemaError::Server { found: version / 10_000 });
    }
    let settings = [("fsync", 1, "on"), ("full_page_writes", 2, "on"), ("synchronous_commit", 3, "on")];
    for (setting, column, wanted) in settings {
        let value: String = row.get(column);
        // With standbys, `remote_apply` waits for even more than `on`.
        if value == wanted || value == "remote_apply" {
            continue;
        }
        if !allows_unsafe {
            return Err(SchemaError::Unsafe { setting: setting.to_owned(), value, wanted });
        }
        tracing::warn!(setting, value, "unsafe_store is on: a crash may lose what is acknowledged");
    }
    Ok(())
}

/// Returns the version of the tables; 0 if there are none.
pub(super) async fn version(db: &Connection, schema: &str) -> Result<i32, Fault> {
    let found = db.rows("SELECT to_regclass($1) IS NOT NULL", &[&format!("\"{schema}\".schema_step")]).await?;
    if !found.first().is_some_and(|row| row.get(0)) {
        return Ok(0);
    }
    let rows = db.rows("SELECT coalesce(max(step) + 1, 0) FROM schema_step", &[]).await?;
    Ok(rows.first().map_or(0, |row| row.get(0)))
}

/// Returns the version of the tables as far as this program knows it. Steps of newer programs may be harmless to it.
///
/// # Errors
/// [`SchemaError::Newer`]: one of them is not harmless.
async fn known_version(db: &Connection, schema: &str) -> Result<i32, SchemaError> {
    let found = version(db, schema).await?;
    if found <= VERSION {
        return Ok(found);
    }
    // The column is missing from tables that only older programs have changed.
    let sql =
        "SELECT 1 FROM schema_step s WHERE step >= $1 AND (to_jsonb(s) ->> 'harmless')::boolean IS NOT TRUE LIMIT 1";
    match db.rows(sql, &[&VERSION]).await?.is_empty() {
        true => Ok(VERSION),
        false => Err(SchemaError::Newer { found, known: VERSION }),
    }
}

/// Checks that the tables are this program's, or newer ones that it can use.
pub(super) async fn check(db: &Connection, schema: &str) -> Result<(), SchemaError> {
    match known_version(db, schema).await? {
        VERSION => Ok(()),
        _ => Err(SchemaError::Missing { schema: schema.to_owned() }),
    }
}

/// Checks that this program knows every table, so that it can copy all of them.
pub(super) async fn check_all(db: &Connection, schema: &str) -> Result<(), SchemaError> {
    match version(db, schema).await? {
        found if found > VERSION => Err(SchemaError::Newer { found, known: VERSION }),
        _ => check(db, schema).await,
    }
}

/// The first version whose tables include the servers that share them.
const VERSION_OF_NODES: i32 = 3;

/// Checks that the tables include servers, and that this program knows them. Older tables are left unchanged.
pub(super) async fn check_nodes(db: &Connection, schema: &str) -> Result<(), SchemaError> {
    match known_version(db, schema).await? {
        VERSION_OF_NODES..=VERSION => Ok(()),
        _ => Err(SchemaError::Missing { schema: schema.to_owned() }),
    }
}

/// The number of attempts of a starting server to bring the tables up to date. Servers of an older version may be
/// writing to them, and PostgreSQL aborts one of two transactions in a deadlock.
const ATTEMPTS: u32 = 5;

/// Creates the tables, or brings older ones up to date. Several programs may do so at the same time: a lock serialises
/// them.
pub(super) async fn migrate(db: &Connection, schema: &str) -> Result<(), SchemaError> {
    if known_version(db, schema).await? == VERSION {
        return Ok(());
    }
    let mut attempt = 1;
    loop {
        let done = steps(db, schema).await;
        if done.is_err() {
            // If this fails too, closing the connection rolls back.
            let _ = db.batch("ROLLBACK").await;
        }
        match done {
            Err(SchemaError::Contended(_)) if attempt < ATTEMPTS => attempt += 1,
            done => return done,
        }
    }
}

async fn steps(db: &Connection, schema: &str) -> Result<(), SchemaError> {
    db.batch(&format!("BEGIN; SELECT pg_advisory_xact_lock({})", lock_key(schema))).await?;
    let there = db.rows("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", &[&schema]).await?;
    let exists = there.first().is_some_and(|row| row.get(0));
    // Another program may have been faster, and may already be writing to the tables. So nothing here locks them again.
    if exists && known_version(db, schema).await? == VERSION {
        return Ok(db.batch("COMMIT").await?);
    }
    if !exists {
        db.batch(&format!("CREATE SCHEMA \"{schema}\"")).await.map_err(|fault| forbidden(fault, schema))?;
    }
    db.batch(
        "CREATE TABLE IF NOT EXISTS schema_step (step int PRIMARY KEY, \
         done_at timestamptz NOT NULL DEFAULT clock_timestamp()); \
         ALTER TABLE schema_step ADD COLUMN IF NOT EXISTS harmless boolean NOT NULL DEFAULT false",
    )
    .await
    .map_err(|fault| forbidden(fault, schema))?;
    let found = known_version(db, schema).await?;
    for (step, sql) in STEPS.iter().enumerate().skip(usize::try_from(found).unwrap_or(0)) {
        db.batch(sql).await?;
        let harmless = HARMLESS.contains(&step);
        db.batch(&format!("INSERT INTO schema_step (step, harmless) VALUES ({step}, {harmless})")).await?;
    }
    db.batch(COMPRESSION).await?;
    Ok(db.batch("COMMIT").await?)
}

/// Checks, without changing anything, that [`migrate`] has nothing to do or that the role is allowed to do it.
pub(super) async fn check_can_migrate(db: &Connection, schema: &str) -> Result<(), SchemaError> {
    if known_version(db, schema).await? == VERSION {
        return Ok(());
    }
    // Only the owner of older tables may change them.
    let sql = "SELECT coalesce((SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = $1), \
               has_database_privilege(current_database(), 'CREATE')) AND NOT EXISTS (SELECT FROM pg_class \
               WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND relkind = 'r' \
               AND NOT pg_has_role(relowner, 'USAGE'))";
    let rows = db.rows(sql, &[&schema]).await?;
    match rows.first().is_some_and(|row| row.get(0)) {
        true => Ok(()),
        false => Err(SchemaError::Failed(format!(
            "the role of DATABASE_URL may not create, or does not own, the schema `{schema}` and its tables; {}",
            how_to_create(schema)
        ))),
    }
}

/// Explains what to do if the role may not create the schema or its tables.
fn forbidden(fault: Fault, schema: &str) -> SchemaError {
    match &fault {
        Fault::Database(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            SchemaError::Failed(format!("{}; {}", describe(error), how_to_create(schema)))
        }
        _ => fault.into(),
    }
}

fn how_to_create(schema: &str) -> String {
    format!("create the schema with `CREATE SCHEMA \"{schema}\" AUTHORIZATION …` for the role of DATABASE_URL")
}

/// Returns the key of the advisory lock for programs that use this schema.
pub(super) fn lock_key(schema: &str) -> i64 {
    i64::from(crc32fast::hash(schema.as_bytes())) | 0x7265_7365 << 32
}
