//! pi's session files and pi's arithmetic: what is needed to read its sessions, to write them, and to count, cut and
//! summarise as it does.
//!
//! pi (npm `@mariozechner/pi-coding-agent`) keeps a session as a file of JSON lines, a tree like ours. Its entries are
//! read into ours and written back without loss: what ours have no place for travels along in `Entry::imported`, and
//! what pi's have no place for in a field `reseed` of the line.
//!
//! - `json`: JSON as JavaScript holds and prints it; `difference`: what one value says beyond another
//! - `read`: lines of version 1 to 3; `import`, `export`: entries from them and to them; `convert`: one entry by itself;
//!   `transform`: patches
//! - `message`: the messages of a path as pi holds them; `estimate`, `usage`: what they cost by pi's reckoning
//! - `cut`, `prepare`, `files`: pi's choice of what to summarise
//!
//! pi's estimator and its cut rule can be chosen with `CONTEXT_ESTIMATOR` and `CONTEXT_CUT_RULE`; they work on the pi form
//! of our entries, so that an imported session is measured exactly as pi measures it.

mod convert;
mod difference;
mod transform;

pub mod cut;
pub mod estimate;
pub mod export;
pub mod files;
pub mod import;
pub mod json;
pub mod message;
pub mod prepare;
pub mod read;
pub mod usage;

#[cfg(test)]
mod round_trip;

pub use convert::call_id;
pub use export::Exporter;
pub use import::Importer;
pub use json::Json;
