//! Limits on the number of connections.

use crate::{config::LimitSettings, metrics::limits::Limit};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The limits and their current use.
#[derive(Debug)]
pub(crate) struct Limits {
    settings: LimitSettings,
    connections: AtomicUsize,
}

/// A connection's permit, released on drop.
#[derive(Debug)]
pub(crate) struct Place {
    limits: Arc<Limits>,
}

impl Limits {
    #[must_use]
    pub(crate) fn new(settings: LimitSettings) -> Arc<Self> {
        Arc::new(Self { settings, connections: AtomicUsize::new(0) })
    }

    pub(super) fn settings(&self) -> &LimitSettings {
        &self.settings
    }

    /// Returns the bytes of the largest message that a client may send.
    #[must_use]
    pub(crate) fn message_bytes_max(&self) -> usize {
        usize::try_from(self.settings.message_bytes_max).unwrap_or(usize::MAX)
    }

    /// Takes a permit for a connection; `None` if the limit is reached.
    #[must_use]
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Place> {
        let taken = self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < self.settings.connections_max as usize).then_some(count + 1)
        });
        if taken.is_err() {
            Limit::Connections.refused();
            return None;
        }
        Some(Place { limits: self.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limits.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let limits = Limits::new(LimitSettings { connections_max: 2, ..LimitSettings::default() });
        let (first, second) = (limits.enter(), limits.enter());
        assert!(first.is_some() && second.is_some() && limits.enter().is_none());
        drop(first);
        assert!(limits.enter().is_some());
    }
}
