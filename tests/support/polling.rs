//! Polls what no frame tells, with a time limit.

use std::time::{Duration, Instant};

/// The time limit for what is polled on a machine that is busy with other tests; only a failing test reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The pause between two polls: a question each, and no more of them than the servers can answer beside their work.
const POLL: Duration = Duration::from_millis(50);

/// Asks until there is an answer; the question itself is the wait. `what` names it if there is none in time.
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
