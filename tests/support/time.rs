//! Stopped time, for tests with a paused clock and real sockets.

use std::{sync::mpsc, time::Duration};

/// Stops time, which otherwise jumps to whatever is due next while a frame is still between two sockets. Only
/// [`tokio::time::advance`] moves it then. Dropping this lets time continue as before.
pub(crate) struct StoppedTime(Option<mpsc::Sender<()>>);

impl StoppedTime {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::channel();
        // While a blocking task is running, the runtime does not advance a paused clock by itself.
        tokio::task::spawn_blocking(move || receiver.recv());
        Self(Some(sender))
    }

    pub(crate) async fn pass(&self, secs: u64) {
        tokio::time::advance(Duration::from_secs(secs)).await;
    }
}

impl Drop for StoppedTime {
    fn drop(&mut self) {
        self.0.take();
    }
}
