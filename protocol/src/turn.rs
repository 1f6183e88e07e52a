//! Turns: the input, the queue that it may wait in, the streamed answer, and the end.

mod course;
mod input;
mod items;
mod queue;

pub use self::{course::*, input::*, items::*, queue::*};
