//! Tests which connections are admitted and which are closed, and how much a partial message may hold.

use super::*;
use futures_util::task::noop_waker;

fn door(guests: u32, per_address: usize, partial: u64) -> Arc<Door> {
    let settings = LimitSettings {
        guests_max: guests,
        partial_bytes_max: partial,
        message_bytes_max: 1024,
        ..LimitSettings::default()
    };
    Door::with(&settings, per_address, Arc::default())
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("the test's address")
}

/// Returns, for each guest, whether it may stay.
fn staying(guests: &[&Arc<Guest>]) -> Vec<bool> {
    guests.iter().map(|guest| guest.may_stay(&noop_waker()).is_ok()).collect()
}

#[test]
fn whoever_crowds_the_door_makes_room() {
    let door = door(4, 0, 0);
    let honest = door.admit(address("192.0.2.1"));
    let crowd: Vec<_> = (0..20).map(|_| door.admit(address("192.0.2.66"))).collect();
    assert_eq!(staying(&[&honest]), [true], "the only one of its address stays");
    let stay = crowd.iter().filter(|guest| staying(&[guest]) == [true]).count();
    assert_eq!(stay, 3, "the others have the rest");
    assert_eq!(staying(&[crowd.last().unwrap()]), [true], "the newest comes in");
    drop(crowd);
    assert_eq!(lock(&door.guests).all.len(), 1);
}

#[test]
fn one_who_is_known_is_no_guest_and_stays() {
    let door = door(2, 0, 0);
    let known = door.admit(address("192.0.2.1"));
    known.known_as("ann");
    let others: Vec<_> = (0..5).map(|_| door.admit(address("192.0.2.1"))).collect();
    assert_eq!(staying(&[&known, &others[0], &others[4]]), [true, false, true]);
}

/// A finished task keeps its memory as long as one of its wakers exists: here a kilobyte per connection.
#[test]
fn of_one_who_is_known_no_waker_is_kept() {
    struct Task;
    impl std::task::Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let task = Arc::new(Task);
    let guest = door(2, 0, 0).admit(address("192.0.2.1"));
    assert_eq!(guest.may_stay(&task.clone().into()), Ok(()));
    assert_eq!(Arc::strong_count(&task), 2, "a guest may have to be woken");
    guest.known_as("ann");
    assert_eq!(guest.may_stay(&task.clone().into()), Ok(()));
    assert_eq!(Arc::strong_count(&task), 1);
}

#[test]
fn an_address_has_its_share_unless_many_clients_have_it() {
    for (text, other, is_bounded) in [
        ("203.0.113.1", "203.0.113.1", true),
        ("203.0.113.1", "203.0.113.2", false),
        // A client has a whole /64 network.
        ("2001:db8::1", "2001:db8::2", true),
        ("2001:db8::1", "2001:db8:0:1::1", false),
        ("::ffff:203.0.113.1", "203.0.113.1", true),
        ("127.0.0.1", "127.0.0.1", false),
        ("::1", "::1", false),
        ("10.0.0.1", "10.0.0.1", false),
        ("fd00::1", "fd00::1", false),
    ] {
        let door = door(100, 1, 0);
        let (first, _second) = (door.admit(address(text)), door.admit(address(other)));
        assert_eq!(staying(&[&first]), [!is_bounded], "{text} and {other}");
    }
}

#[test]
fn a_guest_may_hold_a_little_and_a_user_what_the_budget_has() {
    let door = door(10, 0, 400_000);
    let socket = |user: Option<&str>| {
        let guest = door.admit(address("192.0.2.1"));
        guest.upgraded();
        user.inspect(|user| guest.known_as(user));
        guest
    };
    assert_eq!(socket(None).read(GUEST_MESSAGE_BYTES_MAX), Ok(()));
    assert_eq!(socket(None).read(GUEST_MESSAGE_BYTES_MAX + 1), Err(Refusal::GuestMessage));
    // Each user has a quarter.
    let (one, two) = (socket(Some("ann")), socket(Some("ann")));
    assert_eq!((one.read(100_000), two.read(40_000)), (Ok(()), Err(Refusal::Partial)));
    assert_eq!(socket(Some("bob")).read(100_000), Ok(()), "others have theirs");
    one.message_read();
    assert_eq!(socket(Some("ann")).read(100_000), Ok(()), "a whole message gives it back");
    drop((one, two));
    assert_eq!(door.partial.total(), 0, "and so does the end of a connection");
}

#[test]
fn pings_between_the_parts_of_a_message_give_nothing_back() {
    let door = door(10, 0, 0);
    let guest = door.admit(address("192.0.2.1"));
    guest.upgraded();
    let parts: Vec<_> = (0..4)
        .map(|_| {
            let read = guest.read(6_000 + 6 + 10);
            guest.control_read(10);
            read
        })
        .collect();
    assert_eq!(parts, [Ok(()), Ok(()), Err(Refusal::GuestMessage), Err(Refusal::GuestMessage)]);
    // Pongs in answer to the server's pings do not add up.
    let idle = door.admit(address("192.0.2.1"));
    idle.upgraded();
    for _ in 0..10_000 {
        assert_eq!(idle.read(6), Ok(()));
        idle.control_read(0);
    }
}

#[test]
fn of_many_addresses_the_oldest_guest_leaves() {
    let door = door(3, 0, 0);
    let guests: Vec<_> = (1..=6).map(|host| door.admit(address(&format!("192.0.2.{host}")))).collect();
    let stay: Vec<bool> = guests.iter().map(|guest| guest.may_stay(&noop_waker()).is_ok()).collect();
    assert_eq!(stay, [false, false, false, true, true, true]);
}

#[test]
fn all_users_together_have_the_budget() {
    let door = door(10, 0, 100_000);
    let users: Vec<_> = (0..6)
        .map(|user| {
            let guest = door.admit(address("192.0.2.1"));
            guest.upgraded();
            guest.known_as(&format!("user-{user}"));
            let read = guest.read(GUEST_MESSAGE_BYTES_MAX + 20_000);
            (guest, read)
        })
        .collect();
    assert_eq!(users.iter().filter(|(_, read)| read.is_ok()).count(), 5);
}
