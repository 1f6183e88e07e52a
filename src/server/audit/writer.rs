//! The file of the audit log. One thread writes it, in groups: each group is one short write and one sync.
//!
//! - Lines are only ever appended. The bytes of a write that failed stay, and the next line declares them, as after a
//!   restart.
//! - After a failed sync nothing more is written: the system may have dropped what it reported as written. A restart,
//!   or a new file, begins again from what can be read.
//! - The file is locked, so two servers cannot write one chain.

use super::{
    SERVER,
    chain::{self, BEGIN, Head, LINE_BYTES_MAX, Line, TORN_BYTES_MAX, hash},
};
use crate::{
    clock::{Clock as _, SystemClock},
    metrics::AUDIT_LINES_TOTAL,
    store::Spaced,
};
use std::{
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io::{self, Read, Seek as _, SeekFrom, Write as _},
    mem,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
use tokio::sync::{mpsc, oneshot};

/// Lines that may wait for the disk. A stalled disk fills the queue; acts then wait, and other lines are left out.
const QUEUE_MAX: usize = 1024;

/// The lines after which the head is logged, so that a copy of it is kept elsewhere.
const HEAD_EVERY: u64 = 1_000;

/// Maximum bytes of a group with several lines. The bytes that two power cuts in a row leave unfinished are less than
/// [`TORN_BYTES_MAX`] then.
const GROUP_BYTES_MAX: usize = TORN_BYTES_MAX / 2;

/// Bytes at the end of a file that hold its last line, and what may be unfinished after it.
const END_BYTES: usize = LINE_BYTES_MAX + TORN_BYTES_MAX;

/// A file that ends with a chain.
#[derive(Debug)]
struct Chain {
    path: PathBuf,
    file: File,
    head: Head,
    /// Written before the next line: the line break that unfinished bytes lack.
    gap: &'static str,
    /// The hash of the unfinished bytes, which the next line declares.
    torn: Option<String>,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Sound,
    /// A write failed: the end of the file must be read.
    Unknown,
    /// A sync failed.
    Lost(String),
}

impl Chain {
    /// Opens the file, and continues its chain. A new file continues `head`, after unfinished bytes with the hash
    /// `torn`.
    fn open(path: &Path, head: Head, torn: Option<String>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let locked = |path: &Path| {
            let file = options.open(path)?;
            file.try_lock().map_err(|error| match error {
                TryLockError::WouldBlock => io::Error::other("another process writes to it"),
                TryLockError::Error(error) => error,
            })?;
            Ok::<_, io::Error>(file)
        };
        let mut chain = Self { path: path.to_owned(), file: locked(path)?, head, gap: "", torn, state: State::Sound };
        let found = chain.file.metadata()?;
        if !is_same(&found, &fs::metadata(path)?) {
            return Err(io::Error::other("another process has just begun it"));
        }
        if found.len() > 0 {
            chain.find_end()?;
            return Ok(chain);
        }
        // The file appears with its first line, so that it never ends with a part of it.
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(".new");
        let file = locked(fresh.as_ref())?;
        file.set_permissions(found.permissions())?;
        // An earlier attempt may have left a part.
        file.set_len(0)?;
        let empty = mem::replace(&mut chain.file, file);
        chain.append(&mut [Line { what: BEGIN.to_owned(), who: SERVER.to_owned(), ..Line::default() }])?;
        fs::rename(&fresh, path)?;
        // If this fails, the lock remains until the last copy is closed.
        let _ = empty.unlock();
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if cfg!(unix) {
            File::open(directory)?.sync_all()?;
        }
        Ok(chain)
    }

    /// Reads the end of the file: the last line, and unfinished bytes after it.
    fn find_end(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let start = length.saturating_sub(END_BYTES as u64);
        self.file.seek(SeekFrom::Start(start))?;
        let mut end = Vec::new();
        Read::take(&self.file, END_BYTES as u64).read_to_end(&mut end)?;
        let is_ended = end.last() == Some(&b'\n');
        end.pop_if(|_| is_ended);
        let mut until = end.len();
        loop {
            let from = end[..until].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            if let Some(line) = chain::read(&end[from..until]) {
                self.head = Head::after(line.seq, &end[from..until]);
                let torn = end.get(until + 1..).filter(|torn| !torn.is_empty());
                (self.gap, self.torn) = (if is_ended { "" } else { "\n" }, torn.map(hash));
                return Ok(());
            }
            let Some(before) = from.checked_sub(1) else {
                return Err(io::Error::other("it does not end with a line of an audit log; move it away"));
            };
            until = before;
        }
    }

    /// Appends the first of these lines, as many as a group has, and syncs them. Returns their number.
    fn append(&mut self, lines: &mut [Line]) -> io::Result<usize> {
        match &self.state {
            State::Sound => {}
            State::Unknown => self.find_end()?,
            State::Lost(why) => return Err(io::Error::other(why.clone())),
        }
        let (mut text, mut head, mut count) = (self.gap.to_owned(), self.head.clone(), 0);
        for line in lines {
            (line.seq, line.time, line.previous) = (head.seq + 1, SystemClock.now(), head.hash.clone());
            line.torn = self.torn.clone().filter(|_| count == 0);
            let json = serde_json::to_string(line)?;
            if count > 0 && text.len() + json.len() + 1 >= GROUP_BYTES_MAX {
                break;
            }
            head = Head::after(line.seq, json.as_bytes());
            text.push_str(&json);
            text.push('\n');
            count += 1;
        }
        self.state = State::Unknown;
        self.file.write_all(text.as_bytes())?;
        if let Err(error) = self.file.sync_data() {
            self.state = State::Lost(format!("a sync has failed: {error}"));
            return Err(error);
        }
        (self.head, self.gap, self.torn, self.state) = (head, "", None, State::Sound);
        Ok(count)
    }

    /// Continues in a new file if the path no longer leads to this one.
    fn rotate(&mut self) -> io::Result<()> {
        match fs::metadata(&self.path) {
            Ok(there) if is_same(&there, &self.file.metadata()?) => return Ok(()),
            Ok(there) if there.len() > 0 => return Err(io::Error::other("the new file is not empty; move it away")),
            _ => {}
        }
        if self.state != State::Sound {
            self.find_end()?;
        }
        *self = Self::open(&self.path, self.head.clone(), self.torn.clone())?;
        Ok(())
    }
}

impl Drop for Chain {
    /// Unlocks the file. Closing it would not be enough: a child process has a copy until it runs its own program.
    fn drop(&mut self) {
        // If this fails, the lock remains until the last copy is closed.
        let _ = self.file.unlock();
    }
}

/// Logs the end of the chain, so that a copy of it is kept elsewhere: in the file alone, nothing shows that lines were
/// cut off.
fn log_head(head: &Head) {
    tracing::info!(seq = head.seq, hash = head.hash, "head of the audit log");
}

#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Outside Unix, a file in use cannot be replaced.
#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}

type Done = oneshot::Sender<Result<(), String>>;

enum Job {
    Line(Box<Line>, Option<Done>),
    Rotate(Done),
    Close(Done),
}

/// The handle of the thread.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
    /// Lines that could not be written since the last one that could.
    lost: Arc<AtomicU64>,
}

