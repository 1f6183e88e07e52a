//! The parts of the kernel: everything that involves several machines. Each passes the result of one machine to the
//! next.
//!
//! - `commands`: passes commands to the machines; `inputs`: user input, until it starts a turn or is queued
//! - `requests`: room for the next request, and the reaction to a failed one
//! - `hooks`: passes subjects from hook to hook, and the results to the machine that asked
//! - `moves`: moves in the tree; `stop`: the end of a turn, and everything that stops one
//! - `view`: the loop's visible state; `weight`: which inputs take long

mod commands;
mod hooks;
mod inputs;
mod moves;
mod requests;
mod stop;
mod view;
mod weight;
