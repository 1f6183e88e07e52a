//! Clients that exhaust the server's resources: each finding of an attack, and the bound that stops it.

mod deep;
mod door;
mod guesses;
mod reads;
mod schemas;
mod shares;
mod stored;
mod tickets;
mod tokens;
mod unread;
