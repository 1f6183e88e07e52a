//! `reseed import`: creates sessions from pi's session files.
//!
//! A file is read twice, line by line: first to check all of it, then to write it. So nothing is written from a refused
//! file, and a large one is never in memory as a whole.

use super::say;
use crate::{
    config::{Database, Settings},
    core::{
        agent_loop::Deployment,
        session::{IdSource, SessionState, input::name_from},
    },
    pi::{
        Importer,
        read::{Fault, Header, Item, Reader},
    },
    runtime::{stored, whole},
    service,
    store::{self, Append, CommandMark, EntryColumns, Head, Lease, NewRecord, SessionStore, UNFINISHED},
};
use anyhow::Context as _;
use clap::Args;
use reseed_protocol::{
    Entry, EntryData, EntryId, Role, SessionId, Timestamp,
    compaction::CompactionUndone,
    context::{Breakdown, ContextInfo, CountSource},
    event::Event,
    session::{SessionSettings, SessionUpdated},
    tree::EntryAppended,
};
use std::{
    fs::File,
    io::{BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Bytes of the longest line that is accepted: several times the largest image that a model accepts.
const LINE_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// Events of one durable step, and their bytes: large enough to be fast, small enough to hold in memory.
const STEP_EVENTS_MAX: usize = 500;
/// See [`STEP_EVENTS_MAX`].
const STEP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Most errors reported for one file; the rest is counted.
const FAULTS_SHOWN_MAX: usize = 20;

/// The options of `reseed import`.
#[derive(Debug, Args)]
pub(crate) struct ImportCommand {
    /// pi's session files, version 1 to 3.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Skip broken lines and report them. Otherwise a file with such a line is refused.
    #[arg(long)]
    skip_broken: bool,
    /// The owner of the sessions: a name in AUTH_TOKENS. Not needed if there are none.
    #[arg(long, default_value = "")]
    owner: String,
    /// Give the session a new id if another session already has the file's.
    #[arg(long)]
    new_id: bool,
}

/// The options for creating sessions from files.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Skip broken lines.
    pub skip_broken: bool,
    /// The owner of the sessions.
    pub owner: String,
    /// Give the sessions new ids.
    pub new_id: bool,
    /// The model that the sessions continue with.
    pub model: String,
    /// The short name of their strategy.
    pub strategy: String,
    /// The deployment by whose rules their next requests are counted, for lists. `None` leaves that to their next
    /// turns.
    pub deployment: Option<Arc<Deployment>>,
    /// The seed for ids that replace unusable ones in the file.
    pub seed: u64,
    /// The current time.
    pub now: Timestamp,
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The session.
    pub session: SessionId,
    /// The number of its entries.
    pub entries: u64,
    /// The format version of the file.
    pub version: u64,
    /// The lines skipped or changed, one note each.
    pub notes: Vec<String>,
}

pub(super) async fn run(settings: &Settings, command: ImportCommand) -> anyhow::Result<()> {
    let opened = service::open_store(settings).await;
    let store = match settings.store.database() {
        Database::Sqlite(_) => opened.context(
            "the database must not be in use during an import: stop the server, import, then start it again",
        )?,
        // Servers may be using it.
        Database::Postgres(_) | Database::Memory => opened?,
    };
    // Servers may be running. They must not mistake a session that is being created for one that was left unfinished.
    let node = service::join(settings, store.clone(), None).await?;
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| anyhow::anyhow!("the system has no randomness: {error}"))?;
    let mut options = ImportOptions {
        skip_broken: command.skip_broken,
        owner: command.owner,
        new_id: command.new_id,
        model: settings.model.model_name().to_owned(),
        strategy: settings.context.context_strategy.name.to_owned(),
        deployment: Some(Arc::new(service::deployment_of(settings, service::windows_of(settings, Vec::new())))),
        seed: u64::from_le_bytes(seed),
        now: crate::clock::Clock::now(&crate::clock::SystemClock),
    };
    let mut refused = 0;
    for file in &command.files {
        options.seed = options.seed.wrapping_add(1);
        match import(&*store, file, &options).await {
            Ok(done) => {
                for note in &done.notes {
                    say(format!("{}: {note}", file.display()));
                }
                say(format!("{} -> session {}, {} entries", file.display(), done.session, done.entries));
            }
            Err(error) => {
                refused += 1;
                say(format!("{}: not imported: {error:#}", file.display()));
            }
        }
    }
    if let Some(node) = node {
        node.leave().await;
    }
    store.close().await.context("close the database")?;
    let files = command.files.len();
    anyhow::ensure!(refused == 0, "{refused} of {files} files were not imported; nothing was written from them");
    Ok(())
}

