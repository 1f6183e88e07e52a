//! Polls for what no frame reports, with a time limit.

use std::time::{Duration, Instant};

/// The time limit for a poll on a machine that is busy with other tests; only a failing test reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The pause between two polls. Each poll is a request, which the servers must answer beside their work.
const POLL: Duration = Duration::from_millis(50);

/// Calls `ask` until it succeeds. If that takes too long, the failure names `what`.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match ask().await {
            Ok(found) => return found,
            Err(last) => assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}; at last {last}"),
        }
        tokio::time::sleep(POLL).await;
    }
}
