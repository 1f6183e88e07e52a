//! The built-in tools `shell` and `apply_patch`, which work in a folder of the session. How commands are confined, and
//! what that does not protect against, is in `README.md` beside this file.
//!
//! Invariants:
//! - a command never has more rights than `SHELL_SANDBOX` says: if the confinement cannot be set up, nothing runs;
//! - no process of a command is left when its call has ended, however it ended.

mod folders;
mod helper;
mod kept;
mod landlock;
mod limits;
mod order;
mod run;
mod syscalls;

use folders::Left;
pub(crate) use folders::{Folder, Folders, own};
#[doc(hidden)]
pub use helper::run as run_helper;

use super::{
    Call, CallFuture, ForgetFuture, Output, Tool,
    patch::{self, Base},
};
use crate::config::{Database, Settings};
use kept::Kept;
use order::{Command, Limits, Order, Report};
use reseed_protocol::{
    SessionId,
    command::{ToolAnnotations, ToolOffer},
};
use run::{Launch, OUTPUT_BYTES_MAX, Outcome};
use serde_json::{Value, json};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;

/// The binary of this process, also after another was put in its place: `SHELL_BINARY` of the `reseed` binary.
pub(crate) const OWN_BINARY: &str = "/proc/self/exe";

/// The time for setting up the confinement once, at the start.
const PROBE_TIME: Duration = Duration::from_secs(20);

/// What the call of a tool may take beyond the time limit of its command: waiting for a free place, and ending.
const CALL_SLACK: Duration = Duration::from_secs(60);

/// The exit code of `timeout` for a command that was ended by it.
const TIMED_OUT: i32 = 124;

/// The exit code of shells for a command that was killed.
const KILLED: i32 = 137;

/// The reason the tools cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody said which program sets up the confinement.
    #[error("SHELL_TOOL is `on`, and SHELL_BINARY is not set; set it to the path of the `reseed` binary")]
    NoBinary,
    /// Commands of one user would reach what belongs to others.
    #[error("SHELL_SANDBOX is `off`, and there may be several users; set SHELL_SANDBOX to on, or SHELL_TOOL to off")]
    SeveralUsers,
    /// What the server keeps lies where every command may read.
    #[error("{what} is {}, and commands can read everything in {system}; move it elsewhere", path.display())]
    Readable {
        /// The setting.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The directory that commands can read.
        system: &'static str,
    },
    /// The directory of the sessions' folders cannot be used.
    #[error("SHELL_FOLDER is {}: {fault}", path.display())]
    Folder {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        fault: io::Error,
    },
    /// The helper cannot be started.
    #[error("the helper {} cannot be started: {fault}", binary.display())]
    Helper {
        /// The binary.
        binary: PathBuf,
        /// What went wrong.
        fault: io::Error,
    },
    /// The helper was started, and could not do what it is for.
    #[error("commands cannot be confined: {0}")]
    Confinement(String),
}

/// The two tools, and what their calls share.
#[derive(Debug)]
pub struct Shell {
    folders: Arc<Folders>,
    launch: Launch,
    is_confined: bool,
    limits: Limits,
    time_max: Duration,
    kept_max: usize,
    places: Semaphore,
}

impl Shell {
    /// Sets up the tools; `None` if they are off. It tries the confinement once, so that a server whose kernel lacks
    /// something does not start.
    ///
    /// # Errors
    /// Anything that is missing.
    pub async fn open(settings: &Settings) -> Result<Option<Arc<Self>>, Error> {
        let Some((this, left)) = Self::set_up(settings).await? else { return Ok(None) };
        let folders = Arc::clone(&this.folders);
        // Takes as long as there are files, and nothing waits for it.
        drop(tokio::task::spawn_blocking(move || {
            if let Err(error) = folders.clean(&left) {
                tracing::warn!("remove what an earlier server left in {}: {error}", folders.path().display());
            }
        }));
        Ok(Some(Arc::new(this)))
    }

