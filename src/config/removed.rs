//! Settings that were removed. If one is still set, the server says so at startup, because nothing else would show that
//! it has no effect. `README.md` beside this file says what applies instead.

use std::collections::BTreeMap;

/// Removed settings that are ignored with a warning.
const IGNORED: &str = "\
    CONTEXT_BACKGROUND CONTEXT_CUT_RULE CONTEXT_ESTIMATOR CONTEXT_IMPORTANCE_SUMMARISE CONTEXT_KEEP_RECENT_TOKENS \
    CONTEXT_KEEP_TOOL_RESULTS CONTEXT_KEEP_TURNS CONTEXT_MIN_GAIN CONTEXT_PIPELINE CONTEXT_RESERVE_TOKENS \
    CONTEXT_TARGET CONTEXT_USER_SHARE DATABASE_READERS FILE_READ_TOOLS FILE_WRITE_TOOLS HELLO_TIMEOUT_SECS \
    HOOK_AWAY_SECS HOOK_TIMEOUT_SECS HOST_AWAY_SECS LIMITS OFFLINE_WINDOW OFFLINE_WORD_MILLIS QUEUE_ITEMS_MAX \
    SHELL_BINARY SHELL_FOLDER SHELL_OUTPUT_BYTES_MAX SHELL_SANDBOX SHELL_TOOL SUMMARY_FORM SUMMARY_KIND SUMMARY_MODE \
    SUMMARY_OUTPUT_TOKENS TOOL_PARALLEL_MAX TOOL_RESULT_MAX_TOKENS TOOL_TIMEOUT_SECS UNSAFE_STORE \
    UPSTREAM_CONNECT_TIMEOUT_SECS UPSTREAM_IDLE_TIMEOUT_SECS";

/// Removed settings with which the server does not start, because without them it would admit more than intended.
const REFUSED: &str = "\
    APPROVAL_EXPIRY_SECS AUTH_JWKS_REFRESH_SECS AUTH_JWT_ALGORITHMS AUTH_JWT_LEEWAY_SECS CONNECTIONS_PER_ADDRESS_MAX \
    CONNECTIONS_PER_USER_MAX DATABASE_CA_FILE DATABASE_SCHEMA EMPTY_SESSIONS_PER_USER_MAX FORKS_PER_USER_MAX \
    GRANT_SECS_MAX GUESTS_MAX GUESTS_PER_ADDRESS_MAX MODEL_REQUESTS_PER_USER_MAX \
    OFFERED_BYTES_PER_USER_MAX PARTIAL_BYTES_MAX SESSIONS_OPEN_PER_USER_MAX SHELL_CALLS_MAX SHELL_FILE_BYTES_MAX \
    SHELL_MEMORY_BYTES_MAX SHELL_PROCESSES_MAX SHELL_TIMEOUT_SECS SHELL_USER STORED_SESSIONS_PER_USER_MAX \
    TICKETS_PER_SERVICE_MAX TICKETS_PER_USER_MAX TICKET_SECS WRONG_CREDENTIALS_PER_MINUTE";

/// Takes the removed settings out of these variables. Returns warnings of one sentence each. Settings that must not be
/// ignored are added to the errors.
pub(super) fn settle(variables: &mut BTreeMap<String, String>, faults: &mut Vec<String>) -> Vec<String> {
    let mut found = |names: &'static str| -> Vec<&str> {
        let is_set = |name: &&str| variables.remove(*name).is_some_and(|value| !value.trim().is_empty());
        names.split_whitespace().filter(is_set).collect()
    };
    let (ignored, refused) = (found(IGNORED), found(REFUSED));
    let told = |name: &str, then: &str| {
        format!("{name} is no longer a setting{then}; src/config/README.md says what applies instead")
    };
    faults.extend(refused.into_iter().map(|name| told(name, ", remove it")));
    ignored.into_iter().map(|name| told(name, " and is ignored")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Error, Settings, declared};

    #[test]
    fn what_is_gone_is_no_setting_and_is_named() {
        let ours: Vec<String> = declared().into_iter().map(|setting| setting.variable).collect();
        let page = std::fs::read_to_string("src/config/README.md").unwrap();
        for (names, is_refused) in [(IGNORED, false), (REFUSED, true)] {
            for name in names.split_whitespace() {
                assert!(!ours.iter().any(|own| own == name), "{name} is a setting");
                assert!(
                    page.contains(&format!("\n| `{name}` | ")),
                    "the page does not say what applies instead of {name}"
                );
                let told = match Settings::from_iter([(name, "1")]) {
                    Ok(settings) => settings.warnings,
                    Err(Error(faults)) => faults,
                };
                assert_eq!(told.len(), 1, "{told:?}");
                assert!(told[0].starts_with(&format!("{name} is no longer a setting")), "{told:?}");
                assert_eq!(told[0].contains("ignored"), !is_refused, "{told:?}");
                assert_eq!(Settings::from_iter([(name, " ")]).unwrap().warnings, Vec::<String>::new());
            }
        }
    }
}
