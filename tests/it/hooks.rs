//! Hooks, over real sockets: a client's own, webhooks, and the examples.

mod all_at_once;
mod client;
mod client_away;
mod examples;
mod gone;
mod in_session;
mod misbehaving;
mod proposal;
mod reading;
mod redacting;
mod webhooks;
