//! reseed: a WebSocket server that keeps LLM conversations inside the model's context window indefinitely.
//!
//! The library is for programs that embed the server. They [start](service::start) it with a model backend
//! ([`Provider`](provider::Provider)), a store ([`SessionStore`](store::SessionStore)) and, if they like, context
//! strategies ([`ContextManager`](core::context::ContextManager)), hooks ([`Hook`](hooks::Hook)) and tools
//! ([`Tool`](tools::Tool)) of their own:
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
//! - [`service`] starts the server;
//! - [`config`] has its settings;
//! - [`provider`], [`store`], [`hooks`], [`tools`] and [`core`] have the traits, and what the server itself uses for
//!   them;
//! - [`pi`] reads and writes pi's sessions, and has its rules for estimating and cutting.
//!
//! Whole programs are in `tests/examples`, the architecture in `src/README.md`. Everything else is private, so that the
//! compiler finds what nothing uses. Imports point one way, enforced by `tests/it/tidy.rs`: `protocol ← core ←
//! store ← {provider, hooks, tools, shares} ← runtime ← server ← service ← cli`; `config`, `metrics` and `clock` are
//! leaves that neither core nor store uses.

mod cli;
mod clock;
pub mod config;
pub mod hooks;
mod metrics;
pub mod provider;
mod replay;
mod runtime;
mod server;
pub mod service;
mod shares;
mod telemetry;
#[cfg(test)]
mod testing;
pub mod tools;
mod trace;

#[doc(inline)]
pub use reseed_core as core;
#[doc(inline)]
pub use reseed_pi as pi;
#[doc(inline)]
pub use reseed_store as store;

/// The modules that the binary and this repository's tests need beyond the façade. They may change at any time.
///
/// The simulated world runs sessions without sockets and without a clock, so it holds the runtime's registry. Other
/// tests compare documents with what the settings print, and files with what `import` and `export` read and write.
#[doc(hidden)]
pub mod internals {
    pub use crate::{
        cli::{
            Cli,
            export::export,
            import::{ImportOptions, import},
            run,
        },
        clock::{Clock, SystemClock},
        config::{
            declared::declared,
            printed::{env_example, help, settings_table},
        },
        provider::overflow::detect as detect_overflow,
        runtime::{
            cluster::Keeper,
            encoded::Frame,
            errors::store_error,
            feed::{Cursor, Reader},
            fork::{ForkOrder, keep_settling as keep_settling_forks, settle as settle_forks},
            handle::{Attach, Attached, ConnectionShare, Identity, LeftOff, SessionHandle},
            labels::{label_of, newest_labels},
            live::ItemPosition,
            outbox::{Outbox, Outgoing, REPLIES_MAX},
            registry::{Registry, RegistryOptions},
            stored::read as read_stored,
        },
        service::parts::deployment,
        store::faulty::{Fault, Faulty},
    };
}
