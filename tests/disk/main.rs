//! The store on a disk that does what disks do: it drops, reorders and tears unsynced data, it fills up, and its reads,
//! writes and syncs fail.
//!
//! The production store runs on a simulated disk (`device.rs`) through a VFS of SQLite (`vfs.rs`); seeded lives and
//! crashes are checked against a plain model (`world.rs`). `SEED=72 cargo test --test disk` repeats one seed,
//! `SEEDS=10000` runs more of them. Stores with deliberate faults (`broken.rs`) show that the checks can fail.

#![expect(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod broken;
mod device;
mod faults;
mod locks;
mod model;
mod stored;
mod vfs;
mod world;

use broken::How;
use device::Lie;
use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
use world::Setup;

/// Seeds of a normal run: some 20 s on two processors.
const SEEDS: u64 = 150;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`, which is no number")))
}

fn run(seed: u64, setup: Setup) -> Result<world::Summary, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(world::run(seed, setup))
}

#[test]
fn nothing_acknowledged_is_lost() {
    let (first, last) = match number("SEED") {
        Some(seed) => (seed, seed),
        None => (0, number("SEEDS").unwrap_or(SEEDS) - 1),
    };
    let (next, failures) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let sum = Mutex::new(world::Summary::default());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > last {
                        break;
                    }
                    match run(seed, Setup::sound()) {
                        Ok(summary) => sum.lock().unwrap().add(&summary),
                        Err(error) => failures.lock().unwrap().push(format!("SEED={seed}: {error}")),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} seeds failed:\n{}", failures.len(), failures.join("\n"));
    let sum = sum.into_inner().unwrap();
    eprintln!("{sum:?}");
    // A run without crashes or writes would prove nothing.
    if first != last {
        let seeds = last - first + 1;
        assert!(sum.power_lost > seeds && sum.acknowledged > 20 * seeds && sum.refused_stale > seeds / 4, "{sum:?}");
        assert!(sum.unknown > seeds / 2 && sum.syncs_failed > seeds / 20, "{sum:?}");
    }
}

#[test]
fn a_seed_repeats() {
    for seed in [3, 17, 40] {
        let once = run(seed, Setup::sound()).unwrap();
        assert_eq!(run(seed, Setup::sound()).unwrap(), once, "SEED={seed}");
    }
}

/// The suite finds what it is for: each faulty store, and each disk that lies, fails within a few seeds.
#[test]
fn what_is_wrong_is_caught() {
    let wrong = [
        ("no sync reaches the disk", Setup { lie: Lie::Everywhere, how: How::Right }),
        ("the log is not synced", Setup { lie: Lie::Log, how: How::Right }),
        ("the database is not synced before the log begins anew", Setup { lie: Lie::Database, how: How::Right }),
        ("acknowledged before the sync", Setup { lie: Lie::None, how: How::AcknowledgesEarly }),
        ("the term is ignored", Setup { lie: Lie::None, how: How::IgnoresTerm }),
        ("a failure is acknowledged", Setup { lie: Lie::None, how: How::HidesFailures }),
    ];
    for (what, setup) in wrong {
        let caught = (0..60).find_map(|seed| run(seed, setup).err().map(|error| (seed, error)));
        let (seed, error) = caught.unwrap_or_else(|| panic!("{what}: not caught"));
        eprintln!("{what}: caught at seed {seed}: {error}");
    }
}
