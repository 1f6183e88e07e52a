//! Shared by the files that list something: `HOOKS_FILE`, `MCP_FILE` and `BUDGETS_FILE`.

use secrecy::SecretString;
use std::{
    fs::File,
    io::{self, Read as _},
    net::IpAddr,
    path::Path,
};

/// Maximum bytes of a file. The largest list that is allowed needs a few thousand.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Looks up a variable that a file names.
pub(crate) type Variable<'a> = &'a dyn Fn(&str) -> Option<SecretString>;

/// Reads a file.
///
/// # Errors
/// The file cannot be read, or is larger than 1 MiB.
pub(crate) fn contents(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Returns true if the host of an address is this machine.
pub(crate) fn is_this_machine(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
