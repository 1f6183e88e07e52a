//! Code shared by all providers that speak HTTP. A further API adds only how it writes a request and reads an event.
//!
//! - `transport` connects.
//! - `events` reads the events within their deadlines. `framing` detects their format and splits it, with `sse`.
//! - `halves` joins characters that were cut in two.
//! - `decode` runs the API's own [`Decoder`], and `object` reads JSON from servers that disagree.
//! - `assembly` builds the answer with the `arguments` of its calls. `fields` keeps what must be sent back to the
//!   server.
//!
//! Only the end is strict: a stream that stops without its terminal event is a fault, and so is an empty answer.

mod arguments;
mod assembly;
mod decode;
mod events;
mod fields;
mod framing;
mod halves;
mod object;
mod sse;
mod transport;

pub(super) use assembly::{Assembly, Ending, Piece};
pub(super) use decode::{Decoder, Progress, read_answer};
pub(super) use events::Events;
pub(super) use fields::Fields;
pub(super) use object::{Object, text};
pub(super) use transport::{Timeouts, Transport, lost};
#[cfg(test)]
pub(super) use {framing::Framing, halves::marked};
