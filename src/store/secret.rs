//! Secrets of the servers that share a store.

use crate::Error;
use std::fmt;

/// A random secret, made by the first server that needed it. `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Returns the secret in a stored value.
    ///
    /// # Errors
    /// [`Error::Unknown`]: the value has another length.
    pub(crate) fn stored(name: &str, value: &[u8]) -> Result<Self, Error> {
        let invalid = |_| Error::Unknown(format!("the secret `{name}` in the database is damaged: delete its row"));
        value.try_into().map(Self).map_err(invalid)
    }
}
