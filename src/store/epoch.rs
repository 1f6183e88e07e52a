//! Names of logs.

use super::Error;

/// Returns a name for a log, random and thus its own.
pub(super) fn new_epoch() -> Result<String, Error> {
    let random = getrandom::u64().map_err(|error| Error::Unknown(format!("make an epoch: {error}")))?;
    Ok(format!("{random:016x}"))
}
