//! A custom strategy, in a server inside your own program.
//!
//!     cargo run --example strategy
//!
//! `bookends` keeps the beginning of the conversation verbatim, as well as the newest messages, and has everything in
//! between summarised: a task that was set at the beginning is never paraphrased. It is chosen as the others are, by
//! `CONTEXT_STRATEGY`, by `set_context_strategy`, and as a step of a `pipeline`.

use anyhow::Context as _;
use reseed::{
    config::Settings,
    core::compaction::{
        ContextManager,
        cut::{cut_units, must_stay},
        factory::{NotAdded, Strategies},
        strategy::{FallbackStep, Options, Planning},
    },
    provider::offline::{Offline, OfflineOptions},
    service,
    store::memory::MemoryStore,
};
use std::{io::Write as _, sync::Arc, time::Duration};

/// The trigger and the target follow from the settings, as for `threshold`; only what is kept is its own.
#[derive(Debug)]
struct Bookends {
    options: Options,
}

impl ContextManager for Bookends {
    fn name(&self) -> &'static str {
        "bookends"
    }

    fn about(&self) -> &'static str {
        "Keeps the beginning word for word, and summarises what lies between it and the newest messages."
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn steps(&self, planning: &Planning<'_>) -> Vec<FallbackStep> {
        let (context, units) = (planning.context, &planning.structure.units);
        // Pins and the last question are always kept.
        let mut kept = must_stay(context, planning.structure);
        let stay: u64 = kept.iter().zip(units).filter(|(kept, _)| **kept).map(|(_, unit)| unit.tokens).sum();
        let mut room = planning.keep.tokens_max.saturating_sub(stay);
        // The first turn is the oldest one in the context, also after it was kept once. It may take half of the room.
        let first = units.iter().take_while(|unit| unit.turn == 0);
        let first_tokens: u64 = first.clone().map(|unit| unit.tokens).sum();
        if first_tokens <= room / 2 {
            room -= first_tokens;
            kept[..first.count()].fill(true);
        }
        let mut newest = planning.keep.tokens.min(room);
        for (kept, unit) in kept.iter_mut().zip(units).rev().filter(|(kept, _)| !**kept) {
            if unit.tokens > newest {
                break;
            }
            newest -= unit.tokens;
            *kept = true;
        }
        let summarise = cut_units(context, planning.structure, &kept).map(FallbackStep::Summarise);
        // If that saves too little, the oldest turns are removed until the target is met.
        let truncate = planning.oldest_out().map(FallbackStep::Truncate);
        summarise.into_iter().chain(truncate).collect()
    }
}

/// Returns the built-in strategies, and this one.
pub(crate) fn strategies() -> Result<Strategies, NotAdded> {
    Strategies::default().with("bookends", &["first_and_last"], |options| Box::new(Bookends { options }))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let settings = Settings::with_strategies(strategies()?, [("WS_PORT", "0"), ("CONTEXT_STRATEGY", "bookends")])?;
    let model = Offline::new(OfflineOptions { window_tokens: 4_000, pace: Some(Duration::from_millis(10)) });
    let service = service::start(&settings, Arc::new(model), Arc::new(MemoryStore::new())).await?;
    writeln!(std::io::stdout(), "connect to ws://{}/ws", service.address())?;
    tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
    service.stop().await;
    Ok(())
}
