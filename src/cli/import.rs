//! `reseed import`: makes sessions from pi's session files.
//!
//! A file is read twice, line by line: first to see whether all of it can be read, then to write it. So nothing is written
//! of a file that is refused, and a large one is never in memory as a whole.

use super::{say, serve};
use crate::{
    config::Settings,
    core::{
        pi::{
            Importer,
            read::{Fault, Header, Item, Reader},
        },
        session::{IdSource, SessionState, input::name_from, state::no_settings},
    },
    store::{self, Append, EntryColumns, Head, Lease, NewRecord, SessionStore, UNFINISHED},
};
use anyhow::Context as _;
use clap::Args;
use reseed_protocol::{
    Entry, EntryData, EntryId, Role, SessionId, Timestamp,
    context::{Breakdown, ContextInfo, CountSource},
    event::{CompactionUndone, EntryAppended, Event, SessionUpdated},
};
use std::{
    fs::File,
    io::{BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
};

/// Bytes of the longest line that is read: several times the largest picture that a model takes.
const LINE_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// Events of one durable step, and their bytes: large enough to be quick, small enough to hold.
const STEP_EVENTS_MAX: usize = 500;
/// See [`STEP_EVENTS_MAX`].
const STEP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Faults of one file that are told; the rest is counted.
const FAULTS_TOLD_MAX: usize = 20;

/// What to import, and how.
#[derive(Debug, Args)]
pub struct ImportCommand {
    /// Session files of pi, version 1 to 3.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Leave out lines that are broken, and say which. Otherwise a file with such a line is refused.
    #[arg(long)]
    skip_broken: bool,
    /// Whose the sessions will be: a name of AUTH_TOKENS. Not needed where there are none.
    #[arg(long, default_value = "")]
    owner: String,
    /// Give the session a new id, where the file's is taken by another session.
    #[arg(long)]
    new_id: bool,
}

/// How sessions are made from files.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Leave out lines that are broken.
    pub skip_broken: bool,
    /// Whose they will be.
    pub owner: String,
    /// Give them new ids.
    pub new_id: bool,
    /// The model that they go on with.
    pub model: String,
    /// Their strategy's short name.
    pub strategy: String,
    /// Where ids come from that the file's cannot be.
    pub seed: u64,
    /// Now.
    pub now: Timestamp,
}

/// What an import came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The session.
    pub session: SessionId,
    /// Its entries.
    pub entries: u64,
    /// The version that the file was written in.
    pub version: u64,
    /// What was left out, and what is otherwise than in the file, a line each.
    pub notes: Vec<String>,
}

pub(super) async fn run(settings: &Settings, command: ImportCommand) -> anyhow::Result<()> {
    let store = serve::open_store(settings).context(
        "the database must not be in use while sessions are imported: stop the server, import, start it again",
    )?;
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| anyhow::anyhow!("the system has no randomness: {error}"))?;
    let mut options = ImportOptions {
        skip_broken: command.skip_broken,
        owner: command.owner,
        new_id: command.new_id,
        model: settings.model.model_name().to_owned(),
        strategy: settings.context.context_strategy.to_owned(),
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
    store.close().await.context("close the database")?;
    let files = command.files.len();
    anyhow::ensure!(refused == 0, "{refused} of {files} files were not imported; each is left as it was");
    Ok(())
}

/// Makes a session from a file.
///
/// # Errors
/// The file cannot be read, is no session, or has broken lines that are not to be skipped; its session is there already;
/// the store's. Nothing of the file is kept then.
pub async fn import(store: &dyn SessionStore, file: &Path, options: &ImportOptions) -> anyhow::Result<Imported> {
    let Checked { header, mut notes } = check(file, options)?;
    let mut ids = IdSource::seeded(options.seed ^ 0x6964);
    let session: SessionId = match header.id.parse() {
        Ok(id) if !options.new_id => id,
        Ok(_) => ids.next_id(),
        Err(why) => {
            notes.push(format!("its session id cannot be one here ({why}); it was given another"));
            ids.next_id()
        }
    };
    let created_at = header.object.text("timestamp").and_then(|text| serde_json::from_value(text.into()).ok());
    let created_at: Timestamp = created_at.unwrap_or(options.now);
    let lease = create(store, &session, &options.owner).await?;
    let version = header.version;
    let mut writer = Writer::new(store, lease, created_at, options);
    let written = writer.file(file, options, &mut notes).await;
    let released = store.release(&writer.lease).await;
    if let Err(error) = written {
        // Half a session is none.
        store.delete(&session).await.context("delete what was imported so far")?;
        return Err(error);
    }
    released.context("release the session")?;
    Ok(Imported { session, entries: writer.state.entries, version, notes })
}

/// Makes the session, unfinished until its last step: nobody sees it, and after a crash the next start of the server
/// deletes it.
async fn create(store: &dyn SessionStore, session: &SessionId, owner: &str) -> anyhow::Result<Lease> {
    match store.create(session, owner, UNFINISHED).await {
        Err(store::Error::Exists(_)) if store.head(session).await?.head.updated_at == UNFINISHED => {
            store.delete(session).await?;
            Ok(store.create(session, owner, UNFINISHED).await?)
        }
        Err(store::Error::Exists(id)) => {
            anyhow::bail!("there is a session `{id}` already; --new-id imports the file as another one")
        }
        created => Ok(created?),
    }
}

