//! Limits on the number of connections.

use super::address::{Addresses, network};
use crate::{config::LimitSettings, metrics::limits::Limit};
use dashmap::DashMap;
use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The limits and their current use.
#[derive(Debug)]
pub(crate) struct Limits {
    settings: LimitSettings,
    connections: AtomicUsize,
    /// The connections of each address.
    connections_of: DashMap<IpAddr, usize>,
    addresses: Arc<Addresses>,
}

/// A connection's permit, released on drop.
#[derive(Debug)]
pub(crate) struct Place {
    limits: Arc<Limits>,
    address: Option<IpAddr>,
}

impl Limits {
    /// Creates the limits, unused.
    #[must_use]
    pub(crate) fn new(settings: LimitSettings, addresses: Arc<Addresses>) -> Arc<Self> {
        Arc::new(Self { settings, connections: AtomicUsize::new(0), connections_of: DashMap::new(), addresses })
    }

    pub(super) fn settings(&self) -> &LimitSettings {
        &self.settings
    }

    /// Returns the bytes of the largest message that a client may send.
    #[must_use]
    pub(crate) fn message_bytes_max(&self) -> usize {
        usize::try_from(self.settings.message_bytes_max).unwrap_or(usize::MAX)
    }

    /// Takes a permit for a connection from this address; `None` if the limit is reached.
    #[must_use]
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let taken = self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < self.settings.connections_max as usize).then_some(count + 1)
        });
        if taken.is_err() {
            Limit::Connections.refused();
            return None;
        }
        let mut place = Place { limits: self.clone(), address: None };
        if self.settings.connections_per_address_max > 0 && !self.addresses.is_shared(address) {
            let address = network(address);
            let mut count = self.connections_of.entry(address).or_insert(0);
            if *count >= self.settings.connections_per_address_max as usize {
                Limit::ConnectionsPerAddress.refused();
                return None;
            }
            *count += 1;
            place.address = Some(address);
        }
        Some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limits.connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(address) = self.address {
            self.limits.connections_of.remove_if_mut(&address, |_, count| {
                *count -= 1;
                *count == 0
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(connections_max: u32, per_address: u32) -> Arc<Limits> {
        let settings =
            LimitSettings { connections_max, connections_per_address_max: per_address, ..LimitSettings::default() };
        Limits::new(settings, Arc::default())
    }

    #[test]
    fn places_are_bounded_in_all_and_by_address_and_come_back() {
        let (a, b): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let limits = limits(3, 2);
        let first = limits.enter(a);
        let second = limits.enter(a);
        assert!(first.is_some() && second.is_some() && limits.enter(a).is_none());
        let third = limits.enter(b);
        assert!(third.is_some() && limits.enter(b).is_none(), "three in all");
        drop(first);
        assert!(limits.enter(a).is_some());
        drop((second, third));
        let here: Vec<_> = (0..3).map(|_| limits.enter([127, 0, 0, 1].into())).collect();
        assert!(here.iter().all(Option::is_some), "clients share such an address");
    }
}
