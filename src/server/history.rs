//! Searches the text of one session, or of all the user's sessions.

use super::sessions::{Asker, invalid, limit};
use crate::store::{Error, Query, SearchQuery};
use reseed_protocol::{
    ErrorBody, SessionId,
    reply::Reply,
    tree::{HistoryHit, HistoryHits, SearchHistory},
};
use std::collections::BTreeMap;

/// Hits per search: default and maximum.
const HITS_LIMIT: (u32, u32) = (20, 100);

/// Maximum query length. People type queries.
const QUERY_CHARS_MAX: usize = 1_000;

pub(super) async fn search(
    asker: &Asker<'_>,
    session: Option<&SessionId>,
    search: SearchHistory,
) -> Result<Reply, ErrorBody> {
    if search.query.chars().count() > QUERY_CHARS_MAX {
        return Err(invalid("query", format!("query may have at most {QUERY_CHARS_MAX} characters")));
    }
    if Query::parse(&search.query).is_empty() {
        return Err(invalid("query", "query must have a word: letters or digits".to_owned()));
    }
    let registry = &asker.app.registry;
    let limit = limit(search.limit, HITS_LIMIT)?;
    let mut names = BTreeMap::new();
    let query = match session {
        Some(session) => {
            let head = registry.head(session, asker.owner).await?;
            names.insert(session.clone(), head.head.name);
            SearchQuery::in_session(session, &search.query, limit)
        }
        None => SearchQuery::of_owner(asker.owner, &search.query, limit),
    };
    let hits = registry.store().search(query).await.map_err(|error| registry.fault(&error))?;
    let mut items = Vec::new();
    for hit in hits.items {
        let name = match names.get(&hit.session) {
            Some(name) => name.clone(),
            None => match registry.store().head(&hit.session).await {
                Ok(head) => names.entry(hit.session.clone()).or_insert(head.head.name).clone(),
                // It was deleted after the search.
                Err(Error::NotFound(_)) => continue,
                Err(error) => return Err(registry.fault(&error)),
            },
        };
        items.push(HistoryHit {
            session_id: hit.session,
            name: Some(name).filter(|name| !name.is_empty()),
            entry_id: hit.entry,
            timestamp: hit.timestamp,
            role: hit.role,
            snippet: hit.snippet,
        });
    }
    Ok(Reply::HistoryHits(HistoryHits { items, more: hits.more }))
}
