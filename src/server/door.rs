//! Admits TCP connections, and bounds what a client can hold before it has authenticated.
//!
//! A connection is a *guest* from the moment it is accepted until it is the socket of a known user. A plain HTTP
//! connection stays a guest. The number of guests is bounded in total. It is also bounded per address, if the address
//! identifies a client. When there is no room, the oldest guest of the address with the most guests must leave. If
//! several addresses tie, the oldest of their guests leaves. So an attacker who floods the server from a few addresses
//! shuts out only himself. With many addresses he can delay other clients, who need a place for one round trip.
//!
//! The bytes of partially received messages are bounded too. A guest may hold [`GUEST_MESSAGE_BYTES_MAX`]. What known
//! users hold beyond that comes from a budget of the server, and each user may take a share of it.

use super::address::{Addresses, network};
use crate::{
    config::LimitSettings,
    metrics::limits::Limit,
    shares::{Permit, quota::Quota},
};
use futures_util::task::AtomicWaker;
use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
};

/// Maximum message of a guest. `hello` with a token has less than 8 KiB.
pub(super) const GUEST_MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// The fraction of the server's budget for partial messages that one user may take.
const SHARE_OF_PARTIAL: u64 = 4;

/// The fraction of the guests that one address may have. After a restart, many users of one network connect at once. A
/// few networks must not fill all the room.
const GUESTS_PER_ADDRESS_PART: usize = 8;

/// Bytes of the header of a ping or pong, including its mask.
const CONTROL_HEAD_BYTES: usize = 6;

/// The states of a connection at the door: its credentials are unknown or known, or it was asked to leave.
const GUEST: u8 = 0;
const KNOWN: u8 = 1;
const ASKED_TO_LEAVE: u8 = 2;

/// Admits connections.
#[derive(Debug)]
pub(super) struct Door {
    guests_max: usize,
    guests_per_address_max: usize,
    addresses: Arc<Addresses>,
    guests: Mutex<Guests>,
    /// The bytes of partial messages that known users hold beyond the guests' allowance.
    partial: Arc<Quota>,
}

#[derive(Debug, Default)]
struct Guests {
    next: u64,
    /// Ordered by age. At most `guests_max`.
    all: BTreeMap<u64, Arc<Presence>>,
}

/// The state of a connection. Its task reads it, and the door writes it.
#[derive(Debug)]
struct Presence {
    address: IpAddr,
    state: AtomicU8,
    /// Wakes the connection's task when it must leave.
    waker: AtomicWaker,
}

/// A connection that the door has admitted. Dropping it releases its place.
#[derive(Debug)]
pub(super) struct Guest {
    door: Arc<Door>,
    number: u64,
    presence: Arc<Presence>,
    /// True once it is a WebSocket, whose writes have their own time limit.
    upgraded: AtomicBool,
    /// Bytes read since the last complete message.
    held: AtomicUsize,
    /// The user, and the bytes taken from the budget for partial messages.
    taken: Mutex<(Option<String>, Permit)>,
}

/// The reason why a connection may not be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// Another guest needed the room.
    #[error("too many connections that have not authenticated")]
    Room,
    /// A guest has sent too much.
    #[error("a client that has not sent hello with its credentials may send 16 KiB")]
    GuestMessage,
    /// Partial messages hold too many bytes.
    #[error("too many bytes of partly received messages")]
    Partial,
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(io::ErrorKind::ConnectionAborted, refusal)
    }
}

impl Door {
    pub(super) fn new(settings: &LimitSettings, addresses: Arc<Addresses>) -> Arc<Self> {
        let guests_max = settings.guests_max as usize;
        Self::with(settings, guests_max.div_ceil(GUESTS_PER_ADDRESS_PART), addresses)
    }

    fn with(settings: &LimitSettings, guests_per_address_max: usize, addresses: Arc<Addresses>) -> Arc<Self> {
        // A user's share has room for one message of the maximum size.
        let partial_max = settings.partial_bytes_max.max(settings.message_bytes_max.saturating_mul(SHARE_OF_PARTIAL));
        Arc::new(Self {
            addresses,
            guests_max: settings.guests_max as usize,
            guests_per_address_max,
            guests: Mutex::default(),
            partial: Quota::new(partial_max, partial_max / SHARE_OF_PARTIAL),
        })
    }

