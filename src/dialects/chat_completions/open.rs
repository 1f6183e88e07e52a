//! Opens the session of a request, finds the place of its list in the tree, and asks.

use super::{
    DIALECT, Door, keeping,
    request::Request,
    said::{Chain, Said, chains},
    tree::{Mark, Place, Tree},
};
use crate::{
    exchange::{self, Exchange, Wanted, command_id},
    http::Failure,
};
use axum::http::HeaderMap;
use reseed_client::Connect;
use reseed_protocol::{
    CommandId, Entry, EntryId, ErrorBody, ErrorCode, TurnId,
    command::{Command, Empty},
    content::Input,
    reply::Reply,
    session::SetOptions,
    tree::GetEntries,
    turn::{CancelTurn, UserInput, WhenBusy},
};

/// How often a place is looked for again because someone else has written to the session meanwhile.
const TRIES_MAX: u32 = 3;

/// The number of entries that are read at a time.
const PAGE: u32 = 500;

/// Pages that are read of a session whose tree is not in memory. Lists that end before the newest 100,000 entries are
/// imported again.
const PAGES_MAX: usize = 200;

/// What a client wants.
pub(super) struct Wish {
    pub(super) request: Request,
    /// The hash after each message of its list, beginning with that of none.
    chains: Vec<Chain>,
    /// The session's name for this user: a hash of the client's own name for it, or else of how the list begins.
    session: CommandId,
    /// True if the client has a name for its session, and so wants it to be kept.
    names_session: bool,
    /// True if nothing may be kept.
    pub(super) keeps_nothing: bool,
    /// The client's name for this request. If it comes again, it gets the same answer.
    key: Option<String>,
}

/// A request whose turn has started.
pub(super) struct Asked {
    /// Names the answer.
    pub(super) input: EntryId,
    pub(super) live: Live,
    /// True if it has made a session that no client asked to keep.
    pub(super) adds_session: bool,
}

/// An exchange with its end: what remains to be done if the client leaves before the answer is complete.
pub(super) struct Live {
    exchange: Option<Exchange>,
    turn: Option<TurnId>,
    /// True if nobody comes back for the answer, so that a turn without its client is cancelled.
    cancels: bool,
    deletes: bool,
    /// True if it has offered tools. They are withdrawn with the end of the turn: the next request may have none.
    withdraws: bool,
}

impl Wish {
    pub(super) fn new(headers: &HeaderMap, request: Request, keeps_unnamed: bool) -> Self {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let chains = chains(&request.list);
        let first = request.list.iter().position(|said| matches!(said, Said::User(_))).unwrap_or(0);
        let session = match header("x-session") {
            Some(name) => Chain::ROOT.named(name),
            // Programs often use one such key for many conversations.
            None => chains[first + 1].named(request.prompt_cache_key.as_deref().unwrap_or_default()),
        };
        let session = format!("cc:{session}").parse().expect("hexadecimal digits are an id");
        let key = header("idempotency-key").map(|key| command_id(DIALECT, key).as_str().to_owned());
        let names_session = header("x-session").is_some();
        let refuses = header("x-reseed-store").is_some_and(|store| store.eq_ignore_ascii_case("none"));
        let keeps_nothing = refuses || !names_session && !keeps_unnamed;
        Self { request, chains, session, names_session, keeps_nothing, key }
    }

    /// Returns where its session is.
    pub(super) fn place(&self) -> exchange::Place {
        match self.keeps_nothing {
            true => exchange::Place::Unstored(None),
            false => exchange::Place::Once(self.session.clone()),
        }
    }

    /// Returns what is stored with the input.
    fn mark(&self) -> Mark {
        let chain = self.chains.last().copied().unwrap_or(Chain::ROOT).hex();
        Mark { chain, functions: self.request.functions(), key: self.key.clone() }
    }

    fn wanted(&self) -> Wanted {
        let SetOptions { temperature, top_p, max_output_tokens, answer } = self.request.options.clone();
        Wanted {
            model: Some(self.request.model.clone()),
            reasoning_effort: self.request.reasoning_effort.clone(),
            instructions: Some(self.request.instructions.clone()),
            options: Some(SetOptions { temperature, top_p, max_output_tokens, answer }),
            strategy: None,
        }
    }
}

/// Returns true for a request that another session could answer.
pub(super) fn is_busy(failure: &Failure) -> bool {
    let codes = [ErrorCode::TurnRunning, ErrorCode::CompactionRunning];
    codes.iter().any(|code| failure.code.as_deref() == Some(code.as_str()))
}

