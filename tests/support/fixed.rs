//! Constants of the server that tests lower: they are given like settings, by their names in upper case.

use reseed::config::Settings;

/// Returns the variables for these settings. Of two of a name, the later one counts.
pub(crate) fn variables(settings: &[(&str, &str)]) -> Vec<(String, String)> {
    let is_fixed = |name: &str| Settings::FIXED.contains(&&*name.to_ascii_lowercase());
    let (fixed, set): (Vec<_>, Vec<_>) = settings.iter().partition(|(name, _)| is_fixed(name));
    let mut variables: Vec<_> = set.into_iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    if !fixed.is_empty() {
        let items: Vec<_> =
            fixed.iter().map(|(name, value)| format!("{}={value}", name.to_ascii_lowercase())).collect();
        variables.push(("RESEED_FIXED".to_owned(), items.join(" ")));
    }
    variables
}
