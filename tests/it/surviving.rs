//! What survives: a client that is cut off, a process that is killed, a disk that fails, a reader that stops reading.
//! All of it runs over real sockets, and the last part with the real binary.
//!
//! - [`folder`]: the Rust client, one frame at a time; [`fold`] reads the same frames strictly: a gap, a duplicate, or
//!   misplaced text fails the test; [`witness`] compares the client's snapshot with a fresh one from the server
//! - `cuts`: cuts at every frame; `lossy`: lines that break at random; `resume`: every kind of position; `writers`:
//!   writers, observers, the host and open calls
//! - `kills`: the process is killed at random moments; `nodes`: several that share a database are killed, paused and
//!   cut off, and the database is restarted
//! - `disk` and `damage`: a full disk, a damaged record
//! - `slow`: readers that stop; `terminal`: `reseed chat` behind a line that breaks; `leaving`: the cost of a session
//!   that nobody has open

mod cuts;
mod damage;
mod disk;
mod fold;
mod folder;
mod kills;
mod leaving;
mod lossy;
#[cfg(feature = "postgres")]
mod nodes;
mod resume;
mod slow;
mod terminal;
mod witness;
mod writers;

pub(crate) use kills::number;
