//! Values that tests set like variables: constants of the server, by their names in upper case, and settings of
//! strategies, such as `strategy.userShare`. So helpers can add one to those of their callers.

use reseed::config::Settings;

/// The prefix of a setting of strategies, which becomes a part of CONTEXT_STRATEGY.
const OF_STRATEGIES: &str = "strategy.";

/// Returns the variables for these settings. Of two settings with the same name, the later one counts.
pub(crate) fn variables(settings: &[(&str, &str)]) -> Vec<(String, String)> {
    let is_fixed = |name: &str| Settings::FIXED.contains(&&*name.to_ascii_lowercase());
    let (fixed, set): (Vec<_>, Vec<_>) = settings.iter().partition(|(name, _)| is_fixed(name));
    let (of_strategies, set): (Vec<_>, Vec<_>) = set.into_iter().partition(|(name, _)| name.starts_with(OF_STRATEGIES));
    let mut variables: Vec<_> = set.into_iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    if !of_strategies.is_empty() {
        let strategy = settings.iter().rfind(|(name, _)| *name == "CONTEXT_STRATEGY");
        let items: Vec<_> =
            of_strategies.iter().map(|(name, value)| format!("{}={value}", &name[OF_STRATEGIES.len()..])).collect();
        let strategy = format!("{}:{}", strategy.map_or("threshold", |(_, name)| *name), items.join(","));
        variables.push(("CONTEXT_STRATEGY".to_owned(), strategy));
    }
    if !fixed.is_empty() {
        let items: Vec<_> =
            fixed.iter().map(|(name, value)| format!("{}={value}", name.to_ascii_lowercase())).collect();
        variables.push(("RESEED_FIXED".to_owned(), items.join(" ")));
    }
    variables
}