/// Creates a session from a file.
///
/// # Errors
/// The file cannot be read, is not a session, or has broken lines that are not to be skipped; its session already
/// exists; the store's errors. Nothing from the file is kept then.
pub async fn import(store: &dyn SessionStore, file: &Path, options: &ImportOptions) -> anyhow::Result<Imported> {
    let (header, mut notes) = check(file, options)?;
    let mut ids = IdSource::seeded(options.seed ^ 0x6964);
    let session: SessionId = match header.id.parse() {
        Ok(id) if !options.new_id => id,
        Ok(_) => ids.next_id(),
        Err(why) => {
            notes.push(format!("its session id is not valid here ({why}); it was given a new one"));
            ids.next_id()
        }
    };
    let created_at = header.object.text("timestamp").and_then(|text| serde_json::from_value(text.into()).ok());
    let created_at: Timestamp = created_at.unwrap_or(options.now);
    let lease = create(store, &session, &options.owner).await?;
    let version = header.version;
    let mut writer = Writer::new(store, lease, created_at, options);
    let written = writer.file(file, &mut notes).await;
    let released = store.release(&writer.lease).await;
    if let Err(error) = written {
        // A partial session is not kept.
        store.delete(&session).await.context("delete the partial session")?;
        return Err(error);
    }
    released.context("release the session")?;
    Ok(Imported { session, entries: writer.state.entries, version, notes })
}

/// Creates the session, unfinished until its last step: nobody sees it, and after a crash the next start of the server
/// deletes it.
async fn create(store: &dyn SessionStore, session: &SessionId, owner: &str) -> anyhow::Result<Lease> {
    match store.create(session, owner, UNFINISHED).await {
        Err(store::Error::Exists(_)) if store.head(session).await?.head.updated_at == UNFINISHED => {
            store.delete(session).await?;
            Ok(store.create(session, owner, UNFINISHED).await?)
        }
        Err(store::Error::Exists(id)) => {
            anyhow::bail!("session `{id}` already exists; use --new-id to import the file as a new one")
        }
        created => Ok(created?),
    }
}

/// Reads the whole file. Returns its header and a note on every line that cannot be read.
fn check(file: &Path, options: &ImportOptions) -> anyhow::Result<(Header, Vec<String>)> {
    let mut header = None;
    let mut faults = Vec::new();
    let mut reader = Reader::new(IdSource::seeded(options.seed));
    for line in lines(file)? {
        match read(&mut reader, line?) {
            Ok(Item::Header(found)) => header = Some(found),
            Ok(_) => {}
            Err(fault @ Fault::NoSession { .. }) => return Err(fault.into()),
            Err(fault) => {
                // Without a header nothing shows that this is a session.
                anyhow::ensure!(reader.has_header(), "{fault}; a pi session starts with a header");
                faults.push(fault.to_string());
            }
        }
    }
    let header = header.context("the file is empty; a pi session starts with a header")?;
    let shown = faults.len().min(FAULTS_SHOWN_MAX);
    let mut text = faults[..shown].join("; ");
    if faults.len() > shown {
        text.push_str(&format!("; and {} more", faults.len() - shown));
    }
    anyhow::ensure!(faults.is_empty() || options.skip_broken, "{text}; use --skip-broken to skip such lines");
    let notes = faults.into_iter().map(|fault| format!("{fault}; skipped")).collect();
    Ok((header, notes))
}

