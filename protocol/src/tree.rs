//! A session's tree: its entries, moves in it, and what a client reads of it.

mod entry;
mod moves;
mod pages;
mod records;

pub use self::{entry::*, moves::*, pages::*, records::*};
