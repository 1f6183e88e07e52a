//! A server inside one's own program: the built-in model, a store in memory, any free port.
//!
//!     cargo run --example embed
//!
//! It prints its address and runs until Ctrl-C. A provider or a store of one's own takes the place of these.

use anyhow::Context as _;
use reseed::{
    cli::serve,
    config::Settings,
    provider::offline::{Offline, OfflineOptions},
    store::memory::MemoryStore,
};
use std::{io::Write as _, sync::Arc, time::Duration};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Every setting of `.env.example` can stand in this list; the environment is not looked at.
    let settings = Settings::from_iter([("WS_PORT", "0"), ("INSTRUCTIONS", "You help at a small harbour.")])?;
    let model = Offline::new(OfflineOptions { window_tokens: 4_000, pace: Some(Duration::from_millis(10)) });
    // Nothing is kept after the end of the program; `reseed::store::connect("sqlite://…")` keeps it.
    let store = MemoryStore::new();
    let service = serve::start(&settings, Arc::new(model), Arc::new(store)).await?;
    writeln!(std::io::stdout(), "connect to ws://{}/ws", service.running.address)?;
    tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
    service.stop().await;
    Ok(())
}