fn read(reader: &mut Reader, line: Vec<u8>) -> Result<Item, Fault> {
    match String::from_utf8(line) {
        Ok(text) => reader.line(&text),
        // It counts as a line, and is reported like one that is not JSON.
        Err(_) => match reader.line("\u{1}") {
            Err(Fault::Broken { line, .. }) => Err(Fault::Broken { line, why: "it is not UTF-8".to_owned() }),
            other => other,
        },
    }
}

/// Returns the lines of a file, without their ends.
fn lines(file: &Path) -> anyhow::Result<impl Iterator<Item = anyhow::Result<Vec<u8>>>> {
    let mut reader = BufReader::new(File::open(file).context("open the file")?);
    Ok(std::iter::from_fn(move || {
        let mut line = Vec::new();
        match (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) if line.last() != Some(&b'\n') && line.len() as u64 >= LINE_BYTES_MAX => {
                Some(Err(anyhow::anyhow!("a line has more than {LINE_BYTES_MAX} bytes")))
            }
            Ok(_) => {
                if line.last() == Some(&b'\n') {
                    line.pop();
                }
                Some(Ok(line))
            }
            Err(error) => Some(Err(anyhow::Error::new(error).context("read the file"))),
        }
    }))
}

/// Writes a session's events in steps.
struct Writer<'a> {
    store: &'a dyn SessionStore,
    options: &'a ImportOptions,
    lease: Lease,
    created_at: Timestamp,
    updated_at: Timestamp,
    state: SessionState,
    step: Vec<NewRecord>,
    step_marks: Vec<CommandMark>,
    step_bytes: usize,
    next_seq: u64,
    /// The session's name in the file; otherwise its first message.
    name: Option<String>,
    first_said: Option<String>,
    /// The count of the next request, and the model's window; 0 until they are known.
    token_count: u64,
    window_tokens: u64,
}

impl<'a> Writer<'a> {
    fn new(store: &'a dyn SessionStore, lease: Lease, created_at: Timestamp, options: &'a ImportOptions) -> Self {
        let next_seq = lease.next_seq;
        Self {
            store,
            options,
            lease,
            created_at,
            updated_at: created_at,
            state: SessionState::default(),
            step: Vec::new(),
            step_marks: Vec::new(),
            step_bytes: 0,
            next_seq,
            name: None,
            first_said: None,
            token_count: 0,
            window_tokens: 0,
        }
    }

    async fn file(&mut self, file: &Path, notes: &mut Vec<String>) -> anyhow::Result<()> {
        let options = self.options;
        self.event(&updated(|updated| {
            updated.model = Some(options.model.clone());
            updated.strategy = Some(options.strategy.clone());
            updated.settings = Some(SessionSettings::default());
            updated.generation = Some(1);
        }))
        .await?;
        let mut reader = Reader::new(IdSource::seeded(options.seed));
        let mut importer: Option<Importer> = None;
        for line in lines(file)? {
            match (read(&mut reader, line?), &mut importer) {
                (Ok(Item::Header(header)), _) => {
                    importer = Some(Importer::new(header, IdSource::seeded(!options.seed)));
                }
                (Ok(Item::Entry(line)), Some(importer)) => {
                    let entry = importer.entry(&line);
                    notes.extend(
                        importer.take_notes().into_iter().map(|note| format!("line {}: {}", note.line, note.text)),
                    );
                    self.entry(entry).await?;
                }
                // The line is blank, or the earlier check has reported it.
                _ => {}
            }
        }
        let (pins, undone) = importer
            .as_ref()
            .map(|importer| (importer.pins().to_vec(), importer.undone().to_vec()))
            .unwrap_or_default();
        if let Some(entry) = importer.and_then(Importer::finish) {
            self.entry(entry).await?;
        }
        for entry_id in undone {
            self.event(&undone_before(&self.lease.session, entry_id)).await?;
        }
        let name = self.name.take().or(self.first_said.take()).unwrap_or_default();
        self.event(&updated(|updated| {
            updated.name = Some(name);
            updated.pins = Some(pins).filter(|pins| !pins.is_empty());
        }))
        .await?;
        if let Some(deployment) = &options.deployment {
            self.flush(UNFINISHED, UNFINISHED).await?;
            let head = self.store.head(&self.lease.session).await?;
            let info = stored::context_info(self.store, &head, deployment.clone()).await;
            let info = info.map_err(|error| anyhow::anyhow!("{}", error.message)).context("count the context")?;
            (self.token_count, self.window_tokens) = (info.token_count, info.max_tokens);
        }
        self.flush(self.created_at, self.updated_at).await
    }

