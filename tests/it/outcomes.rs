//! Outcomes that the table of commands claims, reached on a real server. Together with the other tests of this binary
//! they reach every one: `tests/outcomes` compares what all of them saw with the table.

mod events;
mod failures;
mod refusals;
mod scene;
