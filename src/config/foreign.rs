//! Variables that hosting platforms, shells and build tools set under names that could be ours.
//!
//! - Platforms set `PORT` to tell a program where to listen. It is used if `WS_PORT` is unset.
//! - conda sets `HOST` to a target triplet (`x86_64-conda-linux-gnu`), and shells set it to the machine's name. Nobody
//!   chose either as an address for this server, so it is ignored with a warning. A value that may be a mistyped
//!   address is kept, and is refused like any other invalid value.

use std::collections::BTreeMap;

/// Resolves these variables. Sets `WS_PORT` to `PORT`, and removes a `HOST` that nobody chose for this server. Returns
/// warnings of one sentence each.
pub(super) fn settle(variables: &mut BTreeMap<String, String>, faults: &mut Vec<String>) -> Vec<String> {
    let set = |variables: &BTreeMap<String, String>, name: &str| {
        variables.get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    if let (None, Some(port)) = (set(variables, "WS_PORT"), set(variables, "PORT")) {
        match port.parse::<u16>() {
            Ok(_) => drop(variables.insert("WS_PORT".to_owned(), port)),
            Err(_) => faults.push("PORT is no port from 0 to 65535; it counts because WS_PORT is unset".to_owned()),
        }
    }
    let Some(host) = set(variables, "HOST").filter(|host| is_of_a_machine(host)) else {
        return Vec::new();
    };
    variables.remove("HOST");
    vec![format!(
        "HOST is `{host}`, which names a machine or a build target and no address; it is ignored. To listen elsewhere \
         than on 127.0.0.1, set HOST to an IP address"
    )]
}

/// Returns true for a target triplet or the bare name of a machine: it begins with a letter, is no loopback name, and
/// has no dot, or a hyphen before the first one, as in `arm64-apple-darwin20.0.0`. Another name with dots may be an
/// address that people use, so it counts only if it is this machine's own name.
fn is_of_a_machine(host: &str) -> bool {
    let is_name = host.starts_with(|c: char| c.is_ascii_alphabetic())
        && host.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let first = host.split('.').next().unwrap_or_default();
    let is_known = first.contains('-') || !host.contains('.') && !host.eq_ignore_ascii_case("localhost");
    (is_name && is_known) || host == this_machine()
}

/// Returns the name of this machine in the form that shells use.
#[cfg(unix)]
fn this_machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn this_machine() -> String {
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Error, Settings};

    fn address(variables: &[(&str, &str)]) -> Result<(String, usize), Vec<String>> {
        let settings = Settings::from_iter(variables.iter().copied()).map_err(|Error(faults)| faults)?;
        Ok((settings.listen.local_address().to_string(), settings.warnings.len()))
    }

    #[test]
    fn a_host_that_a_build_environment_set_is_ignored_and_a_mistyped_address_is_not() {
        for host in [
            "x86_64-conda-linux-gnu",
            "x86_64-conda_cos6-linux-gnu",
            "aarch64-conda-linux-gnu",
            "arm64-apple-darwin20.0.0",
            "x86_64-apple-darwin13.4.0",
            "arm-none-eabi",
            "i686-w64-mingw32",
            "thinkpad",
            "DESKTOP-4K2J9QX",
            "build_01",
            &this_machine(),
        ] {
            assert_eq!(address(&[("HOST", host)]), Ok(("127.0.0.1:8080".to_owned(), 1)), "{host}");
        }
        for host in [
            "127.0.0.256",
            "127.0.0",
            "127.0.0.1:8080",
            "O.0.0.0",
            "l27.0.0.1",
            "::g",
            "[::1]",
            "chat.example.org",
            "http://127.0.0.1",
            "localhost:8080",
            "*",
            "0",
        ] {
            let faults = address(&[("HOST", host)]).unwrap_err();
            assert!(faults.len() == 1 && faults[0].starts_with("HOST is "), "{host}: {faults:?}");
        }
        for (host, expected) in [("localhost", "127.0.0.1:8080"), ("::1", "[::1]:8080"), (" ", "127.0.0.1:8080")] {
            assert_eq!(address(&[("HOST", host)]), Ok((expected.to_owned(), 0)), "{host}");
        }
    }

    #[test]
    fn port_counts_where_ws_port_is_unset() {
        let table: [(&[(&str, &str)], &str); 4] = [
            (&[("PORT", "9001")], "127.0.0.1:9001"),
            (&[("PORT", "9001"), ("WS_PORT", "9002")], "127.0.0.1:9002"),
            (&[("PORT", "9001"), ("WS_PORT", " ")], "127.0.0.1:9001"),
            (&[("PORT", " ")], "127.0.0.1:8080"),
        ];
        for (variables, expected) in table {
            assert_eq!(address(variables), Ok((expected.to_owned(), 0)), "{variables:?}");
        }
        let faults = address(&[("PORT", "http")]).unwrap_err();
        assert!(faults.len() == 1 && faults[0].starts_with("PORT is "), "{faults:?}");
    }
}
