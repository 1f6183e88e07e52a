//! Tests of rounds on real files: what they copy and clear while the writer continues, and what stops them.

use super::{Copying, CopyingPlace, Frames, Limits, Outcome, ROUNDS_MAX};
use crate::sqlite::{
    checkpoint::{self, Cleared},
    health::Health,
    lock::Lock,
    open::{self, Beside},
    scrub::{self, Pages},
};
use rusqlite::Connection;
use std::{
    fs,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

const LIMITS: Limits = Limits { left: 20, growth: 200 };

/// Stands for the copy that SQLite leaves of a row that it moved to another page.
const REMAIN: &[u8; 8] = b"a remain";

/// A database whose log is copied back only when a test says so.
struct Subject {
    copying: Copying,
    db: Connection,
    path: PathBuf,
    frames: Arc<AtomicU32>,
    lock: Option<Lock>,
    _dir: tempfile::TempDir,
}

impl Subject {
    fn new(place: CopyingPlace) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reseed.db");
        let opened = open::open(&path, Beside::Served, None).unwrap();
        let watched = opened.lock.as_ref().map(|lock| lock.watched().clone());
        let health = Arc::<Health>::default();
        let copying = Copying::start(opened.copiers.unwrap(), place, LIMITS, watched, health).unwrap();
        let frames = Arc::new(AtomicU32::new(0));
        let seen = frames.clone();
        let mut db = opened.writer;
        db.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: i32| {
            seen.store(pages.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))
        .unwrap();
        Self { copying, db, path, frames, lock: opened.lock, _dir: dir }
    }

    /// Commits until about this many frames are added to the log.
    fn write(&self, frames: u32) {
        let until = self.frames() + frames;
        while self.frames() < until {
            self.commit();
        }
    }

    fn commit(&self) {
        self.db.execute("INSERT INTO session_state (state) VALUES (?1)", ["a state ".repeat(400)]).unwrap();
    }

    fn frames(&self) -> u32 {
        self.frames.load(Ordering::Relaxed)
    }

    fn begin(&mut self) -> bool {
        self.copying.begin(&self.db, self.frames.load(Ordering::Relaxed))
    }

    /// Returns the part that the current round has cleared, if any.
    fn cleared(&mut self) -> Option<Cleared> {
        self.copying.wait().unwrap().1.unwrap()
    }

    /// Returns the numbers of the pages in these frames of the log.
    fn pages(&self, Frames { first, last }: Frames) -> Pages {
        scrub::pages_in(&self.path.with_extension("db-wal"), u64::from(first - 1)..last.into()).unwrap()
    }

    /// Runs a checkpoint as another program would. Returns how many frames of the log are then in the database.
    fn foreign_checkpoint(&self) -> u32 {
        let other = Connection::open(&self.path).unwrap();
        loop {
            let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
            let (is_busy, copied) =
                other.query_row(checkpoint, [], |row| Ok((row.get::<_, bool>(0)?, row.get::<_, i64>(2)?))).unwrap();
            if !is_busy {
                return copied.try_into().unwrap();
            }
            thread::yield_now();
        }
    }

    /// Plants remains in the unused middle of the log's pages that are leaves in the database. Returns their number.
    fn plant(&self) -> usize {
        let database = self.lock.as_ref().unwrap().watched().file().unwrap();
        let mut planted = 0;
        for page in self.pages(Frames { first: 1, last: self.frames() }) {
            let at = u64::from(page - 1) * 8192;
            let mut header = [0; 8];
            if database.read_exact_at(&mut header, at).is_err() {
                // The page is new, and only in the log.
                continue;
            }
            let [kind, _, _, count_high, count_low, first_high, first_low, _] = header;
            let [count, first] = [[count_high, count_low], [first_high, first_low]].map(u16::from_be_bytes);
            if kind == 13 && 16 + 2 * count < first && page > 1 {
                database.write_all_at(REMAIN, at + u64::from(first) - 8).unwrap();
                planted += 1;
            }
        }
        planted
    }

    fn remains(&self) -> usize {
        fs::read(&self.path).unwrap().windows(REMAIN.len()).filter(|window| window == REMAIN).count()
    }
}

#[test]
fn a_round_copies_what_the_log_held_when_it_began_and_pins_the_log_until_it_ends() {
    for place in [CopyingPlace::Beside, CopyingPlace::Inline] {
        let mut subject = Subject::new(place);
        subject.write(40);
        let first = subject.frames();
        assert!(subject.begin() && subject.copying.is_under_way());
        subject.write(30);
        // The log was not restarted, and no one copies what was added.
        assert!(subject.frames() >= first + 30, "{place:?}");
        assert!(subject.foreign_checkpoint() <= first, "{place:?}");
        let cleared = subject.cleared().unwrap();
        assert_eq!((cleared.frames, subject.copying.is_under_way()), (first, false), "{place:?}");
        assert!(!cleared.sample.is_empty());
        assert!(cleared.sample.is_subset(&subject.pages(Frames { first: 1, last: first })));
        // Without the pin, all of it is copied.
        assert_eq!(subject.foreign_checkpoint(), subject.frames());
    }
}

