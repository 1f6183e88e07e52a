//! What every provider that speaks HTTP shares, so that a further API adds only how it writes a request and how it
//! reads an event: `transport` connects and accepts a response, `events` reads its events within the deadlines, `sse`
//! splits it into events, `decode` reads them with the API's own [`Decoder`], `lenient` reads JSON from servers that
//! disagree, `assembly` builds the answer, and `fields` keeps what the server wants back with it.
//!
//! Only the end is strict: a stream that stops without its terminal event is a fault, and so is an empty answer.

mod assembly;
mod decode;
mod events;
mod fields;
mod lenient;
mod sse;
mod transport;

pub(super) use assembly::{Assembly, Ending, Piece};
pub(super) use decode::{Decoder, Progress, read_answer};
pub(super) use events::Events;
pub(super) use fields::Fields;
pub(super) use lenient::{Count, Text, lax};
pub(super) use transport::{InvalidAddress, Timeouts, Transport, lost, parse_address};
