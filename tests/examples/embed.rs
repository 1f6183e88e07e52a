//! A server inside your own program: the built-in model, a store in memory, any free port.
//!
//!     cargo run --example embed
//!
//! It prints its address and runs until Ctrl-C. Replace the provider and the store with your own.

use anyhow::Context as _;
use reseed::{
    config::Settings,
    provider::offline::{Offline, OfflineOptions},
    service,
    store::memory::MemoryStore,
};
use std::{io::Write as _, sync::Arc, time::Duration};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Every setting of `.env.example` may be in this list; the environment is not read.
    let settings = Settings::from_iter([("WS_PORT", "0"), ("INSTRUCTIONS", "You help at a small harbour.")])?;
    let model = Offline::new(OfflineOptions { window_tokens: 4_000, pace: Some(Duration::from_millis(10)) });
    // The session is gone when the program ends; `reseed::store::connect("sqlite://…")` keeps it.
    let store = MemoryStore::new();
    let service = service::start(&settings, Arc::new(model), Arc::new(store)).await?;
    writeln!(std::io::stdout(), "connect to ws://{}/ws", service.address())?;
    tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
    service.stop().await;
    Ok(())
}