impl Writer {
    /// Opens the file, and starts the thread.
    pub(super) fn start(path: &Path) -> io::Result<Self> {
        let chain = Chain::open(path, Head::default(), None)?;
        let (jobs, queue) = mpsc::channel(QUEUE_MAX);
        let lost = Arc::<AtomicU64>::default();
        let thread = Thread { chain, lost: lost.clone(), failures: Spaced::default() };
        thread::Builder::new().name("audit".to_owned()).spawn(move || thread.run(queue))?;
        Ok(Self { jobs, lost })
    }

    /// Writes a line soon. If it cannot be written, it counts as lost.
    pub(super) fn note(&self, line: Line) {
        if self.jobs.try_send(Job::Line(Box::new(line), None)).is_err() {
            lose(&self.lost, 1);
        }
    }

    /// Writes a line. Returns when it is durable.
    pub(super) async fn record(&self, line: Line) -> Result<(), String> {
        self.ask(|done| Job::Line(Box::new(line), Some(done))).await
    }

    /// Continues in a new file if the old one was moved away.
    pub(super) async fn rotate(&self) -> Result<(), String> {
        self.ask(Job::Rotate).await
    }

    /// Writes what is waiting, and closes the file.
    pub(super) async fn close(&self) {
        // An error means that it is closed.
        let _ = self.ask(Job::Close).await;
    }

    async fn ask(&self, job: impl FnOnce(Done) -> Job) -> Result<(), String> {
        let closed = || "it is closed".to_owned();
        let (done, answer) = oneshot::channel();
        self.jobs.send(job(done)).await.map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }
}