#[test]
fn after_a_round_another_follows_only_if_much_was_added_and_not_indefinitely() {
    let mut subject = Subject::new(CopyingPlace::Inline);
    subject.write(10);
    let mut last = subject.frames();
    assert!(subject.begin());
    let (mut round, _) = subject.copying.wait().unwrap();
    for number in 2..=ROUNDS_MAX {
        assert!(!subject.copying.go_on(&subject.db, round, subject.frames()), "little was added");
        subject.write(LIMITS.left + 1);
        let frames = subject.frames();
        assert!(subject.copying.go_on(&subject.db, round, frames), "round {number}");
        let (next, outcome) = subject.copying.wait().unwrap();
        assert_eq!(outcome.unwrap().unwrap().frames, frames);
        assert_eq!((next.number, next.frames), (number, Frames { first: last + 1, last: frames }));
        (round, last) = (next, frames);
    }
    subject.write(LIMITS.left + 1);
    assert!(!subject.copying.go_on(&subject.db, round, subject.frames()), "these were rounds enough");
    // The limit applies however many rounds there were: a log must not grow beyond it.
    assert!(!subject.copying.is_behind(subject.frames()) && subject.begin());
    let (first, _) = subject.copying.wait().unwrap();
    subject.write(LIMITS.growth);
    assert!(subject.copying.is_behind(subject.frames()));
    assert!(!subject.copying.go_on(&subject.db, first, subject.frames()));
}

#[test]
fn a_round_clears_unused_bytes_of_its_pages_and_the_rest_is_cleared_after_it() {
    let mut subject = Subject::new(CopyingPlace::Beside);
    subject.write(40);
    // A reader keeps the log from being restarted, so the next round meets its pages once more.
    let reader = Connection::open(&subject.path).unwrap();
    reader.execute_batch("BEGIN; SELECT 1 FROM session_state").unwrap();
    assert_eq!(subject.foreign_checkpoint(), subject.frames());
    let planted = subject.plant();
    assert!(planted > 2 && subject.remains() == planted, "{planted}");
    subject.commit();
    assert!(subject.frames() > 40);
    drop(reader);
    assert!(subject.begin());
    subject.db.execute("UPDATE session_state SET checksum = 1 WHERE session = 1", []).unwrap();
    let cleared = subject.cleared().unwrap();
    assert_eq!(subject.remains(), 0);
    // Only the frames that were added are read again.
    let planted = subject.plant();
    assert_eq!(checkpoint::copy_back_after(&subject.db, subject.lock.as_ref(), cleared), Ok(true));
    let left = subject.remains();
    assert!(left > 0 && left < planted, "{left} of {planted}");
    assert_eq!(checkpoint::copy_back(&subject.db, subject.lock.as_ref()), Ok(true));
    assert_eq!(subject.remains(), 0);
}

#[test]
fn pages_cleared_in_one_log_do_not_count_for_the_next() {
    let mut subject = Subject::new(CopyingPlace::Inline);
    subject.write(40);
    assert!(subject.begin());
    let cleared = subject.cleared().unwrap();
    // All of the log is copied, so the next commit restarts it.
    subject.commit();
    assert!(subject.frames() < cleared.frames);
    subject.foreign_checkpoint();
    assert!(subject.plant() > 0);
    assert_eq!(checkpoint::copy_back_after(&subject.db, subject.lock.as_ref(), cleared), Ok(true));
    assert_eq!(subject.remains(), 0);
}

#[test]
fn there_is_no_round_over_a_log_that_is_copied_or_of_another_length() {
    let mut subject = Subject::new(CopyingPlace::Beside);
    subject.write(10);
    let frames = subject.frames();
    for wrong in [frames - 1, frames + 1] {
        assert!(!subject.copying.begin(&subject.db, wrong));
    }
    // The log is fully copied, so the snapshot would not pin it.
    subject.foreign_checkpoint();
    assert!(!subject.begin());
    assert!(!subject.copying.is_under_way() && subject.copying.ended().is_none() && subject.copying.wait().is_none());
    // No snapshot was kept, so the log is restarted.
    subject.commit();
    assert!(subject.frames() < frames);
}

#[test]
fn a_reader_of_an_older_snapshot_keeps_a_round_from_finishing() {
    let ended = |outcome: Option<(_, Outcome)>| outcome.unwrap().1.unwrap().map(|cleared| cleared.frames);
    for place in [CopyingPlace::Beside, CopyingPlace::Inline] {
        let mut subject = Subject::new(place);
        subject.write(10);
        let reader = Connection::open(&subject.path).unwrap();
        reader.execute_batch("BEGIN; SELECT 1 FROM session_state").unwrap();
        subject.write(10);
        assert!(subject.begin());
        // The thread retries for as long as reads take; the inline one tries only once.
        assert_eq!(ended(subject.copying.wait()), None, "{place:?}");
        assert!(subject.begin());
        drop(reader);
        let mut cleared = ended(subject.copying.wait());
        if cleared.is_none() {
            // This thread was delayed for longer than the other one retries.
            assert!(subject.begin());
            cleared = ended(subject.copying.wait());
        }
        assert_eq!(cleared, Some(subject.frames()), "{place:?}");
    }
}
