//! Sessions: the connection, the list, opening one, who else is there, and its settings.

mod connection;
mod list;
mod open;
mod presence;
mod settings;

pub use self::{connection::*, list::*, open::*, presence::*, settings::*};
