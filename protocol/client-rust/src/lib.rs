//! Client of reseed: many sessions over one socket, the fold of their events, exact resume.
//!
//! - [`Client`] connects and reconnects; [`Client::next`] returns updates
//! - [`fold`]: the state of a session, as `session_opened` reports it and each event changes it
//! - [`hosting`]: calls of tools and hooks, each of which runs once
//! - [`machine`]: the client as a state machine, without a socket or a clock
//! - [`incoming`]: parses the server's frames as far as this version knows them
//! - [`Socket`]: sends and receives frames as text; [`Transport`]: anything else that does

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod address;
mod client;
mod driver;
mod ending;
pub mod fold;
pub mod hosting;
pub mod incoming;
pub mod machine;
mod outbox;
mod socket;
mod subscription;
mod transport;
mod update;

pub use address::{Address, InvalidAddress};
pub use client::{Client, Error, Options};
pub use driver::{AskCredentials, Driver};
pub use ending::{Lost, Then, backoff};
pub use machine::{Credentials, Identity};
pub use outbox::{BYTES_MAX, COMMANDS_MAX};
pub use socket::{Message, Received, Socket};
pub use subscription::Opening;
pub use transport::{Connect, Pending, Transport};
pub use update::{NotTaken, Session, SessionEnd, SessionEvent, Stop, To, Unanswered, Update};
