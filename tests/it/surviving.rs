//! What survives: a client that is cut off, a process that is killed, a disk that fails, a reader that stops reading.
//! Everything over real sockets, the last of it with the real binary.
//!
//! - [`folder`]: the Rust client, one frame at a time; [`fold`] reads the same frames strictly: a hole, a double, or
//!   text out of place fails the test; [`witness`] compares the client's snapshot with what the server says afresh
//! - `cuts`: cut off at every frame; `lossy`: on lines that break at random; `resume`: with every kind of place;
//!   `writers`: writers, observers, the host and open calls
//! - `kills`: the process is killed at random moments; `nodes`: several that share a database are killed, paused and
//!   cut off, and the database is restarted
//! - `disk` and `damage`: a disk that is full, a record that is damaged
//! - `slow`: readers that stop; `terminal`: `reseed chat` behind a line that breaks; `leaving`: what a session costs
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
