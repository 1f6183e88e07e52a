//! Asks one question in a new session and prints the answer as it comes, also over a connection that is lost meanwhile.
//!
//!     cargo run --example client -- ws://127.0.0.1:8080/ws "When should I start for the harbour?"
//!
//! The client connects again, resumes where it was, and sends the question again if it had no reply. The program has no
//! part in that: after whatever happens it looks at the snapshot, which is the state of the session.

use anyhow::bail;
use reseed_client::{Client, Opening, Options, Update, fold::Snapshot};
use reseed_protocol::{
    EntryId, Message, Role,
    command::Command,
    content::Input,
    turn::{RunningPart, UserInput},
};
use std::io::Write as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(question)) = (arguments.next(), arguments.next()) else {
        bail!("say where to connect and what to ask: client ws://127.0.0.1:8080/ws \"How are you?\"");
    };
    let mut client = Client::new(address.parse()?, Options::default());
    let session = client.open(None, Opening::default());
    client.send(session, &Command::UserInput(UserInput::plain(Input::Text(question))))?;
    let (mut out, mut printed) = (std::io::stdout(), Printed::default());
    let finished = loop {
        match client.next().await {
            Update::Disconnected { lost, retry_after, .. } => {
                eprintln!("{lost}; connecting again in {retry_after:.1?}")
            }
            Update::Reply { result: Err(why), .. } => bail!(why),
            Update::Ended { why, .. } => bail!(why),
            Update::Stopped(why) => bail!(why),
            _ => {}
        }
        let Some(snapshot) = client.snapshot(session) else { continue };
        if let Some((id, text)) = newest_answer(snapshot) {
            write!(out, "{}", printed.more(id, &text))?;
            out.flush()?;
        }
        match snapshot.last_turn.as_ref().map(|turn| &turn.error) {
            None => {}
            Some(Some(error)) => bail!("{}: {}", error.code, error.message),
            Some(None) => bail!("the turn was stopped"),
        }
        if snapshot.turn.is_none() && snapshot.path.last().is_some_and(|entry| entry.message().is_some_and(is_answer)) {
            break snapshot;
        }
    };
    writeln!(out, "\n({} of {} tokens)", finished.context_info.token_count, finished.context_info.max_tokens)?;
    client.close().await;
    Ok(())
}

fn is_answer(message: &Message) -> bool {
    message.role == Role::Assistant
}

/// Returns the text of the answer that is being written, or else of the last one, with the id that an answer has from
/// its beginning on.
fn newest_answer(snapshot: &Snapshot) -> Option<(&EntryId, String)> {
    if let Some(item) = snapshot.items.iter().rfind(|item| item.aborted().is_none()) {
        let texts = item.parts().iter().filter(|part| matches!(part, RunningPart::Text { .. }));
        return Some((item.item_id(), texts.map(RunningPart::text).collect::<Vec<_>>().join("\n")));
    }
    let entry = snapshot.path.last()?;
    entry.message().filter(|message| is_answer(message)).map(|message| (&entry.entry_id, message.text()))
}

/// What was printed of the newest answer.
#[derive(Default)]
struct Printed {
    id: Option<EntryId>,
    bytes: usize,
}

impl Printed {
    /// Returns what to print. What was printed of an answer that failed in the middle is void: another one takes its
    /// place, on a new line.
    fn more(&mut self, id: &EntryId, text: &str) -> String {
        let begins_anew = self.id.as_ref() != Some(id);
        let from = if begins_anew { 0 } else { self.bytes };
        let new_line = if begins_anew && self.bytes > 0 { "\n" } else { "" };
        *self = Self { id: Some(id.clone()), bytes: text.len() };
        format!("{new_line}{}", text.get(from..).unwrap_or_default())
    }
}
