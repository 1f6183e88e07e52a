//! Warns about variables that look like a misspelt setting and would otherwise be silently ignored.

use super::declared;

/// Maximum number of wrong letters. With more, variables of other programs would match.
const TYPOS_MAX: usize = 2;

/// The minimum length of a name that is compared. Names of other programs are within two letters of `HOST` or `MODEL`.
const NAME_CHARS_MIN: usize = 7;

/// Returns a warning for each of these variables that is almost the name of a setting.
pub(super) fn warnings<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let ours: Vec<String> = declared().into_iter().map(|declared| declared.variable).collect();
    names
        .filter(|name| !ours.iter().any(|own| own == name))
        .filter_map(|name| {
            let (typos, meant) = ours.iter().map(|own| (typos_at_best(&name.to_ascii_uppercase(), own), own)).min()?;
            (typos <= TYPOS_MAX).then(|| format!("{name} is not a setting and is ignored; did you mean {meant}?"))
        })
        .collect()
}

/// Returns the number of wrong letters if `own` was meant. One of its inner words may be missing.
fn typos_at_best(name: &str, own: &str) -> usize {
    let words: Vec<&str> = own.split('_').collect();
    let inner = 1..words.len().saturating_sub(1);
    let shorter = inner.map(|forgotten| [&words[..forgotten], &words[forgotten + 1..]].concat().join("_"));
    let spellings = std::iter::once(own.to_owned()).chain(shorter).filter(|spelling| spelling.len() >= NAME_CHARS_MIN);
    spellings.map(|spelling| strsim::levenshtein(name, &spelling)).min().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::warnings;

    #[test]
    fn a_misspelt_setting_is_named_and_other_variables_are_left_alone() {
        for (name, meant) in [
            ("CONTEXT_TRESHOLD", Some("CONTEXT_COMPACTION_THRESHOLD")),
            ("OPENAI_KEY", Some("OPENAI_API_KEY")),
            ("CONTEXT_COMPACTION_TRESHOLD", Some("CONTEXT_COMPACTION_THRESHOLD")),
            ("CONTEXT_STRATGEY", Some("CONTEXT_STRATEGY")),
            ("AUTH_TOKEN", Some("AUTH_TOKENS")),
            ("auth_tokens", Some("AUTH_TOKENS")),
            ("OPENAI_APIKEY", Some("OPENAI_API_KEY")),
            ("LOG_LEVEL", None),
            ("HOME", None),
            ("HOSTNAME", None),
            ("PATH", None),
        ] {
            let expected: Vec<String> = meant
                .map(|meant| format!("{name} is not a setting and is ignored; did you mean {meant}?"))
                .into_iter()
                .collect();
            assert_eq!(warnings([name].into_iter()), expected, "{name}");
        }
    }
}
