//! What every provider that speaks HTTP shares, so that a further API adds only how it writes a request and how it
//! reads an event: `transport` connects, `body` unpacks what arrives, `events` reads its events within the deadlines,
//! `framing` finds out what they stand in and `sse` or `json_values` splits it, `halves` mends characters that were cut
//! in two, `decode` reads the events with the API's own [`Decoder`], `lenient` reads JSON from servers that disagree,
//! `assembly` builds the answer with the `arguments` of its calls, and `fields` keeps what the server wants back with
//! it.
//!
//! Only the end is strict: a stream that stops without its terminal event is a fault, and so is an empty answer.

mod arguments;
mod assembly;
mod body;
mod decode;
mod events;
mod fields;
mod framing;
mod halves;
mod json_values;
mod lenient;
mod sse;
mod transport;

pub(super) use arguments::is_whole;
pub(super) use assembly::{Assembly, Ending, Piece};
pub(super) use decode::{Decoder, Progress, read_answer};
pub(super) use events::Events;
pub(super) use fields::Fields;
pub(super) use lenient::{Count, Many, Name, Position, Text, lax};
pub(super) use transport::{InvalidAddress, Timeouts, Transport, lost, parse_address};
#[cfg(test)]
pub(super) use {framing::Framing, halves::marked};
