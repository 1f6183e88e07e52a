//! The time from the start of the process to its first answer.

use crate::{
    figures::{Figures, Goal, median, ms},
    process::Bench,
};

/// The number of starts whose median is taken, if there are as many rounds.
const STARTS: usize = 5;

pub(crate) async fn measure(bench: &Bench, rounds: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let starts = STARTS.min(rounds);
    let base_url = bench.upstream.base_url();
    let cases: [(&str, &[(&str, &str)]); 2] = [
        ("offline", &[("MODEL", "offline")]),
        ("upstream", &[("OPENAI_BASE_URL", &base_url), ("CONTEXT_WINDOW", "1000000")]),
    ];
    for (name, settings) in cases {
        let mut fresh = Vec::new();
        for start in 0..starts {
            fresh.push(bench.reseed_with(&bench.database(&format!("{name}-{start}")), settings).await?.started_in);
        }
        figures.add(&format!("start: {name}, no database yet"), ms(median(fresh)), "ms", Goal::AtMost(100.0));
        let mut again = Vec::new();
        for _ in 0..starts {
            again.push(bench.reseed_with(&bench.database(&format!("{name}-0")), settings).await?.started_in);
        }
        figures.add(&format!("start: {name}, with a database"), ms(median(again)), "ms", Goal::AtMost(100.0));
    }
    Ok(())
}
