//! reseed: a WebSocket server that keeps LLM conversations inside the model's context window, for ever.
//!
//! The core decides, the shell acts. Imports point one way, held by `tests/it/tidy.rs`:
//! `protocol ← core ← {provider, store, hooks, tools} ← runtime ← server ← main`; `config`, `metrics` and `clock` are
//! leaves that the core never sees.

pub mod cli;
pub mod clock;
pub mod config;
pub mod core;
pub mod hooks;
pub mod metrics;
pub mod provider;
pub mod runtime;
pub mod server;
pub mod store;
pub mod telemetry;
