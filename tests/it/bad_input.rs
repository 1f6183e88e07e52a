//! Bad input gets an error with its code and the offending field, or the close code of RFC 6455; the process, other
//! connections and the session's data are unharmed.
//!
//! Each case is a row of a table. [`bench::Bench::check`] runs a row over a real socket and checks the rest.

mod bench;
mod floods;
mod frames;
mod older;
mod repeats;
mod rfc6455;
mod states;
mod too_large;
mod values;
