//! The place in a session's tree that a response continues from, and what holds there.

use super::{
    create::{not_found, stored_in},
    ids::ResponseId,
    listing::Back,
    request::Invalid,
    resource::{ADDITIONAL, ADDITIONAL_IN, system_of},
    tools::{Names, Tool, added, packed, unpacked},
};
use crate::{exchange::Exchange, http::Failure};
use reseed_protocol::{CommandId, Entry, EntryId, ErrorBody, ErrorCode};
use serde_json::{Value, json};

/// Maximum bytes of what is stored with an input. The server takes little more.
const STORED_BYTES_MAX: usize = 63 * 1024;

/// The place that a response continues from.
#[derive(Default)]
pub(super) struct From {
    /// The last entry of the response before it; `None` to continue at the leaf.
    pub(super) parent: Option<EntryId>,
    /// The texts of system messages so far.
    pub(super) system: Vec<String>,
    /// The tools of the chain's items so far.
    pub(super) tools: Vec<Tool>,
    /// The input that holds them; `None` if they are new.
    tools_in: Option<EntryId>,
    /// The names of all tools of the input before.
    pub(super) names: Names,
    pub(super) in_conversation: bool,
    /// True for a response that is stored, so that what follows would be stored beside it.
    pub(super) is_stored: bool,
}

impl From {
    /// Returns what holds after this input, at the leaf of the session.
    async fn input(exchange: &mut Exchange, input: &Entry, stored: &Value) -> Result<Self, Failure> {
        let holder = stored[ADDITIONAL_IN].as_str().and_then(|holder| holder.parse::<EntryId>().ok());
        let held = match &holder {
            Some(holder) => stored_in(&entry(exchange, holder).await?).unwrap_or_default(),
            None => stored.clone(),
        };
        let packed = held[ADDITIONAL].as_str();
        let tools = match (packed, &holder) {
            (Some(packed), _) => unpacked(packed).ok_or_else(unreadable)?,
            (None, Some(_)) => return Err(unreadable()),
            (None, None) => Vec::new(),
        };
        Ok(Self {
            parent: None,
            system: system_of(stored),
            tools,
            tools_in: packed.map(|_| holder.unwrap_or_else(|| input.entry_id.clone())),
            names: Names::of_stored(stored),
            in_conversation: stored["in_conversation"] == true,
            is_stored: stored["store"] != false,
        })
    }

    /// Returns what holds after this response, and where that is.
    ///
    /// # Errors
    /// `previous_response_not_found`, or why the session cannot be read.
    pub(super) async fn after(
        exchange: &mut Exchange,
        previous: &ResponseId,
        may_continue: &(dyn Fn(&ResponseId) -> bool + Sync),
    ) -> Result<Self, Failure> {
        let lost = || not_found(&previous.to_string());
        let input = entry(exchange, &previous.entry).await.map_err(|_| lost())?;
        let stored = stored_in(&input).ok_or_else(lost)?;
        if stored["store"] == false && !may_continue(previous) {
            return Err(lost());
        }
        let from = Self::input(exchange, &input, &stored).await?;
        let answer = exchange.answer_to(&previous.entry, &from.names.joined()).await;
        let answer = answer.map_err(|error| match error.code {
            ErrorCode::EntryNotFound => lost(),
            _ => error.into(),
        })?;
        let last = answer.last().map_or(&previous.entry, |entry| &entry.entry_id);
        let is_leaf = exchange.snapshot().leaf_id.as_ref() == Some(last);
        Ok(Self { parent: (!is_leaf).then(|| last.clone()), ..from })
    }

    /// Returns what holds at the end of a conversation.
    ///
    /// # Errors
    /// Why the session cannot be read.
    pub(super) async fn end(exchange: &mut Exchange, command: Option<&CommandId>) -> Result<Self, Failure> {
        let from = match newest_input(exchange, command).await? {
            Some((input, stored)) => Self::input(exchange, &input, &stored).await?,
            None => Self::default(),
        };
        Ok(Self { in_conversation: true, is_stored: false, ..from })
    }

    /// Adds the tools of a request's items. If there are too many then, the oldest are dropped.
    pub(super) fn bring(&mut self, tools: &[Tool]) {
        if !tools.is_empty() {
            self.tools = added(&self.tools, tools);
            self.tools_in = None;
        }
    }

    /// Stores the texts of system messages with an input, and the tools of the chain's items, or where they are.
    ///
    /// # Errors
    /// They are too large.
    pub(super) fn store(&self, stored: &mut Value) -> Result<(), Invalid> {
        if !self.system.is_empty() {
            stored["system"] = json!(self.system);
        }
        if let Some(entry) = &self.tools_in {
            stored[ADDITIONAL_IN] = json!(entry);
        } else if !self.tools.is_empty() {
            stored[ADDITIONAL] = json!(packed(&self.tools)?);
        }
        let bytes = stored.to_string().len();
        if bytes > STORED_BYTES_MAX {
            let message = format!(
                "its system messages and additional tools, which are kept with it, have {bytes} bytes with the names of \
                 all tools; at most {STORED_BYTES_MAX} are allowed"
            );
            return Err(Invalid::at("input", message));
        }
        Ok(())
    }
}

/// Returns the error for tools of a chain that were stored and cannot be read.
fn unreadable() -> Failure {
    let message = "the additional tools that were stored with an earlier input cannot be read";
    ErrorBody::new(ErrorCode::Internal, message).into()
}

async fn entry(exchange: &mut Exchange, id: &EntryId) -> Result<Entry, Failure> {
    match exchange.snapshot().entries.get(id) {
        Some(entry) => Ok((**entry).clone()),
        None => Ok(exchange.entry(id).await?),
    }
}

/// Returns the newest input of this dialect in a session, or the one before the input that this command has stored.
///
/// # Errors
/// Why the session cannot be read.
async fn newest_input(exchange: &mut Exchange, command: Option<&CommandId>) -> Result<Option<(Entry, Value)>, Failure> {
    let snapshot = exchange.snapshot();
    let inputs: Vec<(&Entry, Value)> =
        snapshot.path.iter().rev().filter_map(|entry| Some((&**entry, stored_in(entry)?))).collect();
    let own = command.and_then(|id| inputs.iter().position(|(_, stored)| stored["key"] == id.as_str()));
    let newest = inputs.into_iter().nth(own.map_or(0, |own| own + 1));
    let mut newest = newest.map(|(entry, stored)| (entry.clone(), stored));
    let mut back = Back::before(snapshot.path.top().filter(|_| snapshot.path.more()));
    while newest.is_none()
        && let Some(entry) = back.next(exchange).await?
    {
        newest = stored_in(&entry).map(|stored| (entry, stored));
    }
    Ok(newest)
}
