//! Settings that were removed. If one is still set, the server reports at startup what to use instead. Nothing else
//! would show that the setting has no effect.

use std::collections::BTreeMap;

/// A removed setting.
struct Removed {
    name: &'static str,
    /// What applies now and what to use, as a sentence without its full stop.
    instead: &'static str,
    /// True if the server refuses to start with it, because ignoring it would admit more than intended.
    is_refused: bool,
}

const fn gone(name: &'static str, instead: &'static str) -> Removed {
    Removed { name, instead, is_refused: false }
}

const fn refused(name: &'static str, instead: &'static str) -> Removed {
    Removed { name, instead, is_refused: true }
}

/// All removed settings.
const REMOVED: &[Removed] = &[
    refused("APPROVAL_EXPIRY_SECS", "an approval must be answered within a day"),
    refused("AUTH_JWKS_REFRESH_SECS", "keys are fetched again every ten minutes"),
    refused("AUTH_JWT_ALGORITHMS", "a key takes the algorithms of its kind, or the `alg` that it names"),
    refused("AUTH_JWT_LEEWAY_SECS", "clocks may differ by 30 s"),
    refused(
        "CONNECTIONS_PER_ADDRESS_MAX",
        "nothing takes its place; limit the connections of an address in the proxy in front",
    ),
    refused("CONNECTIONS_PER_USER_MAX", "set USER_SHARE, the share of CONNECTIONS_MAX that one user may take"),
    gone("CONTEXT_BACKGROUND", "write it into CONTEXT_STRATEGY, as in `threshold:background=1`"),
    gone("CONTEXT_CUT_RULE", "compactions cut by the server's own rule; `reseed replay --policy pi` plays pi's"),
    gone("CONTEXT_ESTIMATOR", "tokens are counted by the model's tokenizer, or by script"),
    gone("CONTEXT_IMPORTANCE_SUMMARISE", "write it into CONTEXT_STRATEGY, as in `importance:summarise=false`"),
    gone("CONTEXT_KEEP_RECENT_TOKENS", "write it into CONTEXT_STRATEGY, as in `threshold:keepRecentTokens=8000`"),
    gone("CONTEXT_KEEP_TOOL_RESULTS", "write it into CONTEXT_STRATEGY, as in `tool_results:keepToolResults=4`"),
    gone("CONTEXT_KEEP_TURNS", "write it into CONTEXT_STRATEGY, as in `sliding_window:keepTurns=8`"),
    gone("CONTEXT_MIN_GAIN", "write it into CONTEXT_STRATEGY, as in `threshold:minGain=0.1`"),
    gone("CONTEXT_PIPELINE", "write it into CONTEXT_STRATEGY, as in `pipeline:steps=[tool_results,truncate]`"),
    gone("CONTEXT_RESERVE_TOKENS", "write it into CONTEXT_STRATEGY, as in `threshold:reserveTokens=4096`"),
    gone("CONTEXT_TARGET", "write it into CONTEXT_STRATEGY, as in `threshold:target=0.5`"),
    gone("CONTEXT_USER_SHARE", "write it into CONTEXT_STRATEGY, as in `threshold:userShare=0.5`"),
    refused("DATABASE_CA_FILE", "add `?sslrootcert=` and the path to DATABASE_URL"),
    gone("DATABASE_READERS", "eight connections read"),
    refused("DATABASE_SCHEMA", "add `?schema=` and the name to DATABASE_URL"),
    refused("EMPTY_SESSIONS_PER_USER_MAX", "a user may have 1,000 empty sessions"),
    gone(
        "FILE_READ_TOOLS",
        "summaries list the files of `read`; call the tool that reads files so, and its argument `path`",
    ),
    gone(
        "FILE_WRITE_TOOLS",
        "summaries list the files of `write` and `edit`; call the tools that write files so, and their argument `path`",
    ),
    refused("FORKS_PER_USER_MAX", "a user may have four forks in progress"),
    refused("GRANT_SECS_MAX", "a ticket is valid for a day at most; ask for less with `validForSecs`"),
    refused("GUESTS_MAX", "512 connections may be without `hello` at a time"),
    refused("GUESTS_PER_ADDRESS_MAX", "one address may have an eighth of all guests"),
    gone("HELLO_TIMEOUT_SECS", "`hello` must come within 10 s"),
    gone("HOOK_AWAY_SECS", "a required hook waits for 120 s for its client"),
    gone("HOOK_TIMEOUT_SECS", "a hook has 30 s; set its own `timeoutMs` in HOOKS_FILE"),
    gone("HOST_AWAY_SECS", "a connection on standby becomes the host after 30 s"),
    gone("LIMITS", "limits always refuse what exceeds them; raise the limit that is reached"),
    refused(
        "MODEL_PROVIDER",
        "MODEL=offline is the built-in model, and OPENAI_API_KEY or OPENAI_BASE_URL names a model server",
    ),
    refused("MODEL_REQUESTS_PER_USER_MAX", "set USER_SHARE, the share of MODEL_REQUESTS_MAX that one user may take"),
    refused("OFFERED_BYTES_PER_USER_MAX", "a user may offer 64 MiB of tools"),
    gone("OFFLINE_WINDOW", "set CONTEXT_WINDOW, which is also the window of the built-in model"),
    gone("OFFLINE_WORD_MILLIS", "the built-in model says a word every 25 ms"),
    refused("PARTIAL_BYTES_MAX", "128 MiB may be partly received, at least four times MESSAGE_BYTES_MAX"),
    gone("QUEUE_ITEMS_MAX", "32 inputs of a session may wait"),
    refused("SESSIONS_OPEN_PER_USER_MAX", "set USER_SHARE, the share of SESSIONS_OPEN_MAX that one user may take"),
    gone("SHELL_BINARY", "`reseed-shell` is a program of its own, and MCP_FILE lists it"),
    refused("SHELL_CALLS_MAX", "give `--calls-max` to `reseed-shell` among its `args` in MCP_FILE"),
    refused("SHELL_FILE_BYTES_MAX", "give `--file-bytes-max` to `reseed-shell` among its `args` in MCP_FILE"),
    gone("SHELL_FOLDER", "give `--folder` to `reseed-shell` among its `args` in MCP_FILE"),
    refused("SHELL_MEMORY_BYTES_MAX", "give `--memory-bytes-max` to `reseed-shell` among its `args` in MCP_FILE"),
    gone("SHELL_OUTPUT_BYTES_MAX", "32 KiB of a command's output are kept"),
    refused("SHELL_PROCESSES_MAX", "give `--processes-max` to `reseed-shell` among its `args` in MCP_FILE"),
    gone("SHELL_SANDBOX", "`reseed-shell` has a sandbox, unless its `args` in MCP_FILE have `--no-sandbox`"),
    refused("SHELL_TIMEOUT_SECS", "give `--timeout-secs` to `reseed-shell` among its `args` in MCP_FILE"),
    gone("SHELL_TOOL", "list the program `reseed-shell` in MCP_FILE; src/shell/README.md shows how"),
    refused("SHELL_USER", "give `--user` to `reseed-shell` among its `args` in MCP_FILE"),
    refused("STORED_SESSIONS_PER_USER_MAX", "a user may have 100,000 sessions; set STORED_BYTES_PER_USER_MAX for less"),
    gone("SUMMARY_FORM", "summaries have sections; SUMMARY_INSTRUCTIONS_FILE asks for another form"),
    gone("SUMMARY_KIND", "write it into CONTEXT_STRATEGY, as in `threshold:summaryKind=code`"),
    gone("SUMMARY_MODE", "write it into CONTEXT_STRATEGY, as in `threshold:summaryMode=rewrite`"),
    gone("SUMMARY_OUTPUT_TOKENS", "the limit follows from the requested length"),
    refused("TICKETS_PER_SERVICE_MAX", "the users of a backend may have 5,000 unused tickets"),
    refused("TICKETS_PER_USER_MAX", "a user may have 1,000 unused tickets"),
    refused(
        "TICKET_SECS",
        "a ticket can be redeemed for 60 s; a service can ask for another time with `redeemWithinSecs`",
    ),
    gone("TOOL_PARALLEL_MAX", "eight calls of a turn run at the same time; a tool can call itself `sequential`"),
    gone("TOOL_RESULT_MAX_TOKENS", "a result may have a quarter of the window"),
    gone("TOOL_TIMEOUT_SECS", "a call has 120 s; a tool can set its own limit, an MCP server `timeout` in MCP_FILE"),
    gone("UNSAFE_STORE", "a PostgreSQL server that may lose what it has acknowledged is refused"),
    gone("UPSTREAM_CONNECT_TIMEOUT_SECS", "connecting may take 10 s"),
    gone(
        "UPSTREAM_IDLE_TIMEOUT_SECS",
        "it is a fifth of UPSTREAM_FIRST_EVENT_TIMEOUT_SECS; raise that for a slow model server",
    ),
    refused("WRONG_CREDENTIALS_PER_MINUTE", "an address may send 20 wrong credentials per minute"),
];