    /// Tries what [`Self::open`] needs, the confinement included, beside a server that may be running: nothing is
    /// removed. `None` if the tools are off.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn check(settings: &Settings) -> Result<Option<Self>, Error> {
        Ok(Self::set_up(settings).await?.map(|(this, _)| this))
    }

    /// Sets up the tools, and lists what an earlier server left.
    async fn set_up(settings: &Settings) -> Result<Option<(Self, Left)>, Error> {
        let shell = &settings.shell;
        if !shell.shell_tool.is_on() {
            return Ok(None);
        }
        let is_confined = shell.shell_sandbox.is_on();
        if !is_confined && settings.has_several_users() {
            return Err(Error::SeveralUsers);
        }
        let binary = match &shell.shell_binary {
            Some(binary) => settings.store.working_directory.join(binary),
            None => return Err(Error::NoBinary),
        };
        if is_confined {
            check_places(settings)?;
        }
        let path = settings.shell_path();
        let opened = Folders::open(&path, shell.shell_user);
        let unusable = |fault| Error::Folder { path: path.clone(), fault };
        let folders = Arc::new(opened.map_err(unusable)?);
        let left = folders.left().map_err(unusable)?;
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let this = Self {
            folders,
            launch: Launch { binary, user: shell.shell_user },
            is_confined,
            limits: Limits {
                memory_bytes: shell.shell_memory_bytes_max,
                file_bytes: shell.shell_file_bytes_max,
                processes: shell.shell_processes_max,
                // Only a process that uses every processor all the time gets near it.
                cpu_secs: shell.shell_timeout_secs.saturating_add(1).saturating_mul(processors),
            },
            time_max: Duration::from_secs(shell.shell_timeout_secs),
            kept_max: usize::try_from(shell.shell_output_bytes_max).unwrap_or(usize::MAX),
            places: Semaphore::new(shell.shell_calls_max as usize),
        };
        this.probe().await?;
        Ok(Some((this, left)))
    }

    /// Returns the tools.
    #[must_use]
    pub fn tools(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        vec![Arc::new(ShellTool(Arc::clone(self))), Arc::new(PatchTool(Arc::clone(self)))]
    }

    /// Returns the folder in which sessions have theirs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folders.path()
    }

    /// Returns true if commands are confined, so that several users may have them.
    #[must_use]
    pub fn is_confined(&self) -> bool {
        self.is_confined
    }

    /// Removes a session's folder, if it has one. Call it when the session is gone and none of its calls is running.
    ///
    /// # Errors
    /// A part of it cannot be removed. The server tries again when it starts.
    pub async fn remove(&self, session: &SessionId) -> io::Result<()> {
        let (folders, session) = (Arc::clone(&self.folders), session.clone());
        tokio::task::spawn_blocking(move || folders.remove(&session)).await.map_err(io::Error::other)?
    }

    /// Returns the sessions that have folders, so that those whose sessions are gone can be removed.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn sessions(&self) -> io::Result<Vec<SessionId>> {
        self.folders.sessions()
    }

    /// Sets up the confinement in a folder of its own, and runs nothing in it.
    async fn probe(&self) -> Result<(), Error> {
        let fault = |fault| Error::Folder { path: self.folders.path().to_owned(), fault };
        let session: SessionId =
            format!("probe-{:016x}", fastrand::u64(..)).parse().map_err(io::Error::other).map_err(fault)?;
        let folder = self.folders.of(&session).map_err(fault)?;
        let order = self.order(&folder, None);
        let outcome = run::run(&self.launch, &order, PROBE_TIME, &mut Kept::new(0)).await;
        self.folders.remove(&session).map_err(fault)?;
        let outcome = outcome.map_err(|fault| Error::Helper { binary: self.launch.binary.clone(), fault })?;
        match outcome {
            Outcome::Reported(Report::Ready) => Ok(()),
            Outcome::Reported(Report::NotConfined(why) | Report::NotStarted(why)) => Err(Error::Confinement(why)),
            other => Err(Error::Confinement(format!(
                "{} did not answer as the `reseed` binary does ({other:?}); is SHELL_BINARY the same version?",
                self.launch.binary.display()
            ))),
        }
    }

    fn order(&self, folder: &Folder, command: Option<Command>) -> Order {
        let folder = folder.path.clone();
        Order { folder, is_confined: self.is_confined, limits: self.limits, command }
    }

    /// Runs a command of a session.
    async fn run(&self, session: &SessionId, asked: Asked) -> Output {
        let Ok(_place) = self.places.acquire().await else { return Output::error("the server is stopping") };
        let started = Instant::now();
        let folder = match self.folders.of(session) {
            Ok(folder) => folder,
            Err(error) => return Output::error(format!("the session's folder cannot be used: {error}")),
        };
        let time = asked.timeout.map_or(self.time_max, |timeout| timeout.min(self.time_max));
        let order = self.order(&folder, Some(Command { argv: asked.command, workdir: asked.workdir }));
        let mut kept = Kept::new(self.kept_max);
        let outcome = match run::run(&self.launch, &order, time, &mut kept).await {
            Ok(outcome) => outcome,
            Err(error) => return Output::error(format!("the command cannot be started: {error}")),
        };
        let ended = |code, why: String| Ended { code, why: Some(why) };
        let ended = match outcome {
            Outcome::Reported(Report::Ended(code)) => Ended { code, why: None },
            Outcome::Reported(Report::NotStarted(why) | Report::NotConfined(why)) => {
                return Output::error(format!("the command was not started: {why}"));
            }
            Outcome::TimedOut => ended(TIMED_OUT, format!("stopped after {} ms, its time limit", time.as_millis())),
            Outcome::WroteTooMuch => {
                ended(KILLED, format!("stopped after {OUTPUT_BYTES_MAX} bytes of output, the most that is allowed"))
            }
            Outcome::Lost | Outcome::Reported(Report::Ready) => ended(KILLED, "stopped by the system".to_owned()),
        };
        ended.output(kept.into_text(), started.elapsed())
    }

    /// Applies a patch to the files of a session.
    async fn patch(&self, session: &SessionId, text: String, workdir: Option<String>) -> Output {
        let (folders, session) = (Arc::clone(&self.folders), session.clone());
        let started = Instant::now();
        // Dropped with the call: a patch that nobody waits for is not begun.
        let (wanted, is_wanted) = patch::wanted();
        let work = tokio::task::spawn_blocking(move || {
            let folder =
                folders.of(&session).map_err(|error| format!("the session's folder cannot be used: {error}"))?;
            let base = Base { folder: &folder.root, staging: folders.staging(), user: folders.user() };
            patch::apply(&base, workdir.as_deref(), &text, &is_wanted)
        });
        let outcome = work.await;
        drop(wanted);
        match outcome {
            Ok(Ok(text)) => Ended { code: 0, why: None }.output(text, started.elapsed()),
            Ok(Err(why)) => Output { is_error: true, ..Ended { code: 1, why: None }.output(why, started.elapsed()) },
            Err(error) => Output::error(format!("the patch failed: {error}")),
        }
    }
}

