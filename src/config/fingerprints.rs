//! Detects which settings have changed, without keeping their texts, some of which are secret.

use super::{Settings, declared, is_ours};
use std::{
    collections::{BTreeMap, hash_map::RandomState},
    fmt,
    hash::BuildHasher as _,
    sync::LazyLock,
};

/// The key is random for this process, so that a fingerprint reveals nothing about a secret.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Fingerprints of the texts of all settings that were given.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fingerprints(BTreeMap<String, u64>);

impl fmt::Debug for Fingerprints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprints(..)")
    }
}

impl Fingerprints {
    /// Takes the fingerprints of the settings among these variables.
    pub(super) fn of(variables: &BTreeMap<String, String>) -> Self {
        let set = variables.iter().filter(|(name, text)| is_ours(name) && !text.trim().is_empty());
        Self(set.map(|(name, text)| (name.clone(), HASHER.hash_one(text.trim()))).collect())
    }
}

impl Settings {
    /// Returns true if this variable has a different text in the other settings.
    #[must_use]
    pub fn differs_in(&self, variable: &str, other: &Self) -> bool {
        self.fingerprints.0.get(variable) != other.fingerprints.0.get(variable)
    }

    /// Returns the variables that differ from the other settings and take effect only after a restart.
    #[must_use]
    pub fn wants_restart(&self, other: &Self) -> Vec<String> {
        let fixed = declared().into_iter().filter(|setting| !setting.reloaded);
        fixed.map(|setting| setting.variable).filter(|variable| self.differs_in(variable, other)).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Settings;

    #[test]
    fn a_changed_setting_is_named_if_only_a_restart_takes_it_up() {
        let settings = |variables: &[(&str, &str)]| Settings::from_iter(variables.iter().copied()).unwrap();
        let before = settings(&[("MODEL", "a"), ("MODEL_PRICES", "a=1/1/1"), ("RUST_LOG", "info")]);
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
        let table: [Row<'_>; 4] = [
            (&[("MODEL", " a "), ("MODEL_PRICES", "a=1/1/1")], &[]),
            (&[("MODEL", "a"), ("MODEL_PRICES", "a=2/1/1"), ("LOG_LEVEL", "debug")], &[]),
            (&[("MODEL", "b"), ("WS_PORT", "9")], &["MODEL", "WS_PORT"]),
            (&[("MODEL_PRICES", "")], &["MODEL"]),
        ];
        for (variables, expected) in table {
            let mut found = before.wants_restart(&settings(variables));
            found.sort();
            assert_eq!(found, expected, "{variables:?}");
        }
        assert!(before.differs_in("MODEL_PRICES", &settings(&[])) && !before.differs_in("MODEL", &before.clone()));
    }
}
