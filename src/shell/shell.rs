//! Runs the calls of both tools: the folders, the limits, and the permits for commands.

use crate::{
    folders::{Folder, Folders, Session},
    kept::Kept,
    landlock,
    options::Options,
    order::{Command, Limits, Order, Report},
    patch::{self, Base},
    run::{self, ENDING_TIME, Launch, OUTPUT_BYTES_MAX, Outcome},
    tools::Asked,
};
use serde_json::json;
use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::timeout,
};

/// Time limit for setting up the confinement once, at the start.
const PROBE_TIME: Duration = Duration::from_secs(20);

/// Maximum bytes of a command's output that are kept, from its beginning and its end: about 8,000 tokens.
const KEPT_BYTES_MAX: usize = 32 * 1024;

/// The exit code with which `timeout` reports that it ended a command.
const TIMED_OUT: i32 = 124;

/// The exit code with which shells report that a command was killed.
const KILLED: i32 = 137;

/// The reason the server does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Files of the server are where every command may read.
    #[error("{what} is {}, and commands can read everything in {system}; move it elsewhere", path.display())]
    Readable {
        /// The kind of file, for the message.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The directory that commands can read.
        system: &'static str,
    },
    /// The directory of the sessions' folders cannot be used.
    #[error("--folder is {}: {fault}", path.display())]
    Folder {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        fault: io::Error,
    },
    /// The helper cannot be started.
    #[error("the helper cannot be started: {0}")]
    Helper(io::Error),
    /// The helper was started, and could not do its work.
    #[error("commands cannot be confined: {0}")]
    Confinement(String),
    /// The runtime or a stream fails.
    #[error(transparent)]
    Io(io::Error),
}

/// The state that the calls of both tools share.
#[derive(Debug)]
pub(crate) struct Shell {
    folders: Arc<Folders>,
    /// Held while a patch, which runs on a thread of its own, gets its folder, and while a folder is moved away. So a
    /// patch that is no longer wanted does not create the folder again.
    making: Arc<Mutex<()>>,
    launch: Launch,
    limits: Limits,
    time_max: Duration,
    places: Arc<Semaphore>,
    places_max: u32,
}

impl Shell {
    /// Sets up the tools. It tries the confinement once, so that a server whose kernel lacks something does not start.
    ///
    /// # Errors
    /// Anything that is missing.
    pub(crate) async fn open(options: &Options) -> Result<Self, Error> {
        let is_confined = !options.no_sandbox;
        if is_confined {
            check_place("--folder", &options.folder)?;
            check_place("the working directory", Path::new("."))?;
        }
        let (path, user) = (&options.folder, options.user);
        let unusable = |fault| Error::Folder { path: path.clone(), fault };
        let (folders, left) = Folders::open(path, user).map_err(unusable)?;
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let this = Self {
            folders: Arc::new(folders),
            making: Arc::default(),
            launch: Launch { user, is_confined },
            limits: Limits {
                memory_bytes: options.memory_bytes_max,
                file_bytes: options.file_bytes_max,
                processes: options.processes_max,
                // Only a process that uses every processor all the time comes near this limit.
                cpu_secs: (options.timeout_secs + 1).saturating_mul(processors),
            },
            time_max: Duration::from_secs(options.timeout_secs),
            places: Arc::new(Semaphore::new(options.calls_max as usize)),
            places_max: options.calls_max,
        };
        this.probe().await?;
        let folders = this.folders.clone();
        // This takes the longer, the more files there are, and nothing waits for it.
        drop(spawn_blocking(move || {
            if let Err(error) = folders.clean(&left) {
                eprintln!("reseed-shell: what an earlier server left stays: {error}");
            }
        }));
        Ok(this)
    }

    /// Returns true if commands are confined.
    pub(crate) fn is_confined(&self) -> bool {
        self.launch.is_confined
    }

    /// Returns the time limit of a command.
    pub(crate) fn time_max(&self) -> Duration {
        self.time_max
    }