/// Refuses settings with which the server's own files lie where commands may read.
fn check_places(settings: &Settings) -> Result<(), Error> {
    let database = match settings.store.database() {
        Database::Sqlite(path) => Some(("DATABASE_URL", path)),
        Database::Postgres(_) | Database::Memory => None,
    };
    let places = [
        Some(("WORKING_DIRECTORY", settings.store.working_directory.clone())),
        Some(("SHELL_FOLDER", settings.shell_path())),
        database,
        settings.hooks_path().map(|path| ("HOOKS_FILE", path)),
        settings.jwt_key_path().map(|path| ("AUTH_JWT_KEY_FILE", path)),
    ];
    for (what, path) in places.into_iter().flatten() {
        let real = real(&path);
        if let Some(system) = landlock::SYSTEM.iter().find(|system| real.starts_with(self::real(Path::new(system)))) {
            return Err(Error::Readable { what, path, system });
        }
    }
    Ok(())
}

/// Returns a path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = absolute.ancestors().find_map(|ancestor| {
        let rest = absolute.strip_prefix(ancestor).ok()?;
        Some(ancestor.canonicalize().ok()?.join(rest))
    });
    real.unwrap_or(absolute)
}

/// The end of a command or patch.
struct Ended {
    code: i32,
    /// The reason, if it was not its own end.
    why: Option<String>,
}

