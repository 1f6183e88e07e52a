//! Writes what the server counted in each minute, for operators.

use crate::{
    clock::{Clock as _, SystemClock},
    metrics::{Handle, minute::Sample},
    store::{MinuteRow, SessionStore},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

const MINUTE_MILLIS: i64 = 60_000;

/// The writer of the ring of minutes. A write that fails loses its minute and nothing else.
pub(super) struct Minutes {
    store: Arc<dyn SessionStore>,
    metrics: Handle,
    node: String,
    /// Identifies this process.
    process: String,
    /// The values at the end of the last minute.
    last: Mutex<Sample>,
}

impl Minutes {
    pub(super) fn new(store: Arc<dyn SessionStore>, metrics: Handle, node: String, process: String) -> Self {
        let last = Mutex::new(Sample::of(&metrics.render()));
        Self { store, metrics, node, process, last }
    }

    /// Writes each minute when it has ended, until the server stops.
    pub(super) fn keep(self: &Arc<Self>, stop: CancellationToken) {
        let minutes = self.clone();
        tokio::spawn(async move {
            loop {
                let left = MINUTE_MILLIS - SystemClock.now().0.rem_euclid(MINUTE_MILLIS);
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(Duration::from_millis(left.unsigned_abs())) => {}
                }
                // The minute that has just ended, even if the timer was a little early.
                minutes.write(SystemClock.now().0 - MINUTE_MILLIS / 2).await;
            }
        });
    }

    /// Writes the last part of a minute, which is not over.
    pub(super) async fn write_last(&self) {
        self.write(SystemClock.now().0).await;
    }

    /// Writes what was counted since the last time, as the minute of this time.
    async fn write(&self, millis: i64) {
        let mut last = self.last.lock().await;
        let metrics = self.metrics.clone();
        // Rendering takes some milliseconds.
        let sampled = tokio::task::spawn_blocking(move || Sample::of(&metrics.render())).await;
        let Ok(sample) = sampled else { return };
        let mut counted = sample.since(&last);
        *last = sample;
        counted["node"] = self.node.clone().into();
        let minute = millis.div_euclid(MINUTE_MILLIS);
        let row = MinuteRow { minute, process: self.process.clone(), body: counted.to_string() };
        if let Err(error) = self.store.put_minute(row).await {
            tracing::warn!(%error, "store what was counted in a minute");
        }
    }
}
