//! `reseed export`: writes a session as a file that pi can read.

use crate::{
    config::Settings,
    core::session::IdSource,
    pi::Exporter,
    runtime::{stored, whole},
    store::SessionStore,
};
use anyhow::Context as _;
use clap::Args;
use reseed_protocol::{SessionId, Timestamp, event::Event};
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::PathBuf,
};

/// Records read at a time.
const PAGE: u32 = 200;

/// The options of `reseed export`.
#[derive(Debug, Args)]
pub(crate) struct ExportCommand {
    /// The session's id.
    session: SessionId,
    /// The file to write; it must not exist. Without it, the session is written to standard output.
    #[arg(long)]
    output: Option<PathBuf>,
}

pub(super) async fn run(settings: &Settings, command: ExportCommand) -> anyhow::Result<()> {
    let store = super::sessions::open(settings).await?;
    let now = crate::clock::Clock::now(&crate::clock::SystemClock);
    // Check first, so that no empty file is created.
    store.head(&command.session).await?;
    match &command.output {
        None => export(&*store, &command.session, now, &mut BufWriter::new(std::io::stdout().lock())).await,
        Some(output) => {
            let file = File::create_new(output).with_context(|| format!("create the file {}", output.display()))?;
            export(&*store, &command.session, now, &mut BufWriter::new(file)).await
        }
    }
}

/// Writes a session's lines, in version 3 of pi's format.
///
/// # Errors
/// There is no such session, a record is damaged, or the output cannot be written.
pub async fn export(
    store: &dyn SessionStore,
    session: &SessionId,
    now: Timestamp,
    to: &mut impl Write,
) -> anyhow::Result<()> {
    // Where the session continues, and which of its compactions are in effect, depends on the whole log.
    let (head, state) = stored::read(store, session).await?;
    let mut exporter = Exporter::new(session.clone(), head.head.created_at).keeping(&state.pins, &state.undone);
    let mut after_seq = 0;
    let mut ids = IdSource::seeded(head.last_seq);
    loop {
        let page = store.read(session, after_seq, PAGE).await?;
        let Some(last) = page.last() else { break };
        after_seq = last.seq;
        for record in page {
            let event: Event =
                serde_json::from_str(&record.body).with_context(|| format!("read record {}", record.seq))?;
            if let Event::EntryAppended(mut appended) = event {
                whole::restore(store, session, &mut appended.entry).await?;
                for line in exporter.entry(&appended.entry) {
                    writeln!(to, "{line}").context("write")?;
                }
            }
        }
    }
    let mut marker = ids.next_id();
    while store.entry_seq(session, &marker).await?.is_some() {
        marker = ids.next_id();
    }
    for line in exporter.finish(state.leaf.as_ref(), marker, now) {
        writeln!(to, "{line}").context("write")?;
    }
    to.flush().context("write")
}