impl Ended {
    /// Returns the result in v1's form.
    fn output(self, mut text: String, took: Duration) -> Output {
        if let Some(why) = &self.why {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&format!("[{why}]"));
        }
        // Tenths of a second, as the original has them.
        #[expect(clippy::cast_precision_loss, reason = "a duration of hours in tenths of a second is exact")]
        let seconds = (took.as_millis() / 100) as f64 / 10.0;
        let metadata = json!({ "exit_code": self.code, "duration_seconds": seconds });
        let text = json!({ "output": text, "metadata": metadata }).to_string();
        Output { text, is_error: self.why.is_some(), ..Output::default() }
    }
}

/// The arguments of `shell`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    command: Vec<String>,
    workdir: Option<String>,
    #[serde(default, deserialize_with = "millis")]
    timeout: Option<Duration>,
}

fn millis<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let millis = <Option<u64> as serde::Deserialize>::deserialize(deserializer)?;
    Ok(millis.map(Duration::from_millis))
}

/// The tool `shell`.
struct ShellTool(Arc<Shell>);

impl Tool for ShellTool {
    fn forget<'a>(&'a self, session: &'a SessionId) -> ForgetFuture<'a> {
        Box::pin(async move {
            if let Err(error) = self.0.remove(session).await {
                tracing::warn!(%session, %error, "remove the folder of a deleted session; the next start tries again");
            }
        })
    }

    fn offer(&self) -> ToolOffer {
        let mut description = format!(
            "Runs a command in this session's folder and returns its output and exit code. `command` is the program \
             and its arguments; there is no shell unless you name one, such as [\"bash\", \"-c\", \"ls | wc -l\"]. The \
             files of the folder stay for later calls; processes do not: background processes end with the call. The \
             time limit is {} seconds. Standard input is empty. [\"apply_patch\", PATCH] changes files as the tool \
             `apply_patch` does.",
            self.0.time_max.as_secs()
        );
        if self.0.is_confined {
            description.push_str(
                " The command can read and write only this folder (HOME; temporary files in TMPDIR), can read \
                 installed programs, and has no network. `chmod` has no effect: run scripts by their interpreter.",
            );
        }
        let parameters = json!({
            "type": "object",
            "properties": {
                "command": {
                    "type": "array",
                    "items": { "type": "string" },
                    "minItems": 1,
                    "description": "The program and its arguments.",
                },
                "workdir": {
                    "type": "string",
                    "description": "The directory to start in, relative to the session's folder.",
                },
                "timeout": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "A shorter time limit, in milliseconds.",
                },
            },
            "required": ["command"],
            "additionalProperties": false,
        });
        let annotations = ToolAnnotations {
            read_only: Some(false),
            destructive: Some(true),
            idempotent: Some(false),
            open_world: Some(!self.0.is_confined),
        };
        let call_max = self.0.time_max + CALL_SLACK;
        ToolOffer {
            timeout_ms: u64::try_from(call_max.as_millis()).ok(),
            sequential: Some(true),
            annotations: Some(annotations),
            ..ToolOffer::new("shell", description, parameters)
        }
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            let asked: Asked = match serde_json::from_value(call.arguments) {
                Ok(asked) => asked,
                Err(error) => return Output::error(format!("the arguments do not fit: {error}")),
            };
            match &asked.command[..] {
                [program, patch] if program == "apply_patch" => {
                    self.0.patch(&call.session, patch.clone(), asked.workdir).await
                }
                _ => self.0.run(&call.session, asked).await,
            }
        })
    }
}

/// The tool `apply_patch`.
struct PatchTool(Arc<Shell>);

impl Tool for PatchTool {
    fn offer(&self) -> ToolOffer {
        let parameters = json!({
            "type": "object",
            "properties": { "input": { "type": "string", "description": "The whole patch." } },
            "required": ["input"],
            "additionalProperties": false,
        });
        let annotations = ToolAnnotations {
            read_only: Some(false),
            destructive: Some(true),
            idempotent: Some(false),
            open_world: Some(false),
        };
        ToolOffer {
            sequential: Some(true),
            annotations: Some(annotations),
            ..ToolOffer::new("apply_patch", patch::DESCRIPTION, parameters)
        }
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            let Value::String(text) = &call.arguments["input"] else {
                return Output::error("the arguments do not fit: `input` must be a text");
            };
            self.0.patch(&call.session, text.clone(), None).await
        })
    }
}
