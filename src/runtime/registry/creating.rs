//! New sessions: created for a user, and once only for each command of one.

use super::{Registry, forget};
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

    /// Creates a session for `owner` and opens it; or opens the one that this command has created before.
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
            // A repeat of the command takes no room: its session is there, and may be open.
            Err(refused) => match self.created_by(owner, command).await? {
                Some(earlier) => return self.open(&earlier, owner).await,
                None => return Err(refused),
            },
        };
        let id = self.random_id()?;
        let now = self.shared.clock.now();
        // The place is taken first: a repeat of the command that finds the session waits for this actor.
        let slot = self.slots.entry(id.clone()).or_default().clone();
        let mut place = slot.handle.lock().await;
        let store = &self.shared.store;
        let create = || async {
            match command {
                Some(command) => store.create_once(&id, owner, command, now).await,
                None => store.create(&id, owner, now).await.map(Created::Now),
            }
        };
        let (since, created) = self.as_member(create).await;
        let refused = match created {
            Ok(Created::Now(lease)) => match self.seed(self.unwritten(id.clone(), now)) {
                Ok(seed) => {
                    let row = Row::new(self.watches.clone(), id, owner.to_owned());
                    let head = Head { created_at: now, updated_at: now, ..Head::default() };
                    let handle = self.spawn(actor::Started { lease, since, seed, head, stored_seq: 0, row }, room);
                    *place = Some(handle.clone());
                    return Ok(handle);
                }
                Err(error) => Err(error),
            },
            Ok(Created::Before(earlier)) => Ok(earlier),
            Err(error) => Err(self.fault(&error)),
        };
        drop(place);
        drop(slot);
        // Opening takes its own.
        drop(room);
        forget(&self.slots, &id);
        self.open(&refused?, owner).await
    }

    /// Takes room for a new session of this user, in memory and in the store.
    async fn room_to_create(&self, owner: &str) -> Result<Permit, ErrorBody> {
        let room = self.room(owner)?;
        self.check_may_create(owner).await?;
        Ok(room)
    }

    /// Refuses a new session of a user who has stored all that one may store.
    pub(in crate::runtime) async fn check_may_create(&self, owner: &str) -> Result<(), ErrorBody> {
        self.shared.check_may_create(owner).await
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

    /// Returns a random session id. It also keeps strangers out if no tokens are configured: 16 letters, 80 random
    /// bits.
    pub(in crate::runtime) fn random_id(&self) -> Result<SessionId, ErrorBody> {
        let mut id = IdSource::seeded(self.random_bits()?).next_text();
        id.push_str(&IdSource::seeded(self.random_bits()?).next_text()[..4]);
        id.parse().map_err(|error| ErrorBody::new(ErrorCode::Internal, format!("cannot create an id: {error}")))
    }
}
