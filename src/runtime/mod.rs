//! Makes effects true: one actor for each open session.
//!
//! - [`registry`]: which sessions are open; opens, makes and deletes them
//! - `actor`: a session's mailbox; each thing that can wake it becomes one input of the agent loop
//! - `effects`: calls the provider, appends to the store; each answer returns as an input
//! - [`feed`]: what subscribers read, each at its own pace, behind a cursor
//! - `late`: commands that are answered after later ones
//! - `live`: the answer that is being streamed, as far as it is
//! - `places`: where a command goes that goes elsewhere in the tree
//! - [`fork`]: a session made of a path of another
//! - [`labels`]: the names of entries
//! - `look`: sessions looked at without opening them; [`stored`]: the same without a server
//! - [`watch`]: what those are told who watch the list of sessions
//! - `load`: a session from the store, as far back as the model can see

mod actor;
mod effects;
pub mod feed;
pub mod fork;
pub mod handle;
mod hook_session;
mod hooks;
pub mod labels;
mod late;
mod live;
mod load;
mod look;
mod measure;
mod places;
pub mod registry;
mod shared;
pub mod stored;
pub mod watch;

#[cfg(test)]
mod resume_decisions;

pub use feed::{Cursor, Feed, Frame, Reader, Seen};
pub use handle::{Attach, Attached, LeftOff, Outgoing, Private, SessionHandle};
pub use registry::{RandomBits, Registry, RegistryOptions};
pub use shared::store_error;