    /// Returns the ids of sessions that have a folder.
    ///
    /// # Errors
    /// The folders cannot be listed.
    pub(crate) fn sessions(&self) -> io::Result<Vec<String>> {
        self.folders.sessions()
    }

    /// Removes a session's folder, if it has one. Must be called when none of its calls is running.
    ///
    /// # Errors
    /// The folder stays.
    pub(crate) fn remove(&self, session: &Session) -> io::Result<()> {
        let making = lock(&self.making);
        let Some(removed) = self.folders.set_aside(session)? else { return Ok(()) };
        drop(making);
        let folders = self.folders.clone();
        drop(spawn_blocking(move || {
            if let Err(error) = folders.remove(&removed) {
                eprintln!("reseed-shell: a part of a deleted session's folder stays until the next start: {error}");
            }
        }));
        Ok(())
    }

    /// Waits until the processes of all commands are gone. Their calls have been dropped.
    pub(crate) async fn close(&self) {
        let _ = timeout(2 * ENDING_TIME, self.places.acquire_many(self.places_max)).await;
    }

    /// Sets up the confinement in a folder of its own, and runs nothing in it.
    async fn probe(&self) -> Result<(), Error> {
        let fault = |fault| Error::Folder { path: self.folders.path().to_owned(), fault };
        let session = Session::trial();
        let folder = self.folders.of(&session).map_err(fault)?;
        let place = self.place().await.map_err(io::Error::other).map_err(fault)?;
        let outcome = run::run(self.launch, &self.order(&folder, None), PROBE_TIME, &mut Kept::new(0), place).await;
        self.folders.remove(session.name()).map_err(fault)?;
        match outcome.map_err(Error::Helper)? {
            Outcome::Reported(Report::Ready) => Ok(()),
            Outcome::Reported(Report::NotConfined(why) | Report::NotStarted(why)) => Err(Error::Confinement(why)),
            other => Err(Error::Confinement(format!("the helper did not say that it is ready ({other:?})"))),
        }
    }

    /// Waits for a permit for a command.
    async fn place(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.places.clone().acquire_owned().await
    }

    fn order(&self, folder: &Folder, command: Option<Command>) -> Order {
        Order { folder: folder.path.clone(), is_confined: self.is_confined(), limits: self.limits, command }
    }

    /// Runs a command of a session.
    pub(crate) async fn run(&self, session: &Session, asked: Asked) -> Ended {
        let Ok(place) = self.place().await else { return Ended::error("the server is stopping") };
        let started = Instant::now();
        let folder = match self.folders.of(session) {
            Ok(folder) => folder,
            Err(error) => return Ended::error(format!("the session's folder cannot be used: {error}")),
        };
        let time = asked.timeout.map_or(self.time_max, |timeout| timeout.min(self.time_max));
        let order = self.order(&folder, Some(Command { argv: asked.command, workdir: asked.workdir }));
        let mut kept = Kept::new(KEPT_BYTES_MAX);
        let outcome = match run::run(self.launch, &order, time, &mut kept, place).await {
            Ok(outcome) => outcome,
            Err(error) => return Ended::error(format!("the command cannot be started: {error}")),
        };
        let (code, why) = match outcome {
            Outcome::Reported(Report::Ended(code)) => (code, None),
            Outcome::Reported(Report::NotStarted(why) | Report::NotConfined(why)) => {
                return Ended::error(format!("the command was not started: {why}"));
            }
            Outcome::TimedOut => (TIMED_OUT, Some(format!("stopped after {} ms, its time limit", time.as_millis()))),
            Outcome::WroteTooMuch => {
                (KILLED, Some(format!("stopped after {OUTPUT_BYTES_MAX} bytes of output, the most that is allowed")))
            }
            Outcome::Lost | Outcome::Reported(Report::Ready) => (KILLED, Some("stopped by the system".to_owned())),
        };
        let mut text = kept.into_text();
        if let Some(why) = &why {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&format!("[{why}]"));
        }
        Ended::of(&text, code, started.elapsed(), why.is_some())
    }

    /// Applies a patch to the files of a session.
    pub(crate) async fn patch(&self, session: &Session, text: String, workdir: Option<String>) -> Ended {
        let (folders, making, session) = (self.folders.clone(), self.making.clone(), session.clone());
        let started = Instant::now();
        // This is dropped with the call, so a patch that nobody waits for is not begun.
        let (wanted, is_wanted) = patch::wanted();
        let work = spawn_blocking(move || {
            let making = lock(&making);
            is_wanted.check()?;
            let folder =
                folders.of(&session).map_err(|error| format!("the session's folder cannot be used: {error}"))?;
            drop(making);
            let base = Base { folder: &folder.root, staging: folders.staging(), user: folders.user() };
            patch::apply(&base, workdir.as_deref(), &text, &is_wanted)
        });
        let outcome = work.await;
        drop(wanted);
        match outcome {
            Ok(Ok(text)) => Ended::of(&text, 0, started.elapsed(), false),
            Ok(Err(why)) => Ended::of(&why, 1, started.elapsed(), true),
            Err(error) => Ended::error(format!("the patch failed: {error}")),
        }
    }
}

