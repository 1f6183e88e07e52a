//! The names of tools that the model sees: `server__tool`, 1 to 64 of `A-Za-z0-9_-`.
//!
//! Invariants:
//! - Two tools never have the same name. A server's part contains no `__` and does not end with `_`, so the first `__`
//!   of a name ends it. The names of one server's tools are made distinct.
//! - A name depends only on the file and the server's list, never on the order in which servers come up.

use std::collections::BTreeSet;

/// Maximum characters of a server's part, which leaves room for a tool's name of 30 characters.
pub(super) const PREFIX_CHARS_MAX: usize = 32;

/// Maximum characters of a whole name. OpenAI and compatible servers allow no more.
const NAME_CHARS_MAX: usize = 64;

/// Separates a server's part from its tool's.
const BETWEEN: &str = "__";

/// Returns a server's part of its tools' names. Runs of other characters become one `_`.
///
/// # Errors
/// The name has no letter or digit, or the part is too long.
pub(super) fn prefix(server: &str) -> Result<String, String> {
    let mut prefix = String::new();
    for c in server.chars().map(|c| if allowed(c) { c } else { '_' }) {
        if c != '_' || !(prefix.is_empty() || prefix.ends_with('_')) {
            prefix.push(c);
        }
    }
    let prefix = prefix.trim_matches('_');
    if prefix.is_empty() {
        return Err("the name of a server needs a letter or a digit of A-Za-z0-9".to_owned());
    }
    if prefix.len() > PREFIX_CHARS_MAX {
        return Err(format!("its name has more than {PREFIX_CHARS_MAX} characters, which its tools' names begin with"));
    }
    Ok(prefix.to_owned())
}

/// Returns the names of a server's tools, in the order of the tools. Unchanged names have precedence. Another name gets
/// a suffix derived from the tool's own name if it is taken or too long.
pub(super) fn names(prefix: &str, tools: &[&str]) -> Vec<String> {
    let plain: Vec<String> =
        tools.iter().map(|tool| format!("{prefix}{BETWEEN}{}", tool.replace(forbidden, "_"))).collect();
    let is_own = |tool: &str, name: &str| name.len() <= NAME_CHARS_MAX && !tool.is_empty() && !tool.contains(forbidden);
    let mut taken: BTreeSet<String> =
        tools.iter().zip(&plain).filter(|(tool, name)| is_own(tool, name)).map(|(_, name)| name.clone()).collect();
    let mut names = Vec::with_capacity(tools.len());
    for (tool, name) in tools.iter().zip(plain) {
        if is_own(tool, &name) {
            names.push(name);
            continue;
        }
        let fits = name.len() <= NAME_CHARS_MAX && !tool.is_empty();
        let name = if fits && !taken.contains(&name) { name } else { suffixed(&name, tool, &taken) };
        taken.insert(name.clone());
        names.push(name);
    }
    names
}

/// Returns the name, followed by a checksum of the tool's own name.
fn suffixed(name: &str, tool: &str, taken: &BTreeSet<String>) -> String {
    let mut sum = crc32fast::hash(tool.as_bytes());
    loop {
        let suffix = format!("_{sum:08x}");
        // Forbidden characters have been replaced, so every byte is a character.
        let name = format!("{}{suffix}", &name[..name.len().min(NAME_CHARS_MAX - suffix.len())]);
        if !taken.contains(&name) {
            return name;
        }
        sum = sum.wrapping_add(1);
    }
}

fn allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn forbidden(c: char) -> bool {
    !allowed(c)
}

#[cfg(test)]
mod tests {
    use super::{names, prefix};

    #[test]
    fn a_server_begins_the_names_of_its_tools() {
        for (server, expected) in [
            ("everything", "everything"),
            ("brave-search", "brave-search"),
            ("My Server", "My_Server"),
            ("github.com/a/b", "github_com_a_b"),
            ("a__b", "a_b"),
            ("_a_", "a"),
            ("Füße", "F_e"),
        ] {
            assert_eq!(prefix(server).as_deref(), Ok(expected), "{server}");
        }
        for (server, expected) in
            [("", "letter"), ("__", "letter"), ("日本", "letter"), (&"a".repeat(33), "more than 32")]
        {
            let told = prefix(server).unwrap_err();
            assert!(told.contains(expected), "{server}: {told}");
        }
    }

    #[test]
    fn names_fit_and_differ() {
        let long = "a".repeat(70);
        let longer = format!("{long}b");
        let table: &[(&[&str], &[&str])] = &[
            (&["read", "write_file"], &["s__read", "s__write_file"]),
            // An unchanged name is kept, whatever its position.
            (&["a.b", "a_b"], &["s__a_b_b8fe9f1e", "s__a_b"]),
            (&["a.b", "a/b"], &["s__a_b", "s__a_b_4c9a7c10"]),
            (&["größe"], &["s__gr__e"]),
            (&["日本"], &["s____"]),
        ];
        for (tools, expected) in table {
            let made = names("s", tools);
            let same = made.iter().zip(*expected).all(|(made, expected)| {
                // A suffix is compared by length, because its derivation may change.
                made == expected
                    || (expected.len() > 10
                        && made.len() == expected.len()
                        && made.starts_with(&expected[..expected.len() - 8]))
            });
            assert!(same, "{tools:?}: {made:?}");
        }
        let made = names("s", &[&long, &longer, "", "é"]);
        let distinct: std::collections::BTreeSet<&String> = made.iter().collect();
        assert_eq!(distinct.len(), made.len(), "{made:?}");
        for name in &made {
            assert!(
                (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)),
                "{name}"
            );
        }
    }

    #[test]
    fn names_do_not_depend_on_what_other_servers_offer() {
        // If a server's part could end with `_`, both `a` with `_b` and `a_` with `b` would be `a___b`.
        assert_eq!(names(&prefix("a").unwrap(), &["_b"]), ["a___b"]);
        assert_eq!(names(&prefix("a_").unwrap(), &["b"]), ["a__b"]);
        assert_eq!(names(&prefix("a__b").unwrap(), &["c"]), ["a_b__c"]);
        assert_eq!(names(&prefix("a").unwrap(), &["b__c"]), ["a__b__c"]);
    }
}
