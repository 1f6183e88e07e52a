//! The kernel's parts: what concerns more than one machine. Each passes what one machine returns to the next.
//!
//! - `commands`: passes commands to the machines; `inputs`: what users say, until it starts a turn or is queued
//! - `requests`: room for the next request, and what follows a failed one
//! - `hooks`: passes subjects from hook to hook, and what they have become to the machine that asked
//! - `moves`: moves in the tree; `stop`: the end of a turn, and what stops one
//! - `view`: what the loop shows of itself; `weight`: which inputs take long

mod commands;
mod hooks;
mod inputs;
mod moves;
mod requests;
mod stop;
mod view;
mod weight;
