//! A hook's access to its session. Its commands go through the actor's mailbox like any client's. The store provides
//! what is not in memory.

use super::{
    handle::{Message, Outgoing},
    load::entry,
    outbox::Outbox,
    shared::{Shared, store_error},
};
use crate::{
    core::agent_loop::{Origin, Snapshot},
    hooks::{Access, AccessFuture},
    store::EntryQuery,
};
use reseed_protocol::{
    CallId, Entry, EntryId, ErrorBody, ErrorCode, SessionId,
    command::SessionCommand,
    context::{Context, GetContext},
    frame::{DEPTH_MAX, nests_too_deep},
    reply::Reply,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::{mpsc, oneshot};

/// A session in the form that its hooks see.
pub(super) struct HookSession {
    pub(super) shared: Arc<Shared>,
    pub(super) session: SessionId,
    pub(super) mailbox: mpsc::WeakSender<Box<Message>>,
    /// The hook call that this access belongs to, which its command ids contain.
    pub(super) call_id: CallId,
    /// The number of commands sent so far.
    pub(super) commands: AtomicU64,
}

impl HookSession {
    async fn send(&self, message: Message) -> Result<(), ErrorBody> {
        let mailbox = self.mailbox.upgrade().ok_or_else(gone)?;
        mailbox.send(Box::new(message)).await.map_err(|_| gone())
    }
}

impl Access for HookSession {
    fn command(&self, command: SessionCommand) -> AccessFuture<'_, Reply> {
        Box::pin(async move {
            if nests_too_deep(&command) {
                let message = format!("arrays and objects are nested more than {DEPTH_MAX} deep");
                return Err(ErrorBody::new(ErrorCode::TooDeep, message));
            }
            let number = self.commands.fetch_add(1, Ordering::Relaxed);
            let id = format!("hook-{}-{number}", self.call_id).parse();
            let id = id.map_err(|_| ErrorBody::new(ErrorCode::Internal, "a hook's call has an invalid id"))?;
            let (outgoing, mut incoming) = Outbox::new(1);
            self.send(Message::Command { origin: Origin::HOOK, id, command, outgoing }).await?;
            match incoming.recv().await {
                Some(Outgoing::Reply(replied)) => Ok(replied.reply),
                _ => Err(gone()),
            }
        })
    }

    fn now(&self) -> AccessFuture<'_, Snapshot> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            self.send(Message::Snapshot(answer)).await?;
            answered.await.map_err(|_| gone())
        })
    }

    fn context(&self, get: GetContext) -> AccessFuture<'_, Context> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            self.send(Message::NextRequest(get, answer)).await?;
            answered.await.map_err(|_| gone())?
        })
    }

    fn path(&self, from: EntryId, limit: u32) -> AccessFuture<'_, Vec<Entry>> {
        Box::pin(async move {
            let query = EntryQuery::Path { from, limit };
            let records = self.shared.store.entries(&self.session, query).await.map_err(|error| store_error(&error))?;
            let entries = records.iter().filter_map(|record| entry(&self.session, record).transpose());
            entries.collect::<Result<_, _>>().map_err(|error| store_error(&error))
        })
    }
}

fn gone() -> ErrorBody {
    ErrorBody::new(ErrorCode::SessionNotFound, "the session has left memory")
}