fn lose(lost: &AtomicU64, count: u64) {
    lost.fetch_add(count, Ordering::Relaxed);
    AUDIT_LINES_TOTAL.add(["lost"], count);
}

/// The state that the thread owns.
struct Thread {
    chain: Chain,
    lost: Arc<AtomicU64>,
    failures: Spaced,
}

impl Drop for Thread {
    fn drop(&mut self) {
        log_head(&self.chain.head);
    }
}

impl Thread {
    fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        while let Some(first) = queue.blocking_recv() {
            let (mut lines, mut waiting, mut next) = (Vec::new(), Vec::new(), Some(first));
            while let Some(Job::Line(line, done)) = next {
                lines.push(*line);
                waiting.push(done);
                next = if lines.len() < QUEUE_MAX { queue.try_recv().ok() } else { None };
            }
            self.write(lines, waiting);
            match next {
                Some(Job::Rotate(done)) => drop(done.send(self.chain.rotate().map_err(|error| error.to_string()))),
                Some(Job::Close(done)) => {
                    drop(self);
                    let _ = done.send(Ok(()));
                    return;
                }
                _ => {}
            }
        }
    }

    /// Writes lines in groups, and answers those who wait for one of them.
    fn write(&mut self, mut lines: Vec<Line>, mut waiting: Vec<Option<Done>>) {
        while !lines.is_empty() {
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let (what, who, outcome) = ("lost".to_owned(), SERVER.to_owned(), format!("{lost} lines"));
                lines.insert(0, Line { what, who, outcome, ..Line::default() });
                waiting.insert(0, None);
            }
            let before = self.chain.head.seq;
            let written = self.chain.append(&mut lines).map_err(|error| error.to_string());
            let group = *written.as_ref().unwrap_or(&lines.len());
            lines.drain(..group);
            let count = group as u64 - u64::from(lost > 0);
            match &written {
                Ok(_) => {
                    AUDIT_LINES_TOTAL.add(["written"], count);
                    if self.chain.head.seq / HEAD_EVERY > before / HEAD_EVERY {
                        log_head(&self.chain.head);
                    }
                }
                Err(error) => {
                    self.lost.fetch_add(lost, Ordering::Relaxed);
                    lose(&self.lost, count);
                    if let Some(left_out) = self.failures.admit() {
                        tracing::error!(
                            error,
                            left_out,
                            "write AUDIT_FILE: deletions and acts of operators are refused"
                        );
                    }
                }
            }
            for done in waiting.drain(..group).flatten() {
                let _ = done.send(written.clone().map(drop));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::audit::chain::{Found, Verified, verify};

    fn line(what: &str) -> Line {
        Line { what: what.to_owned(), ..Line::default() }
    }

    fn verified(paths: &[&Path]) -> Verified {
        let text: Vec<String> = paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        let lines = text.iter().flat_map(|text| text.lines());
        verify(lines.map(|text| Found { place: String::new(), text: text.into() }), |_, _| {}).unwrap()
    }

    fn chain(path: &Path) -> io::Result<Chain> {
        Chain::open(path, Head::default(), None)
    }

    #[test]
    fn a_restart_continues_the_chain_whatever_the_last_write_left() {
        let whole = r#"{"seq":3,"time":"2026-11-30T02:51:19.000Z","what":"whole","previous":"PREVIOUS"}"#;
        let (group, cut) = ("\u{0}".repeat(GROUP_BYTES_MAX), "\u{0}".repeat(TORN_BYTES_MAX - 1));
        for left in ["", "{", r#"{"seq":3,"ti"#, "{\n{", "{\n", whole, "\u{0}\u{0}\n\u{0}", &group, &cut] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("audit");
            let mut first = chain(&path).unwrap();
            first.append(&mut [line("one")]).unwrap();
            assert!(chain(&path).unwrap_err().to_string().contains("another process"), "it is locked");
            first.file.write_all(left.replace("PREVIOUS", &first.head.hash).as_bytes()).unwrap();
            drop(first);
            for _ in 0..2 {
                chain(&path).unwrap().append(&mut [line("two"), line("three")]).unwrap();
            }
            let verified = verified(&[&path]);
            let (lines, torn) = if left == whole { (7, 0) } else { (6, usize::from(!left.is_empty())) };
            assert_eq!((verified.lines, verified.torn.len()), (lines, torn), "{left:?}");
        }
    }

    #[test]
    fn a_new_file_continues_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let [path, old] = ["audit", "audit.1"].map(|name| folder.path().join(name));
        let mut chain = chain(&path).unwrap();
        chain.append(&mut [line("one")]).unwrap();
        chain.rotate().unwrap();
        assert_eq!(verified(&[&path]).lines, 2, "nothing was moved");
        fs::rename(&path, &old).unwrap();
        fs::write(&path, "not empty").unwrap();
        assert!(chain.rotate().is_err());
        chain.append(&mut [line("two")]).unwrap();
        fs::write(&path, "").unwrap();
        // The old file also ends with unfinished bytes.
        chain.file.write_all(b"unfinished").unwrap();
        chain.state = State::Unknown;
        chain.rotate().unwrap();
        chain.append(&mut [line("three")]).unwrap();
        let both = verified(&[&old, &path]);
        assert_eq!((both.lines, both.torn.len(), both.head), (5, 1, chain.head.clone()));
    }

    #[test]
    fn a_rotation_that_fails_leaves_what_the_next_one_and_a_restart_can_use() {
        let folder = tempfile::tempdir().unwrap();
        let [path, old, fresh] = ["audit", "audit.1", "audit.new"].map(|name| folder.path().join(name));
        let mut first = chain(&path).unwrap();
        first.append(&mut [line("one")]).unwrap();
        fs::rename(&path, &old).unwrap();
        fs::create_dir(&fresh).unwrap();
        first.state = State::Lost("a sync has failed".to_owned());
        for _ in 0..2 {
            assert!(first.rotate().is_err());
            assert!(first.append(&mut [line("two")]).is_err(), "it is still lost");
        }
        assert_eq!(fs::read(&path).unwrap_or_default(), b"", "no part of a line");
        fs::remove_dir(&fresh).unwrap();
        // This is what a full disk leaves.
        fs::write(&fresh, r#"{"seq":3,"ti"#).unwrap();
        first.rotate().unwrap();
        first.append(&mut [line("two")]).unwrap();
        assert_eq!(verified(&[&old, &path]).lines, 4);
        assert!(!fresh.exists());
        drop(first);
        fs::rename(&path, &old).unwrap();
        fs::write(&fresh, r#"{"seq":3,"ti"#).unwrap();
        drop(chain(&path).unwrap());
        assert_eq!(verified(&[&path]).lines, 1);
    }

    #[test]
    fn groups_are_short_and_their_lines_are_one_chain() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let mut chain = chain(&path).unwrap();
        let mut lines = vec![line(&"long ".repeat(500)); 7];
        assert_eq!(chain.append(&mut lines).unwrap(), 3);
        let length = fs::metadata(&path).unwrap().len();
        assert!(length < TORN_BYTES_MAX as u64, "{length} bytes");
        let mut thread = Thread { chain, lost: Arc::default(), failures: Spaced::default() };
        let (done, mut answer) = oneshot::channel();
        let waiting = (0..6).map(|_| None).chain([Some(done)]).collect();
        thread.write(lines, waiting);
        assert_eq!(answer.try_recv().unwrap(), Ok(()));
        assert_eq!(verified(&[&path]).lines, 11);
    }

    #[test]
    fn a_foreign_file_is_not_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        fs::write(&path, "a note\n").unwrap();
        assert!(chain(&path).unwrap_err().to_string().contains("does not end with a line"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "a note\n");
    }

    #[tokio::test]
    async fn lines_that_cannot_be_written_are_counted_in_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let mut chain = chain(&path).unwrap();
        let file = std::mem::replace(&mut chain.file, File::options().append(true).open("/dev/full").unwrap());
        let mut thread = Thread { chain, lost: Arc::default(), failures: Spaced::default() };
        let (done, answer) = oneshot::channel();
        thread.write(vec![line("one"), line("two")], vec![None, Some(done)]);
        assert!(answer.await.unwrap().is_err());
        thread.chain.file = file;
        thread.write(vec![line("three")], vec![None]);
        assert_eq!(verified(&[&path]).lines, 3);
        let text = fs::read_to_string(&path).unwrap();
        let lost = text.lines().nth(1).unwrap();
        assert!(lost.contains(r#""what":"lost""#) && lost.contains(r#""outcome":"2 lines""#), "{text}");
    }
}
