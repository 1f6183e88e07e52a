//! reseed: a WebSocket server that keeps LLM conversations inside the model's context window indefinitely.
//!
//! The library is for programs that embed the server. They [start](service::start) it with a model backend
//! ([`Provider`](provider::Provider)), a store ([`SessionStore`](store::SessionStore)) and, if they like, context
//! strategies ([`ContextManager`](core::context::ContextManager)) and hooks ([`Hook`](hooks::Hook)) of their own:
//!
//! ```no_run
//! use reseed::{
//!     config::Settings,
//!     provider::offline::{Offline, OfflineOptions},
//!     service,
//!     store::memory::MemoryStore,
//! };
//! use std::sync::Arc;
//!
//! #[tokio::main]
//! async fn main() -> anyhow::Result<()> {
//!     // Any setting of `.env.example`; port 0 picks a free one.
//!     let settings = Settings::from_iter([("WS_PORT", "0")])?;
//!     let model = Offline::new(OfflineOptions::default());
//!     let service = service::start(&settings, Arc::new(model), Arc::new(MemoryStore::new())).await?;
//!     println!("connect to ws://{}/ws", service.address());
//!     tokio::signal::ctrl_c().await?;
//!     service.stop().await;
//!     Ok(())
//! }
//! ```
//!
//! Whole programs are in `tests/examples`, the architecture in `src/README.md`.
//!
//! The core decides, the shell acts. Imports point one way, enforced by `tests/it/tidy.rs`: `protocol ← core ←
//! {provider, store, hooks} ← runtime ← server ← service ← cli`; `config`, `metrics` and `clock` are leaves that the
//! core never uses.

pub mod cli;
pub mod clock;
pub mod config;
pub mod hooks;
mod metrics;
pub mod provider;
pub mod runtime;
pub mod server;
pub mod service;
pub mod store;
mod telemetry;

#[doc(inline)]
pub use reseed_core as core;
#[doc(inline)]
pub use reseed_pi as pi;
