//! Creates sessions for users, only once per command.

use super::Registry;
use crate::{
    core::session::IdSource,
    runtime::{actor, handle::SessionHandle, watch::Row},
    shares::Permit,
    store::{Created, Head, SessionStore},
};
use reseed_protocol::{CommandId, ErrorBody, ErrorCode, SessionId};
use std::sync::Arc;

/// Where a new session is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// In the database.
    Stored,
    /// In this server's memory only, until nobody has used it for an hour, or the server ends.
    InMemory,
}

impl Registry {
    /// Creates a session for `owner` and opens it.
    ///
    /// # Errors
    /// `limit_reached`, `overloaded`, `shutting_down`, `store_failed`.
    pub async fn create(&self, owner: &str) -> Result<SessionHandle, ErrorBody> {
        self.make(owner, None, Kept::Stored).await
    }

    /// Creates a session for `owner` and opens it. If this command has created one before, that session is opened
    /// instead.
    ///
    /// # Errors
    /// `limit_reached`, `overloaded`, `shutting_down`, `store_failed`.
    pub async fn create_once(&self, owner: &str, command: &CommandId, kept: Kept) -> Result<SessionHandle, ErrorBody> {
        self.make(owner, Some(command), kept).await
    }

    async fn make(&self, owner: &str, command: Option<&CommandId>, kept: Kept) -> Result<SessionHandle, ErrorBody> {
        self.wait_for_trust().await?;
        let room = match self.room_to_create(owner, kept).await {
            Ok(room) => room,
            // A repeated command needs no new permit, because its session exists and may be open.
            Err(refused) => match self.created_by(owner, command).await? {
                Some(earlier) => return self.open(&earlier, owner).await,
                None => return Err(refused),
            },
        };
        let id = self.random_id()?;
        let now = self.shared.clock.now();
        // A repeat of the command that finds the session waits for this actor.
        let turn = self.open.lock(&id).await;
        let store = self.store_of_new(kept);
        let create = || store.create_once(&id, owner, command, now);
        let (since, created) = self.as_member(create).await;
        let refused = match created {
            Ok(Created::Now(lease)) => match self.seed(self.unwritten(id.clone(), now)) {
                Ok(seed) => {
                    let row = self.row(&id, owner.to_owned());
                    let head = Head { created_at: now, updated_at: now, ..Head::default() };
                    return Ok(self.spawn(actor::Started { lease, since, seed, head, stored_seq: 0, row }, room));
                }
                Err(error) => Err(error),
            },
            Ok(Created::Before(earlier)) => Ok(earlier),
            Err(error) => Err(self.fault(&error)),
        };
        // Opening takes its own turn and permit.
        drop((turn, room));
        self.open(&refused?, owner).await
    }

    /// Takes permits for a new session of this user, in memory and in the store.
    async fn room_to_create(&self, owner: &str, kept: Kept) -> Result<Permit, ErrorBody> {
        let room = self.room(owner).await?;
        self.check_may_keep(owner, kept).await?;
        Ok(room)
    }

    /// Refuses a new session if the user has reached a limit on stored data, or the memory for others is full.
    pub(in crate::runtime) async fn check_may_keep(&self, owner: &str, kept: Kept) -> Result<(), ErrorBody> {
        match kept {
            Kept::Stored => self.shared.stored.check_may_create(owner).await,
            Kept::InMemory => self.shared.check_memory(owner),
        }
    }

    /// Returns where a session is kept.
    pub(in crate::runtime) fn kept(&self, session: &SessionId) -> Kept {
        if self.shared.unstored.contains(session) { Kept::InMemory } else { Kept::Stored }
    }

    /// Returns false for a session that is in memory only.
    #[must_use]
    pub fn is_stored(&self, session: &SessionId) -> bool {
        self.kept(session) == Kept::Stored
    }

    /// Returns the store for a new session. Afterwards, each is found through the store of all.
    pub(in crate::runtime) fn store_of_new(&self, kept: Kept) -> &dyn SessionStore {
        match kept {
            Kept::Stored => &*self.shared.store,
            Kept::InMemory => &*self.shared.unstored,
        }
    }

    /// Returns the row of a session in the list of its owner.
    pub(super) fn row(&self, id: &SessionId, owner: String) -> Arc<Row> {
        Row::new(self.watches.clone(), id.clone(), owner, self.kept(id) == Kept::Stored)
    }

    /// Returns the session that this command has created before.
    ///
    /// # Errors
    /// `store_failed`.
    pub(crate) async fn created_by(
        &self,
        owner: &str,
        command: Option<&CommandId>,
    ) -> Result<Option<SessionId>, ErrorBody> {
        let Some(command) = command else { return Ok(None) };
        self.store().created_by(owner, command).await.map_err(|error| self.fault(&error))
    }

    /// Returns a random session id of 16 letters. Its 80 random bits also keep strangers out if no tokens are
    /// configured.
    pub(in crate::runtime) fn random_id(&self) -> Result<SessionId, ErrorBody> {
        let mut id = IdSource::seeded(self.random_bits()?).next_text();
        id.push_str(&IdSource::seeded(self.random_bits()?).next_text()[..4]);
        id.parse().map_err(|error| ErrorBody::new(ErrorCode::Internal, format!("cannot create an id: {error}")))
    }
}