/// Takes the removed settings out of these variables. Returns warnings of one sentence each. Settings that must not be
/// ignored are added to the errors.
pub(super) fn settle(variables: &mut BTreeMap<String, String>, faults: &mut Vec<String>) -> Vec<String> {
    let mut warnings = Vec::new();
    for Removed { name, instead, is_refused } in REMOVED {
        if variables.remove(*name).is_none_or(|value| value.trim().is_empty()) {
            continue;
        }
        match is_refused {
            true => faults.push(format!("{name} is no longer a setting, remove it: {instead}")),
            false => warnings.push(format!("{name} is no longer a setting and is ignored: {instead}")),
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Error, Settings, declared};

    #[test]
    fn what_is_gone_is_no_setting_and_is_told_with_what_to_use() {
        assert!(REMOVED.is_sorted_by_key(|removed| removed.name));
        let ours: Vec<String> = declared().into_iter().map(|setting| setting.variable).collect();
        for Removed { name, instead, is_refused } in REMOVED {
            assert!(!ours.iter().any(|own| own == name), "{name} is a setting");
            assert!(!instead.is_empty() && !instead.ends_with('.'), "{name}");
            // Words in capitals are names of existing settings.
            let words = instead.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let named = words.filter(|word| word.contains('_') && *word == word.to_ascii_uppercase());
            for word in named {
                assert!(ours.iter().any(|own| own == word), "{name} names {word}");
            }
            let told = match Settings::from_iter([(*name, "1")]) {
                Ok(settings) => settings.warnings,
                Err(Error(faults)) => faults,
            };
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].starts_with(&format!("{name} is no longer a setting")), "{told:?}");
            assert_eq!(told[0].contains("ignored"), !is_refused, "{told:?}");
            assert_eq!(Settings::from_iter([(*name, " ")]).unwrap().warnings, Vec::<String>::new());
        }
    }
}
