//! Client of reseed: many sessions over one socket, the fold of their events, exact resume.
//!
//! - [`fold`]: the state of a session, as `session_opened` tells it and each event changes it

pub mod fold;
