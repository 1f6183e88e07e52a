//! What a server's settings mean for the durability of acknowledged writes, for `reseed check`.

use super::{connection::Connection, fault::Fault};
use std::collections::HashMap;

/// The names of the server settings that determine durability.
const NAMES: [&str; 10] = [
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "synchronous_standby_names",
    "wal_level",
    "archive_mode",
    "checkpoint_timeout",
    "max_wal_size",
    "wal_compression",
    "data_checksums",
];

/// The server settings that determine durability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Durability {
    /// The settings, `synchronous_commit` as the role and the database set it.
    settings: HashMap<String, String>,
    /// `synchronous_commit` as our connections set it.
    our_commit: String,
    /// The number of connections that receive the WAL.
    standbys: i64,
}

impl Durability {
    /// Reads the settings on a connection that has the role's own `synchronous_commit`.
    pub(super) async fn of(db: &Connection, our_commit: &str) -> Result<Self, Fault> {
        let sql = "SELECT n, coalesce(current_setting(n, true), 'unknown') FROM unnest($1::text[]) AS given(n)";
        let rows = db.rows(sql, &[&NAMES.as_slice()]).await?;
        let settings = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect::<Result<_, Fault>>()?;
        let standbys = db.rows("SELECT count(*) FROM pg_stat_replication", &[]).await?;
        let standbys = standbys.first().map_or(Ok(0), |row| row.try_get(0))?;
        Ok(Self { settings, our_commit: our_commit.to_owned(), standbys })
    }

    fn get(&self, name: &str) -> &str {
        self.settings.get(name).map_or("unknown", String::as_str)
    }

    /// Returns lines for people, each with a label.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        vec![
            ("durability", self.crash()),
            ("commits", self.commits()),
            ("standbys", self.failover()),
            ("backups", self.backups()),
            ("recovery", self.recovery()),
        ]
    }

    fn crash(&self) -> String {
        let [fsync, full_page_writes, data_checksums] =
            ["fsync", "full_page_writes", "data_checksums"].map(|name| self.get(name));
        let means = match (fsync, full_page_writes) {
            ("on", "on") => "what is acknowledged survives a crash of the server and of its machine",
            ("on", _) => "a crash of the machine can tear pages and lose sessions",
            _ => "a crash of the machine can lose all sessions",
        };
        format!("fsync {fsync}, full_page_writes {full_page_writes}, data_checksums {data_checksums}: {means}")
    }

    fn commits(&self) -> String {
        let (role_commit, our_commit) = (self.get("synchronous_commit"), &self.our_commit);
        let set = if role_commit == our_commit {
            String::new()
        } else {
            format!(" (the role's default is {role_commit}; every connection of the server sets its own)")
        };
        format!("synchronous_commit {our_commit}{set}: an append is acknowledged once its commit is on the disk")
    }

    fn failover(&self) -> String {
        let Self { standbys, our_commit, .. } = self;
        let standby_names = self.get("synchronous_standby_names");
        let connected = match standbys {
            0 => "none is connected".to_owned(),
            1 => "1 is connected".to_owned(),
            count => format!("{count} are connected"),
        };
        if standby_names.trim().is_empty() {
            let means = match standbys {
                0 => "if the disk is lost, what was written since the newest backup is lost",
                _ => "a failover may lose what was acknowledged last; set synchronous_standby_names against that",
            };
            return format!("synchronous_standby_names is empty, {connected}: no commit waits for a standby; {means}");
        }
        let has = if our_commit == "remote_apply" { "has applied it" } else { "has it on its disk" };
        let waits = if *standbys == 0 { "; until one connects, every append waits" } else { "" };
        format!(
            "synchronous_standby_names '{standby_names}', {connected}: a commit waits until a named standby {has}; a \
             failover to that one loses nothing{waits}"
        )
    }

    fn backups(&self) -> String {
        let (wal_level, archive_mode) = (self.get("wal_level"), self.get("archive_mode"));
        let means = match (wal_level, archive_mode) {
            ("minimal", _) => "only pg_dump and copies of the stopped server are possible",
            (_, "off") => "a backup restores to the time when it was made, unless a standby or a tool receives the WAL",
            _ => "with a backup and its archived WAL, any later time can be restored",
        };
        format!("wal_level {wal_level}, archive_mode {archive_mode}: {means}")
    }

    fn recovery(&self) -> String {
        let [checkpoint_timeout, max_wal_size, wal_compression] =
            ["checkpoint_timeout", "max_wal_size", "wal_compression"].map(|name| self.get(name));
        format!(
            "checkpoint_timeout {checkpoint_timeout}, max_wal_size {max_wal_size}, wal_compression {wal_compression}: \
             after a crash nothing is served until the WAL since the last checkpoint is replayed"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Durability;

    /// Returns the usual settings with some changes.
    fn with(changes: &[(&str, &str)]) -> Durability {
        let usual = [
            ("fsync", "on"),
            ("full_page_writes", "on"),
            ("synchronous_commit", "on"),
            ("synchronous_standby_names", ""),
            ("wal_level", "replica"),
            ("archive_mode", "off"),
            ("checkpoint_timeout", "5min"),
            ("max_wal_size", "1GB"),
            ("wal_compression", "off"),
            ("data_checksums", "off"),
        ];
        let settings = usual.iter().chain(changes).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Durability { settings: settings.collect(), our_commit: "on".to_owned(), standbys: 0 }
    }

    #[test]
    fn settings_are_explained() {
        let usual = || with(&[]);
        let named = |name| with(&[("synchronous_standby_names", name)]);
        let cases = [
            (usual(), "durability", "on, data_checksums off: what is acknowledged survives a crash"),
            (with(&[("fsync", "off")]), "durability", "fsync off"),
            (with(&[("fsync", "off")]), "durability", "can lose all sessions"),
            (with(&[("full_page_writes", "off")]), "durability", "can tear pages"),
            (usual(), "commits", "synchronous_commit on: an append"),
            (with(&[("synchronous_commit", "off")]), "commits", "on (the role's default is off; every"),
            (usual(), "standbys", "is empty, none is connected: no commit waits for a standby; if the disk is lost"),
            (Durability { standbys: 2, ..usual() }, "standbys", "2 are connected: no commit waits"),
            (Durability { standbys: 2, ..usual() }, "standbys", "may lose what was acknowledged last"),
            (Durability { standbys: 1, ..named("ANY 1 (a, b)") }, "standbys", "loses nothing"),
            (named("a"), "standbys", "until one connects, every append waits"),
            (
                Durability { our_commit: "remote_apply".to_owned(), ..named("a") },
                "standbys",
                "a named standby has applied it",
            ),
            (usual(), "backups", "archive_mode off: a backup restores to the time when it was made"),
            (with(&[("archive_mode", "on")]), "backups", "any later time can be restored"),
            (with(&[("wal_level", "minimal")]), "backups", "only pg_dump"),
            (usual(), "recovery", "checkpoint_timeout 5min, max_wal_size 1GB, wal_compression off: after a crash"),
        ];
        for (durability, about, said) in cases {
            let lines = durability.lines();
            let line = lines.iter().find(|(name, _)| *name == about).unwrap();
            assert!(line.1.contains(said), "{about}: {} has no {said}", line.1);
        }
    }
}
