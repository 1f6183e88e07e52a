//! The built-in tools on systems other than Linux, which have none: nothing there opens files and ends processes as
//! they need it.

use super::Tool;
use crate::config::Settings;
use reseed_protocol::SessionId;
use std::{convert::Infallible, io, path::Path, process::ExitCode, sync::Arc};

/// The reason the tools cannot be offered.
#[derive(Debug, thiserror::Error)]
#[error("SHELL_TOOL is `on`, which needs Linux; set SHELL_TOOL to off")]
pub struct Error;

/// The value of `SHELL_BINARY` for the `reseed` binary.
pub(crate) const OWN_BINARY: &str = "";

/// The two tools. There is no value of this type.
#[derive(Debug)]
pub struct Shell(Infallible);

impl Shell {
    /// Returns `None` if the tools are off.
    ///
    /// # Errors
    /// They are on.
    #[expect(clippy::unused_async, reason = "on Linux it waits")]
    pub async fn open(settings: &Settings) -> Result<Option<Arc<Self>>, Error> {
        if settings.shell.shell_tool.is_on() { Err(Error) } else { Ok(None) }
    }

    /// Returns `None` if the tools are off.
    ///
    /// # Errors
    /// They are on.
    pub async fn check(settings: &Settings) -> Result<Option<Self>, Error> {
        Self::open(settings).await.map(|_| None)
    }

    /// Returns the folder in which sessions have theirs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        match self.0 {}
    }

    /// Returns the tools.
    #[must_use]
    pub fn tools(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        match self.0 {}
    }

    /// Returns true if commands are confined.
    #[must_use]
    pub fn is_confined(&self) -> bool {
        match self.0 {}
    }

    /// Returns the sessions that have folders.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn sessions(&self) -> io::Result<Vec<SessionId>> {
        match self.0 {}
    }

    /// Removes a session's folder.
    ///
    /// # Errors
    /// A part of it cannot be removed.
    #[expect(clippy::unused_async, reason = "on Linux it waits")]
    pub async fn remove(&self, _session: &SessionId) -> io::Result<()> {
        match self.0 {}
    }
}

/// Runs the helper of commands, which there are none of.
#[doc(hidden)]
#[must_use]
pub fn run_helper() -> ExitCode {
    ExitCode::FAILURE
}