    /// Admits a connection. If there is no room, another guest is asked to leave.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Arc<Guest> {
        let is_shared = self.addresses.is_shared(address);
        let address = network(address);
        let presence = Arc::new(Presence { address, state: AtomicU8::new(GUEST), waker: AtomicWaker::new() });
        let mut guests = lock(&self.guests);
        let most = self.guests_per_address_max;
        if !is_shared && most > 0 && guests.of(address).count() >= most {
            guests.ask_to_leave(address, Limit::GuestsPerAddress);
        } else if guests.all.len() >= self.guests_max {
            let crowded = guests.most_crowded().unwrap_or(address);
            guests.ask_to_leave(crowded, Limit::Guests);
        }
        let number = guests.next;
        guests.next += 1;
        guests.all.insert(number, presence.clone());
        drop(guests);
        Arc::new(Guest {
            door: self.clone(),
            number,
            presence,
            upgraded: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            taken: Mutex::default(),
        })
    }
}

impl Guests {
    /// Returns the numbers of an address's guests, the oldest first.
    fn of(&self, address: IpAddr) -> impl Iterator<Item = u64> {
        self.all.iter().filter(move |(_, presence)| presence.address == address).map(|(number, _)| *number)
    }

    /// Returns the address with the most guests. If several tie, it is that of the oldest guest.
    fn most_crowded(&self) -> Option<IpAddr> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        self.all.values().for_each(|presence| *counts.entry(presence.address).or_default() += 1);
        let most = counts.values().copied().max()?;
        self.all.values().map(|presence| presence.address).find(|address| counts.get(address) == Some(&most))
    }

    /// Asks the oldest guest of this address to leave.
    fn ask_to_leave(&mut self, address: IpAddr, limit: Limit) {
        let Some(oldest) = self.of(address).next() else { return };
        let Some(presence) = self.all.remove(&oldest) else { return };
        // It may have authenticated in the meantime.
        let state = &presence.state;
        if state.compare_exchange(GUEST, ASKED_TO_LEAVE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            limit.refused();
            presence.waker.wake();
        }
    }
}

impl Guest {
    /// Records the connection's user. It is no longer a guest.
    pub(super) fn known_as(&self, user: &str) {
        let was_guest = self.presence.state.compare_exchange(GUEST, KNOWN, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if was_guest {
            lock(&self.door.guests).all.remove(&self.number);
            // The door wakes only guests. The waker may belong to the handshake's task, and would keep its memory
            // alive.
            drop(self.presence.waker.take());
        }
        self.message_read();
        lock(&self.taken).0 = Some(user.to_owned());
    }

    /// Records that the connection is now a WebSocket. Everything read so far was its handshake.
    pub(super) fn upgraded(&self) {
        self.upgraded.store(true, Ordering::Relaxed);
        self.held.store(0, Ordering::Relaxed);
    }

    pub(super) fn is_upgraded(&self) -> bool {
        self.upgraded.load(Ordering::Relaxed)
    }

    /// Checks that the connection may stay, and registers the waker to call when it must leave.
    pub(super) fn may_stay(&self, waker: &Waker) -> Result<(), Refusal> {
        if self.presence.state.load(Ordering::Acquire) == KNOWN {
            return Ok(());
        }
        self.presence.waker.register(waker);
        match self.presence.state.load(Ordering::Acquire) {
            ASKED_TO_LEAVE => Err(Refusal::Room),
            _ => Ok(()),
        }
    }

    /// Waits until the connection must leave.
    pub(super) async fn asked_to_leave(&self) {
        std::future::poll_fn(|cx| if self.may_stay(cx.waker()).is_ok() { Poll::Pending } else { Poll::Ready(()) })
            .await;
    }

    /// Counts bytes read from a WebSocket.
    pub(super) fn read(&self, bytes: usize) -> Result<(), Refusal> {
        if bytes == 0 || !self.is_upgraded() {
            return Ok(());
        }
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let Some(beyond) = held.checked_sub(GUEST_MESSAGE_BYTES_MAX + 1).map(|beyond| beyond + 1) else {
            return Ok(());
        };
        let mut taken = lock(&self.taken);
        let (user, taken) = &mut *taken;
        let Some(user) = user else {
            Limit::GuestMessage.refused();
            return Err(Refusal::GuestMessage);
        };
        if beyond as u64 > taken.count() {
            *taken = self.door.partial.exchange(user, beyond as u64, taken).map_err(|_| {
                Limit::PartialBytes.refused();
                Refusal::Partial
            })?;
        }
        Ok(())
    }

    /// Records that a complete message was received.
    pub(super) fn message_read(&self) {
        self.held.store(0, Ordering::Relaxed);
        lock(&self.taken).1 = Permit::default();
    }

    /// Records that a ping or pong of this size was received. It may come between the fragments of a message.
    pub(super) fn control_read(&self, bytes: usize) {
        let less = |held: usize| Some(held.saturating_sub(bytes + CONTROL_HEAD_BYTES));
        let _ = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    pub(super) fn must_leave(&self) -> bool {
        self.presence.state.load(Ordering::Acquire) == ASKED_TO_LEAVE
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        lock(&self.door.guests).all.remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
pub(super) mod turns;
