//! `reseed audit`: shows the last lines of the audit log, and verifies its chain.

use super::say;
use crate::{
    config::Settings,
    server::audit_chain::{Found, LINE_BYTES_MAX, Line, Verified, read, verify},
};
use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
};

/// The options of `reseed audit`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct AuditCommand {
    #[command(subcommand)]
    verify: Option<Verify>,
    /// The file; without it, the one of AUDIT_FILE.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only lines about this user, or about what they did themselves.
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Only lines of this kind, such as `sign_in`, `refusal`, `read` or `delete_session`.
    #[arg(long, value_name = "WHAT")]
    what: Option<String>,
    /// The most lines to show, the newest last.
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
}

#[derive(Debug, Subcommand)]
enum Verify {
    /// Check that no line was changed, removed, inserted or moved, and print the head of the chain. The first line that
    /// does not fit is named, and the exit code is 1.
    ///
    /// Rotated files are given in the order in which they were written. Lines cut off at the end do not show in the
    /// files: compare with a hash that is kept elsewhere, such as those in the server's own log.
    Verify {
        /// The files; without any, the one of AUDIT_FILE.
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// A hash that a line must have, from the server's log or an earlier verification. May be repeated.
        #[arg(long, value_name = "HASH")]
        expect: Vec<String>,
    },
}

/// Runs the command. Only the setting AUDIT_FILE is needed, and only if no file is given.
pub(super) fn run(command: AuditCommand) -> anyhow::Result<()> {
    if let Some(Verify::Verify { files, expect }) = command.verify {
        let files = if files.is_empty() { vec![file(None)?] } else { files };
        return check(&files, &expect);
    }
    let path = file(command.file)?;
    let wanted = |line: &Line| {
        let (user, what) = (command.user.as_ref(), command.what.as_ref());
        user.is_none_or(|user| line.who == *user || line.user.as_ref() == Some(user))
            && what.is_none_or(|what| line.what == *what)
    };
    let mut shown = VecDeque::new();
    each_line(&path, |found| {
        if let Some(line) = read(&found.text).filter(wanted) {
            shown.push_back(line);
            shown.drain(..shown.len().saturating_sub(command.limit));
        }
    })?;
    say(row(["SEQ", "TIME", "WHAT", "WHO", "ADDRESS", "SESSION", "OUTCOME"]));
    shown.iter().for_each(|line| say(shown_line(line)));
    Ok(())
}

fn file(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    match given {
        Some(file) => Ok(file),
        None => Settings::load()?.audit_path().context("there is no audit log: AUDIT_FILE is unset; name a file"),
    }
}

fn row([seq, time, what, who, address, session, outcome]: [&str; 7]) -> String {
    format!("{seq:>6}  {time:<24}  {what:<14}  {who:<16}  {address:<15}  {session:<16}  {outcome}")
        .trim_end()
        .to_owned()
}

fn shown_line(line: &Line) -> String {
    let user = line.user.as_ref().filter(|user| **user != line.who).map(|user| format!("user {user}"));
    let ticket = line.ticket.as_ref().map(|ticket| format!("ticket {ticket}"));
    let left_out = (line.left_out > 0).then(|| format!("{} more were left out before", line.left_out));
    let torn = line.torn.as_ref().map(|_| "the write before was not finished".to_owned());
    let texts =
        [&line.on, &line.outcome, &line.credential].map(|text| Some(text.clone()).filter(|text| !text.is_empty()));
    let about: Vec<String> = texts.into_iter().chain([user, ticket, left_out, torn]).flatten().collect();
    let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let who = if line.who.is_empty() { "-" } else { &line.who };
    let (seq, time, address, session) =
        (line.seq.to_string(), line.time.to_string(), dash(&line.address), dash(&line.session));
    row([&seq, &time, &line.what, who, &address, &session, &about.join(", ")])
}

/// Reads the lines of a file. The memory for each is bounded: a longer one is read in parts, which are no lines.
fn each_line(path: &Path, mut each: impl FnMut(Found)) -> anyhow::Result<()> {
    let mut lines = Lines::open(path)?;
    lines.by_ref().for_each(&mut each);
    lines.ended()
}

/// The lines of a file.
struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    number: u64,
    failed: Option<io::Error>,
}

impl Lines {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("open `{}`", path.display()))?;
        Ok(Self { path: path.to_owned(), file: BufReader::new(file), number: 0, failed: None })
    }

    /// Returns why reading ended early, if it did.
    fn ended(self) -> anyhow::Result<()> {
        self.failed.map_or(Ok(()), |error| Err(error).with_context(|| format!("read `{}`", self.path.display())))
    }
}

impl Iterator for Lines {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        let mut text = Vec::new();
        match self.file.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut text) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => {
                self.failed = Some(error);
                return None;
            }
        }
        text.pop_if(|last| *last == b'\n');
        self.number += 1;
        Some(Found { place: format!("{} line {}", self.path.display(), self.number), text })
    }
}

fn check(paths: &[PathBuf], expected: &[String]) -> anyhow::Result<()> {
    let mut files = paths.iter().map(|path| Lines::open(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let (mut first, mut missing) = (None, expected.to_vec());
    let verified = verify(files.iter_mut().flatten(), |head, place| {
        first.get_or_insert(head.seq);
        if let Some(at) = missing.iter().position(|hash| hash.eq_ignore_ascii_case(&head.hash)) {
            say(format!("{place} has the expected hash {}", missing.swap_remove(at)));
        }
    });
    files.into_iter().try_for_each(Lines::ended)?;
    let Verified { lines, unfinished, torn, head } = verified.context("the audit log was changed")?;
    ensure!(lines > 0, "there are no lines");
    for place in torn {
        say(format!("{place} was not written to its end; the line after it says so"));
    }
    if let Some(place) = unfinished {
        say(format!("{place} is not complete: a server is writing it, or was killed and not started since"));
    }
    if let Some(first) = first.filter(|first| *first > 1) {
        say(format!("these files begin with seq {first}; the lines before it are in earlier files"));
    }
    say(format!("{lines} lines, unchanged; the last one has seq {}, hash {}", head.seq, head.hash));
    ensure!(
        missing.is_empty(),
        "no line has the expected hash {}: the end was cut off, or this is another log",
        missing.join(", ")
    );
    Ok(())
}