impl Door {
    /// Starts the turn that answers a request, in the session at this place.
    ///
    /// # Errors
    /// Returns the server's error, or that of a list which cannot be answered.
    pub(super) async fn ask(
        &self,
        connect: Box<dyn Connect>,
        place: exchange::Place,
        wish: &Wish,
    ) -> Result<Asked, Failure> {
        // A session beside the one that the client has named is as good as unnamed.
        let is_stateless = !wish.names_session || place == exchange::Place::New;
        let exchange = Exchange::open(connect, place, Vec::new()).await?;
        let adds_session = is_stateless && !wish.keeps_nothing && exchange.snapshot().leaf_id.is_none();
        let cancels = wish.key.is_none();
        let mut live =
            Live { exchange: Some(exchange), turn: None, cancels, deletes: wish.keeps_nothing, withdraws: false };
        let mut tries = 0;
        loop {
            tries += 1;
            let exchange = live.exchange();
            let input = match self.input(exchange, wish, is_stateless).await? {
                Found::New(input) => input,
                Found::Known(input) => {
                    exchange.follow(&input, &wish.request.functions()).await?;
                    return Ok(Asked { input, live, adds_session });
                }
            };
            if !wish.request.tools.is_empty() {
                exchange.offer(wish.request.tools.clone()).await?;
                live.withdraws = true;
            }
            let exchange = live.exchange();
            exchange.configure(wish.wanted()).await?;
            match exchange.ask(*input, None).await {
                Ok(accepted) => {
                    live.turn = accepted.turn_id;
                    let queued = || ErrorBody::new(ErrorCode::TurnRunning, "another turn is running");
                    let input = accepted.entry_id.ok_or_else(queued)?;
                    return Ok(Asked { input, live, adds_session });
                }
                Err(error) if error.code == ErrorCode::LeafMoved && tries < TRIES_MAX => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the input for what is new in the list, or the input that the same request had before.
    async fn input(&self, exchange: &mut Exchange, wish: &Wish, is_stateless: bool) -> Result<Found, Failure> {
        let session = exchange.snapshot().session_id.clone();
        let mut tree = self.memory.take(&session);
        let read = read_on(exchange, &mut tree).await;
        let found = read.map_err(Failure::from).and_then(|()| find(exchange, &tree, wish, is_stateless));
        self.memory.put(session, tree);
        found
    }
}

enum Found {
    New(Box<UserInput>),
    Known(EntryId),
}

/// Adds the entries that a tree does not have yet.
async fn read_on(exchange: &mut Exchange, tree: &mut Tree) -> Result<(), ErrorBody> {
    if tree.last().is_none() {
        return read_all(exchange, tree).await;
    }
    while exchange.snapshot().leaf_id.as_ref() != tree.last() {
        let (entries, more) = page(exchange, None, tree.last().cloned()).await?;
        entries.iter().for_each(|entry| tree.add(entry));
        if !more || entries.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Adds all entries to an empty tree. Pages come newest first.
async fn read_all(exchange: &mut Exchange, tree: &mut Tree) -> Result<(), ErrorBody> {
    let mut pages: Vec<Vec<Entry>> = Vec::new();
    while exchange.snapshot().leaf_id.is_some() && pages.len() < PAGES_MAX {
        let oldest = pages.last().and_then(|page| page.first()).map(|entry| entry.entry_id.clone());
        let (entries, more) = page(exchange, oldest, None).await?;
        let is_last = !more || entries.is_empty();
        pages.push(entries);
        if is_last {
            break;
        }
    }
    pages.iter().rev().flatten().for_each(|entry| tree.add(entry));
    Ok(())
}

/// Returns a page of entries, oldest first, and true if there are more in its direction.
async fn page(
    exchange: &mut Exchange,
    before: Option<EntryId>,
    after: Option<EntryId>,
) -> Result<(Vec<Entry>, bool), ErrorBody> {
    let get = GetEntries { before, after, limit: Some(PAGE), path: None, entry_id: None };
    match exchange.request(&Command::GetEntries(get)).await? {
        Reply::Entries(page) => Ok((page.items, page.more)),
        _ => Err(ErrorBody::new(ErrorCode::Internal, "the server did not answer with entries")),
    }
}

fn find(exchange: &Exchange, tree: &Tree, wish: &Wish, is_stateless: bool) -> Result<Found, Failure> {
    let snapshot = exchange.snapshot();
    if let Some(input) = wish.key.as_ref().and_then(|key| tree.input_of(key)) {
        return Ok(Found::Known(input.clone()));
    }
    if snapshot.turn.is_some() {
        return Err(ErrorBody::new(ErrorCode::TurnRunning, "another turn is running in this session").into());
    }
    let (list, leaf) = (&wish.request.list, snapshot.leaf_id.as_ref());
    let (known, place) = tree.place(&wish.chains, leaf);
    let history = tree.history(list, &wish.chains, known, &place, leaf).map_err(|_| {
        let message = "a message of the role `tool` answers no call of the messages before it";
        Failure::invalid(message).with_code("invalid_tool_result").at("messages")
    })?;
    let (parent_id, if_leaf) = match place {
        Place::Leaf => (None, Some(leaf.cloned())),
        Place::At(entry) => (Some(entry), None),
    };
    let mut details = wish.mark().details();
    if is_stateless {
        keeping::mark(&mut details, &snapshot.session_id);
    }
    let input = UserInput {
        history: Some(history),
        details: Some(details),
        when_busy: Some(WhenBusy::Reject),
        parent_id,
        if_leaf,
        ..UserInput::plain(Input::Items(Vec::new()))
    };
    Ok(Found::New(Box::new(input)))
}

impl Live {
    /// Returns the exchange.
    pub(super) fn exchange(&mut self) -> &mut Exchange {
        self.exchange.as_mut().expect("it is there until the end")
    }

    /// Ends it after a complete answer.
    pub(super) async fn end(mut self) {
        if let Some(exchange) = self.exchange.take() {
            leave(exchange, None, self.withdraws, self.deletes).await;
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let Some(exchange) = self.exchange.take() else { return };
        let turn = self.turn.take().filter(|_| self.cancels);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(leave(exchange, turn, self.withdraws && self.cancels, self.deletes));
        }
    }
}

async fn leave(mut exchange: Exchange, turn: Option<TurnId>, withdraws: bool, deletes: bool) {
    if turn.is_some() {
        // If it has ended meanwhile, there is nothing to cancel.
        let _ = exchange.request(&Command::CancelTurn(CancelTurn { turn_id: turn })).await;
    }
    if withdraws {
        let _ = exchange.offer(Vec::new()).await;
    }
    if deletes {
        // If the server stops meanwhile, the session stays.
        let _ = exchange.request(&Command::DeleteSession(Empty {})).await;
    }
    exchange.close().await;
}
