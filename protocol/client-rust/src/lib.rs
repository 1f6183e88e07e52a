//! Client of reseed: many sessions over one socket, the fold of their events, exact resume.
//!
//! - [`fold`]: the state of a session, as `session_opened` tells it and each event changes it
//! - [`incoming`]: frames of the server, read leniently

mod address;
pub mod fold;
pub mod incoming;

pub use address::{Address, InvalidAddress};
