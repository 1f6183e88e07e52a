//! Executes the agent loop's effects; one actor per open session.
//!
//! An open session:
//! - [`registry`]: the open sessions; opens, creates and deletes sessions
//! - [`handle`]: what other parts of the server may do with an open session, and its mailbox
//! - `actor`: a session's mailbox; everything that can wake it becomes one input of the agent loop
//! - [`shared`]: the state that all actors share; [`parts`]: the replaceable part of it
//! - `effects`: appends to the store, publishes events, answers commands
//! - `model_calls`: calls the provider; each answer returns as an input
//! - `hooks`: calls the server's hooks; `hook_session`: a hook's access to its session
//! - `tools`: runs the server's tools
//! - `summaries`: requests summaries; `model_server_load`: detects a model server that works on one request at a time
//! - `live`: the answer being streamed
//! - `pending_replies`: replies to commands that are answered after later ones
//! - `lookups`: prefetches from the store what a command needs elsewhere in the tree
//! - [`fork`]: makes a session from a path of another
//! - [`errors`]: errors that several files return to clients
//! - `steady`: the clock of a session's loop
//! - `measure`: metrics and log lines about a session's life
//! - `resting`: sessions that stay in memory after their last connection has left
//! - [`blocking`]: runs long work without blocking a worker thread
//!
//! Readers:
//! - [`feed`]: what subscribers read, each at its own pace, with a cursor
//! - [`encoded`]: frames shared by readers at the same position in an answer
//! - `tail`: the newest durable events, for readers that keep up
//! - [`outbox`]: messages that wait for one connection, and their budget
//! - [`watch`]: reports changes to watchers of the session list
//!
//! Stored sessions:
//! - `load`: loads a session from the store, as far back as the model can see
//! - `peek`: reads sessions without opening them; [`stored`]: the same without a server
//! - `state_copy`: the copy of a session's state that is stored with its log
//! - `stored_calibration`: a session's calibration, stored beside that copy
//! - `ended_calls`: marks of finished tool calls
//! - [`labels`]: the labels of entries
//! - [`whole`]: the full text of truncated tool results
//! - `prewarm`: keeps the provider's cache of an idle session
//! - `readable`: checks that stored records can be read back
//! - `stored_shares`: limits on what a user may have stored
//!
//! [`cluster`] makes this server a node of a cluster.

mod actor;
pub(crate) mod blocking;
pub(crate) mod cluster;
mod effects;
pub(crate) mod encoded;
mod ended_calls;
pub(crate) mod errors;
pub(crate) mod feed;
pub(crate) mod fork;
pub(crate) mod handle;
mod hook_session;
mod hooks;
mod inference;
pub(crate) mod labels;
pub(crate) mod live;
mod load;
mod lookups;
mod measure;
mod metering;
mod model_calls;
mod model_server_load;
pub(crate) mod outbox;
pub(crate) mod parts;
mod peek;
mod pending_replies;
mod prewarm;
mod readable;
pub(crate) mod registry;
mod resting;
mod session_trace;
pub(crate) mod shared;
mod state_copy;
mod steady;
pub(crate) mod stored;
mod stored_calibration;
mod stored_shares;
mod summaries;
mod tail;
mod tools;
pub(crate) mod watch;
pub(crate) mod whole;

#[cfg(test)]
mod resume_decisions;

pub(crate) use actor::{PRESENCE_MAX, REPLAY_EVENTS_MAX};
pub(crate) use cluster::Keeper;
pub(crate) use encoded::Frame;
pub(crate) use errors::store_error;
pub(crate) use feed::{Cursor, Reader};
pub(crate) use handle::{Attach, Attached, ConnectionShare, Identity, LeftOff, SUBSCRIPTIONS_MAX, SessionHandle};
pub(crate) use live::ItemPosition;
pub(crate) use outbox::{Outgoing, Private, Replied};
pub(crate) use registry::{Kept, Registry, RegistryOptions, holding::Found};
