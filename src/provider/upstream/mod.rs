//! Code shared by all providers that speak HTTP. A further API adds only how it writes a request and reads an event.
//!
//! - `transport` connects to an `address`.
//! - `events` reads the events within their deadlines. `framing` detects their format and splits it, with `sse`.
//! - `halves` joins characters that were cut in two.
//! - `decode` runs the API's own [`Decoder`], and `object` reads JSON from servers that disagree.
//! - `assembly` builds the answer with the `arguments` of its calls. `fields` keeps what must be sent back to the
//!   server. `finish` and `usage` read why it ended and what it cost.
//!
//! Only the end is strict: a stream that stops without its terminal event is a fault, and so is an empty answer.

mod address;
mod arguments;
mod assembly;
mod decode;
mod events;
mod fields;
mod finish;
mod framing;
mod halves;
mod object;
mod sse;
mod transport;
mod usage;

pub use address::InvalidOptions;
pub(super) use address::{Address, Variables, key_header};
pub(super) use assembly::{Assembly, Ending, Piece};
pub(super) use decode::{Decoder, Progress, Reading, Remarks};
pub(super) use events::Events;
pub(super) use fields::Fields;
pub(super) use finish::{Finish, finish};
pub(super) use object::{Object, text};
pub use transport::idle_timeout;
pub(super) use transport::{CONNECT_TIMEOUT, FIRST_EVENT_TIMEOUT, Timeouts, Transport, lost};
pub(super) use usage::{Reports, as_further, usage};
#[cfg(test)]
pub(super) use {framing::Framing, halves::marked};