struct Checked {
    header: Header,
    notes: Vec<String>,
}

/// Reads the whole file and tells every line that cannot be read.
fn check(file: &Path, options: &ImportOptions) -> anyhow::Result<Checked> {
    let mut header = None;
    let mut faults = Vec::new();
    let mut reader = Reader::new(IdSource::seeded(options.seed));
    for line in lines(file)? {
        match read(&mut reader, line?) {
            Ok(Item::Header(found)) => header = Some(found),
            Ok(_) => {}
            Err(fault @ Fault::NoSession { .. }) => return Err(fault.into()),
            Err(fault) => {
                // Before the header nothing shows that this is a session at all.
                anyhow::ensure!(reader.has_header(), "{fault}; a session of pi's begins with a header");
                faults.push(fault.to_string());
            }
        }
    }
    let header = header.context("the file is empty; a session of pi's begins with a header")?;
    let told = faults.len().min(FAULTS_TOLD_MAX);
    let mut text = faults[..told].join("; ");
    if faults.len() > told {
        text.push_str(&format!("; and {} more", faults.len() - told));
    }
    anyhow::ensure!(faults.is_empty() || options.skip_broken, "{text}; --skip-broken leaves such lines out");
    let notes = faults.into_iter().map(|fault| format!("{fault}; left out")).collect();
    Ok(Checked { header, notes })
}

/// A line's bytes, without its end.
type Bytes = Vec<u8>;

fn read(reader: &mut Reader, line: Bytes) -> Result<Item, Fault> {
    match String::from_utf8(line) {
        Ok(text) => reader.line(&text),
        // Counted as a line, and told as one that is not JSON.
        Err(_) => match reader.line("\u{1}") {
            Err(Fault::Broken { line, .. }) => Err(Fault::Broken { line, why: "it is not UTF-8".to_owned() }),
            other => other,
        },
    }
}

fn lines(file: &Path) -> anyhow::Result<impl Iterator<Item = anyhow::Result<Bytes>>> {
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

/// Writes a session's events, step by step.
struct Writer<'a> {
    store: &'a dyn SessionStore,
    lease: Lease,
    created_at: Timestamp,
    updated_at: Timestamp,
    now: Timestamp,
    state: SessionState,
    step: Vec<NewRecord>,
    step_bytes: usize,
    next_seq: u64,
    /// What the file calls the session; else what was said first in it.
    name: Option<String>,
    first_said: Option<String>,
    model: String,
    strategy: String,
}

impl<'a> Writer<'a> {
    fn new(store: &'a dyn SessionStore, lease: Lease, created_at: Timestamp, options: &ImportOptions) -> Self {
        let next_seq = lease.next_seq;
        Self {
            store,
            lease,
            created_at,
            updated_at: created_at,
            now: options.now,
            state: SessionState::default(),
            step: Vec::new(),
            step_bytes: 0,
            next_seq,
            name: None,
            first_said: None,
            model: options.model.clone(),
            strategy: options.strategy.clone(),
        }
    }

    async fn file(&mut self, file: &Path, options: &ImportOptions, notes: &mut Vec<String>) -> anyhow::Result<()> {
        self.event(&updated(|updated| {
            updated.model = Some(self.model.clone());
            updated.strategy = Some(self.strategy.clone());
            updated.settings = Some(no_settings());
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
                // Told by the check before, or blank.
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
        self.flush(self.created_at, self.updated_at).await
    }

    async fn entry(&mut self, entry: Entry) -> anyhow::Result<()> {
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
        let body = serde_json::to_string(event).context("write an event")?;
        self.step_bytes += body.len();
        self.step.push(NewRecord { body: body.into(), entry: EntryColumns::of(event) });
        if self.step.len() >= STEP_EVENTS_MAX || self.step_bytes >= STEP_BYTES_MAX {
            self.flush(UNFINISHED, UNFINISHED).await?;
        }
        Ok(())
    }

    async fn flush(&mut self, created_at: Timestamp, updated_at: Timestamp) -> anyhow::Result<()> {
        let records = std::mem::take(&mut self.step);
        self.step_bytes = 0;
        let count = records.len() as u64;
        let state = serde_json::to_string(&self.state).context("write where the session stands")?;
        let head = Head {
            name: self.state.name.clone(),
            created_at,
            // A file may claim to be from the future.
            updated_at: updated_at.min(self.now),
            entries: self.state.entries,
            state: state.into(),
            ..Head::default()
        };
        self.store.append(&self.lease, self.next_seq, Append { records, marks: Vec::new(), head }).await?;
        self.next_seq += count;
        Ok(())
    }
}

/// A compaction of the file that does not count. Nothing is counted here: the next turn does.
fn undone_before(session: &SessionId, entry_id: EntryId) -> Event {
    let context_info = ContextInfo {
        token_count: 0,
        usage_percent: 0.0,
        transcript_length: 0,
        max_tokens: 0,
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
