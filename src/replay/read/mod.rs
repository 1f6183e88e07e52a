//! Reads recorded conversations, one at a time. The format of a source is detected from its beginning.
//!
//! | source | recognised by |
//! | --- | --- |
//! | a database of ours | `sqlite://…`, `postgres://…`, or a file that SQLite made |
//! | the corpus form, arrays of OpenAI's messages | any other JSON line |
//!
//! Files may be compressed with gzip; `-` is standard input. An unreadable line is reported with its number, and
//! reading continues after it.

mod corpus;
mod entries;

#[cfg(test)]
mod tests;

use super::recorded::Recorded;
use crate::{
    config::Database,
    core::context::counter::Counter,
    store::{self, SessionStore},
};
use anyhow::Context as _;
use flate2::read::MultiGzDecoder;
use reseed_protocol::SessionId;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::PathBuf,
    sync::Arc,
};

/// The most bytes in a line: a chat of ten million tokens.
const LINE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The first bytes of a gzip file.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// The first bytes of a SQLite file.
const SQLITE: &[u8] = b"SQLite format 3\0";

/// The conversations of one source.
pub(crate) struct Source {
    name: String,
    counter: Counter,
    kind: Kind,
    line: usize,
}

enum Kind {
    Lines(Box<dyn BufRead + Send>),
    Sessions(Arc<dyn SessionStore>, std::vec::IntoIter<SessionId>),
    Ended,
}

/// Opens a source: a path, an address of a database, or `-`. For a database, `sessions` names the sessions to read; if
/// it is empty, all are read.
///
/// # Errors
/// The source cannot be opened.
pub(crate) async fn open(source: &str, sessions: &[SessionId], counter: Counter) -> anyhow::Result<Source> {
    let kind = match source {
        "-" => lines(Box::new(BufReader::new(io::stdin())))?,
        address if address.starts_with("sqlite:") || address.starts_with("postgres") && address.contains("://") => {
            database(&address.parse()?, sessions).await?
        }
        path => {
            let mut file = BufReader::new(File::open(path).with_context(|| format!("open {path}"))?);
            match file.fill_buf().with_context(|| format!("read {path}"))? {
                beginning if beginning.starts_with(SQLITE) => {
                    database(&Database::Sqlite(PathBuf::from(path)), sessions).await?
                }
                _ => lines(Box::new(file))?,
            }
        }
    };
    Ok(Source {
        name: if source == "-" { "standard input".to_owned() } else { source.to_owned() },
        counter,
        kind,
        line: 0,
    })
}

async fn database(database: &Database, sessions: &[SessionId]) -> anyhow::Result<Kind> {
    let store = store::open_read_only(database).await.with_context(|| format!("open the database {database}"))?;
    let sessions = if sessions.is_empty() { entries::sessions(&*store).await? } else { sessions.to_vec() };
    Ok(Kind::Sessions(store, sessions.into_iter()))
}

fn lines(mut from: Box<dyn BufRead + Send>) -> anyhow::Result<Kind> {
    if from.fill_buf()?.starts_with(GZIP) {
        from = Box::new(BufReader::new(MultiGzDecoder::new(from)));
    }
    Ok(Kind::Lines(from))
}

impl Source {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the next conversation, or a description of what is wrong with the next line; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<Recorded, String>> {
        match &mut self.kind {
            Kind::Ended => None,
            Kind::Sessions(store, sessions) => {
                let id = sessions.next()?;
                let read = entries::session(&**store, &id, self.counter).await;
                Some(read.map_err(|error| format!("session {id}: {error:#}")))
            }
            Kind::Lines(_) => self.next_line(),
        }
    }

    fn next_line(&mut self) -> Option<Result<Recorded, String>> {
        loop {
            let line = match self.read_line()? {
                Ok(line) if line.trim().is_empty() => continue,
                Ok(line) => line,
                Err(why) => return Some(Err(why)),
            };
            let number = self.line;
            let name = format!("{}:{number}", self.name);
            let read = corpus::conversation(&line, &name, self.counter);
            return Some(read.map_err(|why| format!("{}: line {number}: {why}", self.name)));
        }
    }

    fn read_line(&mut self) -> Option<Result<String, String>> {
        let Kind::Lines(from) = &mut self.kind else { return None };
        let mut line = Vec::new();
        self.line += 1;
        let told = |why: &str| Some(Err(format!("{}: line {}: {why}", self.name, self.line)));
        match from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) if line.last() != Some(&b'\n') && line.len() as u64 >= LINE_BYTES_MAX => {
                let told = told("it is too long; the rest is not read");
                self.kind = Kind::Ended;
                told
            }
            Ok(_) => match String::from_utf8(line) {
                Ok(line) => Some(Ok(line)),
                Err(_) => told("it is not UTF-8"),
            },
            Err(error) => {
                let told = told(&format!("it cannot be read: {error}"));
                self.kind = Kind::Ended;
                told
            }
        }
    }
}
