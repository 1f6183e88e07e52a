//! Hooks, over real sockets: a client's own, webhooks, and the examples.

mod all_at_once;
mod client;
mod client_away;
mod examples;
mod in_session;
mod misbehaving;
mod proposal;
mod redacting;
mod webhooks;