fn lock(making: &Mutex<()>) -> MutexGuard<'_, ()> {
    // The lock guards no data.
    making.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses a location of the server's own files in which commands may read.
fn check_place(what: &'static str, path: &Path) -> Result<(), Error> {
    let real = real(path);
    match landlock::SYSTEM.iter().find(|system| real.starts_with(self::real(Path::new(system)))) {
        Some(system) => Err(Error::Readable { what, path: real, system }),
        None => Ok(()),
    }
}

/// Returns a path with its links resolved, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = absolute.ancestors().find_map(|ancestor| {
        let rest = absolute.strip_prefix(ancestor).ok()?;
        Some(ancestor.canonicalize().ok()?.join(rest))
    });
    real.unwrap_or(absolute)
}

/// The result of a call.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

impl Ended {
    /// Returns the result of a call that failed.
    pub(crate) fn error(why: impl Into<String>) -> Self {
        Self { text: why.into(), is_error: true }
    }

    /// Returns the result of a command or patch, in the form of v1 of reseed's protocol.
    fn of(text: &str, code: i32, took: Duration, is_error: bool) -> Self {
        // The original also has tenths of a second.
        #[expect(clippy::cast_precision_loss, reason = "a duration of hours in tenths of a second is exact")]
        let seconds = (took.as_millis() / 100) as f64 / 10.0;
        let metadata = json!({ "exit_code": code, "duration_seconds": seconds });
        Self { text: json!({ "output": text, "metadata": metadata }).to_string(), is_error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_patch_that_is_cancelled_before_it_begins_makes_no_folder() {
        let directory = tempfile::tempdir().expect("a directory");
        let (folders, _) = Folders::open(&directory.path().join("workspaces"), None).expect("they open");
        let shell = Arc::new(Shell {
            folders: Arc::new(folders),
            making: Arc::default(),
            launch: Launch { user: None, is_confined: false },
            limits: Limits { memory_bytes: 0, file_bytes: 0, processes: 0, cpu_secs: 0 },
            time_max: Duration::ZERO,
            places: Arc::new(Semaphore::new(1)),
            places_max: 1,
        });
        let session = Session::parse("session-1").expect("an id");
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().expect("a runtime");
        runtime.block_on(async {
            // Patches wait for the only thread, which this occupies.
            let (free, held) = mpsc::channel::<()>();
            drop(spawn_blocking(move || held.recv()));
            let (of, patched) = (shell.clone(), session.clone());
            let input = "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch";
            let patch = tokio::spawn(async move { of.patch(&patched, input.to_owned(), None).await });
            tokio::task::yield_now().await;
            patch.abort();
            assert!(patch.await.is_err());
            shell.remove(&session).expect("there is nothing to remove");
            drop(free);
            spawn_blocking(|| ()).await.expect("everything before it has ended");
        });
        assert_eq!(shell.sessions().expect("listed"), Vec::<String>::new());
    }
}
