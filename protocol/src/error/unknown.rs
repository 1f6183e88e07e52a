//! Codes of errors that this version does not know, by name.
//!
//! An error code is copied about like a number, and is part of every error. So that it stays small with a name that is
//! only known at run time, each such name is kept once for the life of the process; a bound holds against a server that
//! makes them up.

use std::sync::{Mutex, PoisonError};

/// Names that are kept: many times what a release adds, and as many as a byte can tell apart.
const NAMES_MAX: usize = 255;

/// Bytes of a name that is kept: the longest code has 23.
const NAME_BYTES_MAX: usize = 64;

/// Stands for the names beyond these bounds.
const UNNAMED: &str = "unknown";

static KEPT: Mutex<Kept> = Mutex::new(Kept(Vec::new()));

/// The name of a code that this version does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name(u8);

impl Name {
    /// Returns the name as it came. It becomes `unknown` if it is longer than 64 bytes or this process has met 255
    /// others.
    pub(super) fn of(name: &str) -> Self {
        Self(KEPT.lock().unwrap_or_else(PoisonError::into_inner).place(name))
    }

    /// Returns it as it appears on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).name(self.0)
    }
}

/// The names that were met, each in its place indefinitely.
struct Kept(Vec<&'static str>);

impl Kept {
    fn place(&mut self, name: &str) -> u8 {
        let place = self.0.iter().position(|known| *known == name).unwrap_or_else(|| {
            if name.len() > NAME_BYTES_MAX || self.0.len() >= NAMES_MAX {
                return NAMES_MAX;
            }
            self.0.push(name.to_owned().leak());
            self.0.len() - 1
        });
        u8::try_from(place).expect("there are at most 255 names")
    }

    fn name(&self, place: u8) -> &'static str {
        self.0.get(usize::from(place)).copied().unwrap_or(UNNAMED)
    }
}

#[cfg(test)]
mod tests {
    use super::{Kept, NAME_BYTES_MAX, NAMES_MAX, UNNAMED};
    use crate::{ErrorBody, ErrorCode};

    #[test]
    fn an_error_with_an_unknown_code_is_read_and_written_as_it_was() {
        let table = [
            (r#"{"code":"surprise","message":"m","retriable":true}"#, "surprise"),
            (r#"{"code":"overloaded","message":"m","retriable":true}"#, "overloaded"),
        ];
        for (text, code) in table {
            let error: ErrorBody = serde_json::from_str(text).unwrap();
            assert_eq!(error.code.as_str(), code);
            assert_eq!(serde_json::to_string(&error).unwrap(), text);
            assert_eq!(matches!(error.code, ErrorCode::Unknown(_)), code == "surprise");
        }
        let again: ErrorCode = serde_json::from_str(r#""surprise""#).unwrap();
        assert_eq!(again, ErrorCode::from("surprise"));
        assert!(!again.cause().is_empty() && !again.remedy().is_empty() && !again.is_retriable());
        assert!(serde_json::from_str::<ErrorCode>("7").is_err());
    }

    #[test]
    fn names_beyond_the_bounds_are_one() {
        let mut kept = Kept(Vec::new());
        let mut named = |name: &str| {
            let place = kept.place(name);
            kept.name(place)
        };
        assert_eq!(named(&"x".repeat(NAME_BYTES_MAX + 1)), UNNAMED);
        for at in 0..NAMES_MAX {
            let name = format!("made_up_{at}");
            assert_eq!(named(&name), name);
        }
        assert_eq!(named("one_too_many"), UNNAMED);
        assert_eq!(named("made_up_0"), "made_up_0");
        assert_eq!(size_of::<ErrorCode>(), 2);
    }
}