    async fn entry(&mut self, mut entry: Entry) -> anyhow::Result<()> {
        if let Some(mark) = whole::take(&mut entry) {
            self.step_bytes += mark.reply.len();
            self.step_marks.push(mark);
        }
        match &entry.data {
            EntryData::SessionInfo(info) => {
                self.name = Some(info.name.trim().to_owned()).filter(|name| !name.is_empty());
            }
            EntryData::Message(message) if message.role == Role::User && self.first_said.is_none() => {
                self.first_said = Some(name_from(&message.content)).filter(|name| !name.is_empty());
            }
            _ => {}
        }
        self.updated_at = self.updated_at.max(entry.timestamp);
        let appended = EntryAppended { entry, turn_id: None, command_id: None };
        self.event(&Event::EntryAppended(Box::new(appended))).await
    }

    async fn event(&mut self, event: &Event) -> anyhow::Result<()> {
        self.state.apply(event);
        let body = serde_json::to_string(event).context("serialise an event")?;
        self.step_bytes += body.len();
        self.step.push(NewRecord { body: body.into(), entry: EntryColumns::of(event) });
        if self.step.len() >= STEP_EVENTS_MAX || self.step_bytes >= STEP_BYTES_MAX {
            self.flush(UNFINISHED, UNFINISHED).await?;
        }
        Ok(())
    }

    async fn flush(&mut self, created_at: Timestamp, updated_at: Timestamp) -> anyhow::Result<()> {
        let (records, marks) = (std::mem::take(&mut self.step), std::mem::take(&mut self.step_marks));
        self.step_bytes = 0;
        let count = records.len() as u64;
        let state = serde_json::to_string(&self.state).context("serialise the session state")?;
        let head = Head {
            name: self.state.name.clone(),
            created_at,
            // A file's timestamps may be in the future.
            updated_at: updated_at.min(self.options.now),
            entries: self.state.entries,
            token_count: self.token_count,
            window_tokens: self.window_tokens,
            state: Some(state.into()),
            ..Head::default()
        };
        self.store.append(&self.lease, self.next_seq, Append { records, marks, usage: Vec::new(), head }).await?;
        self.next_seq += count;
        Ok(())
    }
}

/// Returns the event for a compaction in the file that is not in effect. Its counts are zero: the next turn computes
/// them.
fn undone_before(session: &SessionId, entry_id: EntryId) -> Event {
    let context_info = ContextInfo {
        token_count: 0,
        transcript_length: 0,
        max_tokens: 0,
        learned_window_tokens: None,
        strategy: String::new(),
        warning: None,
        usage_ratio: 0.0,
        source: CountSource::Estimated,
        usage_tokens: 0,
        trailing_tokens: 0,
        last_usage_entry_id: None,
        error_bound_tokens: 0,
        reserved_tokens: 0,
        compact_at_tokens: None,
        compact_at_rule: None,
        prepare_at_tokens: None,
        cached_tokens: 0,
        generation: 1,
        compactions: 0,
        session_id: session.clone(),
        leaf_id: None,
        breaker: None,
        breakdown: Breakdown::default(),
    };
    let undone = CompactionUndone { entry_id, command_id: None, generation: 1, context_info };
    Event::CompactionUndone(Box::new(undone))
}

fn updated(change: impl FnOnce(&mut SessionUpdated)) -> Event {
    let mut updated = SessionUpdated::default();
    change(&mut updated);
    Event::SessionUpdated(Box::new(updated))
}
