//! Clients that make the server spend what it has: each finding of an attack, and the bound that ends it.

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
