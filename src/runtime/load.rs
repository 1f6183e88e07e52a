//! A session from the store: the fold of its log, and the path as far back as the model can see.

use crate::{
    core::{
        context::counter::Counter,
        session::{Node, Session, SessionState, state::STATE_VERSION, tree::PathReader},
    },
    store::{EntryQuery, Error, SessionHead, SessionStore, StoredRecord},
};
use reseed_protocol::{EntryId, event::Event};

/// Entries read at once on the way to the root.
const PATH_PAGE: u32 = 128;
/// Records read at once when the log is folded anew.
const LOG_PAGE: u32 = 1_000;

/// Reads a session.
///
/// # Errors
/// The store's; a record that is not an event of this version is [`Error::Unknown`], naming its place.
pub(super) async fn load(store: &dyn SessionStore, head: &SessionHead) -> Result<Session, Error> {
    let mut session = Session::new(head.session.clone(), head.head.created_at);
    session.state = match serde_json::from_str::<SessionState>(&head.head.state) {
        Ok(state) if state.version == STATE_VERSION && state.seq == head.last_seq => state,
        _ => fold(store, head).await?,
    };
    let counter = Counter::for_model(&session.state.model);
    let mut reader = PathReader::default();
    let mut next: Option<EntryId> = session.state.leaf.clone();
    while let Some(from) = next.take() {
        let page = store.entries(&head.session, EntryQuery::Path { from, limit: PATH_PAGE }).await?;
        let full = page.len() == PATH_PAGE as usize;
        for record in page {
            let Event::EntryAppended(appended) = event(head, &record)? else { continue };
            let parent = appended.entry.parent_id.clone();
            let more = reader.take(Node::counted(appended.entry, &counter));
            next = parent.filter(|_| more && full);
            if !more {
                break;
            }
        }
    }
    session.tree = reader.finish();
    Ok(session)
}

/// The whole log, from its first record: the slow road, always right.
async fn fold(store: &dyn SessionStore, head: &SessionHead) -> Result<SessionState, Error> {
    let mut state = SessionState::default();
    loop {
        let page = store.read(&head.session, state.seq, LOG_PAGE).await?;
        if page.is_empty() {
            return Ok(state);
        }
        for record in page {
            state.apply(&event(head, &record)?);
        }
    }
}

fn event(head: &SessionHead, record: &StoredRecord) -> Result<Event, Error> {
    serde_json::from_str(&record.body).map_err(|error| {
        let (session, seq) = (&head.session, record.seq);
        Error::Unknown(format!("record {seq} of session `{session}` is not an event of this version: {error}"))
    })
}
