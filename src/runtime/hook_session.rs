//! A hook's access to its session. Its commands go through the actor's mailbox like any client's. The store provides
//! what is not in memory.

use super::{
    errors::store_error,
    handle::{Gone, Mailbox, Message, WeakMailbox},
    load::entry,
    outbox::{Outbox, Outgoing},
    shared::Shared,
};
use crate::{
    core::agent_loop::{Origin, Snapshot},
    hooks::{Access, AccessFuture},
    store::EntryQuery,
    trace,
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

/// A session in the form that its hooks see.
pub(super) struct HookSession {
    pub(super) shared: Arc<Shared>,
    pub(super) session: SessionId,
    pub(super) mailbox: WeakMailbox,
    /// The hook call that this access belongs to, which its command ids contain.
    pub(super) call_id: CallId,
    /// The number of commands sent so far.
    pub(super) commands: AtomicU64,
}

impl HookSession {
    fn mailbox(&self) -> Result<Mailbox, ErrorBody> {
        self.mailbox.upgrade().map_err(gone)
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
            let context = trace::current().map(Box::new);
            let message = Message::Command { origin: Origin::HOOK, id, command, outgoing, context };
            self.mailbox()?.send(message).await.map_err(gone)?;
            match incoming.recv().await {
                Some(Outgoing::Reply(replied)) => Ok(replied.reply),
                _ => Err(gone(Gone)),
            }
        })
    }

    fn now(&self) -> AccessFuture<'_, Snapshot> {
        Box::pin(async move { self.mailbox()?.ask(Message::Snapshot).await.map_err(gone) })
    }

    fn context(&self, get: GetContext) -> AccessFuture<'_, Context> {
        Box::pin(async move { self.mailbox()?.ask(|answer| Message::NextRequest(get, answer)).await.map_err(gone)? })
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

fn gone(_: Gone) -> ErrorBody {
    ErrorBody::new(ErrorCode::SessionNotFound, "the session has left memory")
}
