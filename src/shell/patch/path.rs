//! Paths in a patch: relative, and without steps upwards. What they lead to is checked when they are opened.

use std::fmt;

/// Maximum bytes of a name, as in Linux.
const NAME_BYTES_MAX: usize = 255;

/// Maximum number of names in a path: each missing directory is created and, if need be, removed again.
const NAMES_MAX: usize = 64;

/// A path of at least one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RelativePath(Vec<String>);

impl RelativePath {
    /// Checks a path that is relative to a directory, if one is given.
    ///
    /// # Errors
    /// The path is not allowed.
    pub(super) fn parse(directory: Option<&str>, text: &str) -> Result<Self, String> {
        let shown = text.chars().take(200).collect::<String>().escape_debug().to_string();
        let mut names = Vec::new();
        for part in directory.into_iter().chain([text]) {
            if part.starts_with('/') {
                return Err(format!("the path `{shown}` is absolute; use one relative to the session's folder"));
            }
            for name in part.split('/').filter(|name| !matches!(*name, "" | ".")) {
                match name {
                    ".." => return Err(format!("the path `{shown}` has `..`, which is not allowed")),
                    _ if name.contains('\0') => return Err(format!("the path `{shown}` has a zero byte")),
                    _ if name.len() > NAME_BYTES_MAX => {
                        return Err(format!("a name in the path `{shown}` is too long"));
                    }
                    _ => names.push(name.to_owned()),
                }
            }
        }
        match names.len() {
            _ if text.is_empty() || text.ends_with('/') => Err(format!("the path `{shown}` names no file")),
            0 => Err(format!("the path `{shown}` names no file")),
            count if count > NAMES_MAX => Err(format!("the path `{shown}` has more than {NAMES_MAX} names")),
            _ => Ok(Self(names)),
        }
    }

    /// Returns the directories, and the name of the file.
    pub(super) fn split(&self) -> (&[String], &str) {
        match self.0.split_last() {
            Some((file, directories)) => (directories, file),
            None => (&[], ""),
        }
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::RelativePath;

    #[test]
    fn only_paths_that_stay_below_are_accepted() {
        for (directory, text, expected) in [
            (None, "a", Some("a")),
            (None, "./a//b/./c.txt", Some("a/b/c.txt")),
            (None, "...", Some("...")),
            (None, "..a/b..", Some("..a/b..")),
            (Some("sub/"), "a", Some("sub/a")),
            (None, "", None),
            (None, ".", None),
            (None, "a/", None),
            (None, "/a", None),
            (None, "..", None),
            (None, "a/../b", None),
            (None, "a/..", None),
            (None, "a\0b", None),
            (Some("/etc"), "a", None),
            (Some(".."), "a", None),
        ] {
            let path = RelativePath::parse(directory, text).ok().map(|path| path.to_string());
            assert_eq!(path.as_deref(), expected, "{directory:?} {text:?}");
        }
        assert!(RelativePath::parse(None, &"a/".repeat(70)).is_err());
        assert!(RelativePath::parse(None, &format!("{}b", "a/".repeat(63))).is_ok());
        assert!(RelativePath::parse(None, &format!("{}b", "a/".repeat(64))).is_err());
        assert!(RelativePath::parse(None, &"a".repeat(256)).is_err());
    }
}
