//! Epochs: the names of logs.

use super::Error;

/// Returns a new epoch, random and therefore unique.
pub(super) fn new_epoch() -> Result<String, Error> {
    let random = getrandom::u64().map_err(|error| Error::Unknown(format!("make an epoch: {error}")))?;
    Ok(format!("{random:016x}"))
}
