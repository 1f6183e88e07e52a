//! The fold: the state of one session, as `session_opened` reports it and each event changes it.
//!
//! Invariants:
//! - A snapshot that results from events equals the one that the server sends at the same moment, except for
//!   decoration.
//! - Durable events are applied once and in order. An event that would leave a gap is refused and changes nothing.
//! - An event costs the same however long the history and the answer are. Only a move to another branch costs as much
//!   as its path is long.
//! - Events and fields that this version does not know change nothing.
//! - This module knows neither a clock nor a connection.
//!
//! ```
//! use reseed_client::fold::{Applied, Snapshot};
//! use reseed_protocol::{event::Event, session::{Resume, SessionOpened}};
//!
//! /// Returns where to resume if an event is missing.
//! fn follow(opened: SessionOpened, events: &[(u64, Event)]) -> Option<Resume> {
//!     let mut snapshot = Snapshot::opened(opened);
//!     for (seq, event) in events {
//!         match snapshot.apply(*seq, event) {
//!             Applied::Next => println!("{} entries are shown", snapshot.path.len()),
//!             Applied::Seen => {}
//!             Applied::Gap => return Some(snapshot.resume_point()),
//!         }
//!     }
//!     None
//! }
//! ```
//!
//! The clients of all languages are tested with the same vectors, in `protocol/client/vectors`.

mod after;
mod apply;
mod context;
mod entries;
#[cfg(test)]
mod fixture;
mod items;
mod open;
mod path;
mod queue;
mod snapshot;

pub use after::changes_context;
pub use apply::Applied;
pub use context::{FAILURES_MAX, SUMMARISING_BRANCH};
pub use entries::KnownEntries;
pub use items::{Item, PARTS_MAX};
pub use path::Path;
pub use snapshot::{Call, CompactionJob, Snapshot, Turn};
