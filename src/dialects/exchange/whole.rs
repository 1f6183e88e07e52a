//! A summary of a whole conversation, for a client that goes on with nothing else.
//!
//! A session's own compaction keeps its newest entries and the user's words beside the summary, so it is not enough.

use super::{ENTRIES, Exchange, Place, errors, opened};
use reseed_client::Opening;
use reseed_protocol::{
    EntryData, ErrorBody, ErrorCode, Message, Part, Role,
    command::{Command, Empty},
    compaction::{SetContextStrategy, StartCompaction, StrategySettings},
    reply::Reply,
    tree::{ForkPosition, ForkSession, Navigate},
};

/// Maximum bytes of a conversation that is returned as it is: some hundred tokens, which no summary makes much shorter.
const TRANSCRIPT_BYTES_MAX: usize = 1_200;

impl Exchange {
    /// Returns a summary of everything up to the leaf. The session stays as it is: the work is done in a copy in the
    /// server's memory.
    ///
    /// # Errors
    /// Returns the server's error, or why there is no reply.
    pub async fn summary_of_all(&mut self, instructions: Option<String>) -> Result<String, ErrorBody> {
        let Some(leaf) = self.snapshot().leaf_id.clone() else { return Ok(String::new()) };
        if !self.snapshot().path.more()
            && let Some(transcript) = transcript(self)
        {
            return Ok(transcript);
        }
        let fork = Command::ForkSession(ForkSession { entry_id: leaf, position: ForkPosition::At, store: Some(false) });
        let copy = match self.request(&fork).await? {
            Reply::Forked(forked) => forked.session_id,
            reply => return Err(errors::of_reply(&reply)),
        };
        let opening = Opening { entries: Some(ENTRIES), ..Opening::default() };
        let copy = opened(&mut self.client, Place::Session(copy), opening).await?;
        let session = std::mem::replace(&mut self.session, copy);
        let course = std::mem::take(&mut self.course);
        let summary = self.summarise_copy(instructions).await;
        let deleted = self.request(&Command::DeleteSession(Empty {})).await;
        (self.session, self.course) = (session, course);
        let summary = summary?;
        deleted?;
        Ok(summary)
    }

    /// Leaves the whole path of a session behind, with a summary of it.
    async fn summarise_copy(&mut self, instructions: Option<String>) -> Result<String, ErrorBody> {
        let info = &self.snapshot().context_info;
        if info.token_count * 2 > info.max_tokens {
            // One request cannot take all of it, so its older part is summarised first.
            let settings =
                StrategySettings { keep_recent_tokens: Some(1), user_share: Some(0.0), ..Default::default() };
            let wanted = SetContextStrategy { strategy: "threshold".to_owned(), settings: Some(settings) };
            self.request(&Command::SetContextStrategy(wanted)).await?;
            let start = StartCompaction { instructions: instructions.clone(), ..StartCompaction::default() };
            match self.compact(start).await {
                Err(error) if error.code != ErrorCode::NothingToCompact => return Err(error),
                _ => {}
            }
        }
        let leave = Navigate {
            entry_id: None,
            position: None,
            summarize: Some(true),
            instructions,
            replace_instructions: None,
            label: None,
        };
        let Reply::Navigated(moved) = self.request(&Command::Navigate(leave)).await? else {
            return Err(missing());
        };
        let entry = moved.branch_summary_entry_id.ok_or_else(missing)?;
        match &self.appended(&entry).await?.data {
            EntryData::BranchSummary(branch) => Ok(branch.summary.clone()),
            _ => Err(missing()),
        }
    }
}

fn missing() -> ErrorBody {
    ErrorBody::new(ErrorCode::Internal, "the model has not made a summary")
}

/// Returns a short conversation as text; `None` if it is long, or has more than messages.
fn transcript(exchange: &Exchange) -> Option<String> {
    let mut lines = Vec::new();
    for entry in exchange.snapshot().path.iter() {
        match &entry.data {
            EntryData::Message(message) => lines.extend(said(message)?),
            EntryData::Compaction(_) | EntryData::BranchSummary(_) | EntryData::CustomMessage(_) => return None,
            _ => {}
        }
    }
    let transcript = lines.join("\n");
    (transcript.len() <= TRANSCRIPT_BYTES_MAX).then_some(transcript)
}

/// Returns the lines of a message; `None` if it has an image.
fn said(message: &Message) -> Option<Vec<String>> {
    let who = match message.role {
        Role::User => "User",
        Role::Assistant => "Assistant",
        Role::Tool => "Tool",
    };
    let line = |part: &Part| match part {
        Part::Text { text } => Some(format!("{who}: {text}")),
        Part::ToolCall { name, arguments, .. } => Some(format!("{who} called {name} with {arguments}")),
        Part::ToolResult { output, .. } => Some(format!("{who}: {output}")),
        Part::Reasoning { .. } => Some(String::new()),
        Part::Image { .. } => None,
    };
    let lines = message.content.iter().map(line).collect::<Option<Vec<_>>>()?;
    Some(lines.into_iter().filter(|line| !line.is_empty()).collect())
}
