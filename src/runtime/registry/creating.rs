//! Creates sessions for users, only once per command.

use super::Registry;
use crate::{
    core::session::IdSource,
    runtime::{actor, handle::SessionHandle, watch::Row},
    shares::Permit,
    store::{Created, Head},
};
use reseed_protocol::{CommandId, ErrorBody, ErrorCode, SessionId};

impl Registry {
    /// Creates a session for `owner` and opens it.
    ///
    /// # Errors
    /// `limit_reached`, `overloaded`, `shutting_down`, `store_failed`.
    pub async fn create(&self, owner: &str) -> Result<SessionHandle, ErrorBody> {
        self.make(owner, None).await
    }

    /// Creates a session for `owner` and opens it. If this command has created one before, that session is opened
    /// instead.
    ///
    /// # Errors
    /// `limit_reached`, `overloaded`, `shutting_down`, `store_failed`.
    pub async fn create_once(&self, owner: &str, command: &CommandId) -> Result<SessionHandle, ErrorBody> {
        self.make(owner, Some(command)).await
    }

    async fn make(&self, owner: &str, command: Option<&CommandId>) -> Result<SessionHandle, ErrorBody> {
        self.wait_for_trust().await?;
        let room = match self.room_to_create(owner).await {
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
        let store = &self.shared.store;
        let create = || store.create_once(&id, owner, command, now);
        let (since, created) = self.as_member(create).await;
        let refused = match created {
            Ok(Created::Now(lease)) => match self.seed(self.unwritten(id.clone(), now)) {
                Ok(seed) => {
                    let row = Row::new(self.watches.clone(), id, owner.to_owned());
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
    async fn room_to_create(&self, owner: &str) -> Result<Permit, ErrorBody> {
        let room = self.room(owner)?;
        self.check_may_create(owner).await?;
        Ok(room)
    }

    /// Refuses a new session if the user has reached a limit on stored data.
    pub(in crate::runtime) async fn check_may_create(&self, owner: &str) -> Result<(), ErrorBody> {
        self.shared.stored.check_may_create(owner).await
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
