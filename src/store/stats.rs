//! What a store reports about itself.

use std::time::Duration;

/// The metric that counts reads of PostgreSQL that waited for a connection.
#[doc(hidden)]
pub const READS_WAITED_TOTAL: &str = "reseed_store_reads_waited_total";

/// The metric that counts failovers of PostgreSQL, and restored backups.
#[doc(hidden)]
pub const TIMELINE_CHANGES_TOTAL: &str = "reseed_store_timeline_changes_total";

/// Counters of the writer since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitStats {
    /// Commits that wrote something; each synced the disk.
    pub commits: u64,
    /// Groups of writes that were not committed, because the disk or the database failed now or earlier.
    pub failed: u64,
    /// Records appended.
    pub records: u64,
    /// Bytes of bodies, replies and states written.
    pub bytes: u64,
    /// Duration of the newest commit, including its sync but not the writing before it.
    pub last_commit: Duration,
}
