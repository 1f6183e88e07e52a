//! Everything that is tested from outside the crate, as one binary, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "the settings of clippy exempt tests, and what they call is as much a test")]

mod anthropic;
mod arguments;
mod audit;
mod backup;
mod bad_input;
mod branches;
mod budget;
mod cache;
mod chat;
mod clock;
#[cfg(feature = "postgres")]
mod cluster;
mod commands;
mod compaction;
mod conversation;
mod cost;
mod counts;
mod cut;
mod doors;
mod exact;
mod grants;
mod history;
mod history_tools;
mod holding;
mod hooks;
mod hostile;
mod jwt;
mod keeping;
mod late;
mod levers;
mod listing;
mod mcp;
#[cfg(feature = "postgres")]
mod migrate;
mod model_server;
mod operating;
mod original_faults;
mod outcomes;
mod played;
mod poisoned;
#[cfg(feature = "postgres")]
mod postgres;
mod provider;
mod real_upstream;
#[cfg(feature = "postgres")]
mod relay;
mod reload;
#[cfg(feature = "postgres")]
mod restored;
mod safety;
mod schema;
mod searching;
mod server_tools;
mod settings;
mod source;
mod strategies;
mod streaming;
mod subscriptions;
#[path = "../support/mod.rs"]
mod support;
mod surviving;
mod tidy;
mod tls;
mod tool_list;
mod tools;
#[cfg(feature = "otel")]
mod traces;
mod tree;
mod turns;
mod unstored;
mod usage;
mod v1;
