//! What a server's settings mean for the durability of acknowledged writes, for `reseed check`.

use super::{connection::Connection, fault::Fault};

/// The server settings that determine durability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Durability {
    fsync: String,
    full_page_writes: String,
    /// `synchronous_commit` as the role and the database set it; our connections set their own.
    role_commit: String,
    /// `synchronous_commit` as our connections set it.
    our_commit: String,
    /// `synchronous_standby_names`.
    standby_names: String,
    /// The number of connections that receive the WAL.
    standbys: i64,
    wal_level: String,
    archive_mode: String,
    checkpoint_timeout: String,
    max_wal_size: String,
    wal_compression: String,
    data_checksums: String,
}

impl Durability {
    /// Reads the settings on a connection that has the role's own `synchronous_commit`.
    pub(super) async fn of(db: &Connection, our_commit: &str) -> Result<Self, Fault> {
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
        let names = NAMES.as_slice();
        let sql = "SELECT current_setting(n, true) FROM unnest($1::text[]) WITH ORDINALITY AS given(n, at) ORDER BY at";
        let rows = db.rows(sql, &[&names]).await?;
        let setting = |at: usize| -> Result<String, Fault> {
            let found: Option<String> = rows.get(at).map(|row| row.try_get(0)).transpose()?.flatten();
            Ok(found.unwrap_or_else(|| "unknown".to_owned()))
        };
        let standbys = db.rows("SELECT count(*) FROM pg_stat_replication", &[]).await?;
        Ok(Self {
            fsync: setting(0)?,
            full_page_writes: setting(1)?,
            role_commit: setting(2)?,
            our_commit: our_commit.to_owned(),
            standby_names: setting(3)?,
            standbys: standbys.first().map_or(Ok(0), |row| row.try_get(0))?,
            wal_level: setting(4)?,
            archive_mode: setting(5)?,
            checkpoint_timeout: setting(6)?,
            max_wal_size: setting(7)?,
            wal_compression: setting(8)?,
            data_checksums: setting(9)?,
        })
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
        let Self { fsync, full_page_writes, data_checksums, .. } = self;
        let means = match (&**fsync, &**full_page_writes) {
            ("on", "on") => "what is acknowledged survives a crash of the server and of its machine",
            ("on", _) => "a crash of the machine can tear pages and lose sessions",
            _ => "a crash of the machine can lose all sessions",
        };
        format!("fsync {fsync}, full_page_writes {full_page_writes}, data_checksums {data_checksums}: {means}")
    }

    fn commits(&self) -> String {
        let Self { role_commit, our_commit, .. } = self;
        let set = if role_commit == our_commit {
            String::new()
        } else {
            format!(" (the role's default is {role_commit}; every connection of the server sets its own)")
        };
        format!("synchronous_commit {our_commit}{set}: an append is acknowledged once its commit is on the disk")
    }

    fn failover(&self) -> String {
        let Self { standby_names, standbys, our_commit, .. } = self;
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
        let Self { wal_level, archive_mode, .. } = self;
        let means = match (&**wal_level, &**archive_mode) {
            ("minimal", _) => "only pg_dump and copies of the stopped server are possible",
            (_, "off") => "a backup restores to the time when it was made, unless a standby or a tool receives the WAL",
            _ => "with a backup and its archived WAL, any later time can be restored",
        };
        format!("wal_level {wal_level}, archive_mode {archive_mode}: {means}")
    }

    fn recovery(&self) -> String {
        let Self { checkpoint_timeout, max_wal_size, wal_compression, .. } = self;
        format!(
            "checkpoint_timeout {checkpoint_timeout}, max_wal_size {max_wal_size}, wal_compression {wal_compression}: \
             after a crash nothing is served until the WAL since the last checkpoint is replayed"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Durability;

    fn usual() -> Durability {
        let text = str::to_owned;
        Durability {
            fsync: text("on"),
            full_page_writes: text("on"),
            role_commit: text("on"),
            our_commit: text("on"),
            standby_names: String::new(),
            standbys: 0,
            wal_level: text("replica"),
            archive_mode: text("off"),
            checkpoint_timeout: text("5min"),
            max_wal_size: text("1GB"),
            wal_compression: text("off"),
            data_checksums: text("off"),
        }
    }

    #[test]
    fn settings_are_explained() {
        let text = str::to_owned;
        let cases = [
            (usual(), "durability", "on, data_checksums off: what is acknowledged survives a crash"),
            (Durability { fsync: text("off"), ..usual() }, "durability", "fsync off"),
            (Durability { fsync: text("off"), ..usual() }, "durability", "can lose all sessions"),
            (Durability { full_page_writes: text("off"), ..usual() }, "durability", "can tear pages"),
            (usual(), "commits", "synchronous_commit on: an append"),
            (Durability { role_commit: text("off"), ..usual() }, "commits", "on (the role's default is off; every"),
            (usual(), "standbys", "is empty, none is connected: no commit waits for a standby; if the disk is lost"),
            (Durability { standbys: 2, ..usual() }, "standbys", "2 are connected: no commit waits"),
            (Durability { standbys: 2, ..usual() }, "standbys", "may lose what was acknowledged last"),
            (Durability { standby_names: text("ANY 1 (a, b)"), standbys: 1, ..usual() }, "standbys", "loses nothing"),
            (Durability { standby_names: text("a"), ..usual() }, "standbys", "until one connects, every append waits"),
            (
                Durability { standby_names: text("a"), our_commit: text("remote_apply"), ..usual() },
                "standbys",
                "a named standby has applied it",
            ),
            (usual(), "backups", "archive_mode off: a backup restores to the time when it was made"),
            (Durability { archive_mode: text("on"), ..usual() }, "backups", "any later time can be restored"),
            (Durability { wal_level: text("minimal"), ..usual() }, "backups", "only pg_dump"),
            (usual(), "recovery", "checkpoint_timeout 5min, max_wal_size 1GB, wal_compression off: after a crash"),
        ];
        for (durability, about, said) in cases {
            let lines = durability.lines();
            let line = lines.iter().find(|(name, _)| *name == about).unwrap();
            assert!(line.1.contains(said), "{about}: {} has no {said}", line.1);
        }
    }
}
