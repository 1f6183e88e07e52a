//! The tables, and the migrations that bring an older file up to date.
//!
//! `PRAGMA application_id` marks a file as ours; `PRAGMA user_version` counts the migrations applied. A released
//! migration never changes: a change of the tables is a new one at the end of [`STEPS`].

use rusqlite::Connection;

/// Stored in the header of each of our files: `rsed` in ASCII.
pub(super) const APPLICATION_ID: i32 = i32::from_be_bytes(*b"rsed");

/// The newest version of the tables that this program supports.
pub(super) const VERSION: i64 = STEPS.len() as i64;

/// Step n migrates from version n to n + 1.
///
/// Step 0: rowid tables with a separate unique index, not `WITHOUT ROWID`, which spills bodies of 1 KB to overflow
/// pages and is seven times slower. Sessions are numbered so that records and index rows stay small; a number is never
/// reused. The state of a session has its own table: it may be large, and lists do not need it.
///
/// Step 1: children are found by their parent. Nearly every entry is a child of the previous one in the log, which
/// `last_entry` names. It gets `follows` and stays out of the index, because indexing it would account for a third of
/// everything that an append writes. Labels among thousands of messages are found by their kind. Messages are not
/// indexed by kind, because nothing queries all of them. Heads, states and marks get checksums; older rows have none
/// (see `checksum.rs`).
///
/// Step 2: the cost of a session's requests, unknown for sessions written before.
///
/// Step 3: the tables stay unchanged. Records of version 2 follow, which an older program would take for damaged.
///
/// Step 4: the tables stay unchanged. Records of version 3 follow.
///
/// Step 5: the command that created a session, so that a client that lost the reply finds the session again.
///
/// Step 6: deleted sessions whose rows are still to be removed.
///
/// Step 7: what each owner has stored, maintained by triggers so that no write can forget it. Reading it costs one row,
/// however much there is. `octet_length` takes the size from the row's header.
///
/// Step 8: the search index of versions 9 to 11. Its word tables were created as needed.
///
/// Step 9: the tables stay unchanged. Programs of version 10 kept new rows in stages; see [`FROM_STAGES`].
///
/// Step 10: views for programs of others that read them.
///
/// Step 11: the search index (see `history/`). The entries of an older file are indexed while it is in use. The tables
/// of its old index may be large, so they are dropped meanwhile too, one by one; `history_shard` lists them.
///
/// Step 12: secrets of the server. `created_at` is in milliseconds since 1970.
///
/// Step 13: what requests to models cost (see `spending.rs`). Rows name their session instead of referring to it,
/// because they are kept when it is deleted. `at` is in milliseconds since 1970.
///
/// Step 14: what the server counted in each minute of the last week (see `minutes.rs`).
pub(super) const STEPS: &[&str] = &[
    "
CREATE TABLE session (
    number        INTEGER PRIMARY KEY AUTOINCREMENT,
    id            TEXT NOT NULL UNIQUE,
    owner         TEXT NOT NULL,
    epoch         TEXT NOT NULL,
    term          INTEGER NOT NULL,
    last_seq      INTEGER NOT NULL,
    name          TEXT NOT NULL,
    name_folded   TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    entries       INTEGER NOT NULL,
    token_count   INTEGER NOT NULL,
    window_tokens INTEGER NOT NULL,
    running       INTEGER NOT NULL
);
CREATE INDEX session_recent ON session (updated_at);
CREATE INDEX session_recent_of_owner ON session (owner, updated_at);

CREATE TABLE session_state (
    session INTEGER PRIMARY KEY,
    state   TEXT NOT NULL
);

CREATE TABLE record (
    session  INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    entry    TEXT,
    parent   TEXT,
    kind     TEXT,
    body     TEXT NOT NULL
);
CREATE UNIQUE INDEX record_seq ON record (session, seq);
CREATE UNIQUE INDEX record_entry ON record (session, entry) WHERE entry IS NOT NULL;

CREATE TABLE mark (
    session     INTEGER NOT NULL,
    command     TEXT NOT NULL,
    fingerprint INTEGER NOT NULL,
    reply       TEXT NOT NULL
);
CREATE UNIQUE INDEX mark_command ON mark (session, command);
",
    "
ALTER TABLE record ADD COLUMN follows INTEGER;
ALTER TABLE session ADD COLUMN last_entry TEXT;
CREATE INDEX record_parent ON record (session, parent, seq) WHERE parent IS NOT NULL AND follows IS NULL;
CREATE INDEX record_root ON record (session, seq) WHERE parent IS NULL AND entry IS NOT NULL;
CREATE INDEX record_kind ON record (session, kind, seq) WHERE kind <> 'message';

ALTER TABLE session ADD COLUMN checksum INTEGER;
ALTER TABLE session_state ADD COLUMN checksum INTEGER;
ALTER TABLE mark ADD COLUMN checksum INTEGER;
",
    "
ALTER TABLE session ADD COLUMN cost_nano_usd INTEGER;
ALTER TABLE session ADD COLUMN unpriced_requests INTEGER NOT NULL DEFAULT 0;
",
    "",
    "",
    "
ALTER TABLE session ADD COLUMN created_by TEXT;
CREATE UNIQUE INDEX session_created_by ON session (owner, created_by) WHERE created_by IS NOT NULL;
",
    "
CREATE TABLE deletion (
    number INTEGER PRIMARY KEY,
    id     TEXT NOT NULL
);
",
    "
ALTER TABLE session ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE session SET bytes = coalesce((SELECT sum(octet_length(body)) FROM record WHERE record.session = session.number), 0);
CREATE INDEX session_empty ON session (created_at) WHERE last_seq < 2;

CREATE TABLE usage (
    owner    TEXT PRIMARY KEY,
    sessions INTEGER NOT NULL,
    empty    INTEGER NOT NULL,
    bytes    INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO usage SELECT owner, count(*), sum(last_seq < 2), sum(bytes) FROM session GROUP BY owner;

CREATE TRIGGER usage_of_created AFTER INSERT ON session BEGIN
    INSERT INTO usage (owner, sessions, empty, bytes) VALUES (new.owner, 1, new.last_seq < 2, new.bytes)
    ON CONFLICT (owner) DO UPDATE SET
        sessions = sessions + 1, empty = empty + excluded.empty, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER usage_of_appended AFTER UPDATE OF last_seq, bytes ON session BEGIN
    UPDATE usage SET empty = empty + (new.last_seq < 2) - (old.last_seq < 2), bytes = bytes + new.bytes - old.bytes
    WHERE owner = new.owner;
END;
CREATE TRIGGER usage_of_deleted AFTER DELETE ON session BEGIN
    UPDATE usage SET sessions = sessions - 1, empty = empty - (old.last_seq < 2), bytes = bytes - old.bytes
    WHERE owner = old.owner;
    DELETE FROM usage WHERE owner = old.owner AND sessions < 1;
END;
",
    "
CREATE TABLE history_shard (
    shard   INTEGER PRIMARY KEY,
    entries INTEGER NOT NULL,
    bytes   INTEGER NOT NULL
);
CREATE TABLE history_part (
    session   INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    shard     INTEGER NOT NULL,
    PRIMARY KEY (session, first_seq)
) WITHOUT ROWID;
CREATE INDEX history_part_of_shard ON history_part (shard);
",
    "",
    "
CREATE VIEW record_all AS SELECT session, seq, version, checksum, entry, parent, kind, body, follows FROM record;
CREATE VIEW mark_all AS SELECT session, command, fingerprint, reply, checksum FROM mark;
",
    WORDS,
    "
CREATE TABLE secret (
    name       TEXT PRIMARY KEY,
    value      BLOB NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (1000 * unixepoch())
) WITHOUT ROWID;
",
    "
CREATE TABLE model_usage (
    id               TEXT PRIMARY KEY,
    at               INTEGER NOT NULL,
    owner            TEXT NOT NULL,
    session          TEXT NOT NULL,
    model            TEXT NOT NULL,
    purpose          TEXT NOT NULL,
    reported         INTEGER NOT NULL,
    input            INTEGER NOT NULL,
    cached           INTEGER NOT NULL,
    cache_write      INTEGER NOT NULL,
    cache_write_hour INTEGER NOT NULL,
    output           INTEGER NOT NULL,
    reasoning        INTEGER NOT NULL,
    cost_nano_usd    INTEGER
);
CREATE INDEX model_usage_at ON model_usage (at);
CREATE INDEX model_usage_of_owner ON model_usage (owner, at);
CREATE INDEX model_usage_of_session ON model_usage (session, at);
",
    "
CREATE TABLE minute (
    minute  INTEGER NOT NULL,
    process TEXT NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (minute, process)
) WITHOUT ROWID;
",
];

/// Creates the search index, which is empty. A damaged one is replaced in the same way.
pub(super) const WORDS: &str = "
DROP TABLE IF EXISTS words;
CREATE TABLE words (
    session   INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    words     BLOB NOT NULL
);
CREATE UNIQUE INDEX words_first ON words (session, first_seq);
";

/// The only version whose files have stages.
const VERSION_OF_STAGES: i64 = 10;

/// Files of version 10 hold newer rows in stages; only they have these tables. Step 10 is executed after this.
const FROM_STAGES: &str = "
INSERT INTO record (session, seq, version, checksum, entry, parent, kind, body, follows)
    SELECT session, seq, version, checksum, entry, parent, kind, body, follows FROM record_staged_1
    WHERE session > (SELECT moved FROM staging WHERE stage = 1) AND session NOT IN (SELECT number FROM deletion)
    UNION ALL SELECT session, seq, version, checksum, entry, parent, kind, body, follows FROM record_staged_2
    WHERE session > (SELECT moved FROM staging WHERE stage = 2) AND session NOT IN (SELECT number FROM deletion);
INSERT INTO mark (session, command, fingerprint, reply, checksum)
    SELECT session, command, fingerprint, reply, checksum FROM mark_staged_1
    WHERE session > (SELECT moved FROM staging WHERE stage = 1) AND session NOT IN (SELECT number FROM deletion)
    UNION ALL SELECT session, command, fingerprint, reply, checksum FROM mark_staged_2
    WHERE session > (SELECT moved FROM staging WHERE stage = 2) AND session NOT IN (SELECT number FROM deletion);
DROP VIEW record_all;
DROP VIEW record_root_all;
DROP VIEW mark_all;
DROP TABLE record_staged_1;
DROP TABLE record_staged_2;
DROP TABLE mark_staged_1;
DROP TABLE mark_staged_2;
DROP TABLE staging;
";

/// Returns the number of migrations applied to the file; 0 for a new one.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Applies the missing migrations in one transaction and marks the file as ours.
///
/// A new file must not be in WAL mode yet. The next start looks for the `application_id` in the file itself, but it
/// would be only in the WAL if the process died before a checkpoint.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    let from = version(connection)?;
    if from == VERSION {
        return Ok(());
    }
    if from == 0 {
        // Only a new file can be given movable pages, so that it can be shortened while in use. Preparing this
        // statement sets the mode in which the transaction creates the file; executing it would create a file first,
        // without our mark.
        drop(connection.prepare("PRAGMA auto_vacuum = INCREMENTAL")?);
    }
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    if from == VERSION_OF_STAGES {
        transaction.execute_batch(FROM_STAGES)?;
    }
    for step in STEPS.iter().skip(usize::try_from(from).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}
