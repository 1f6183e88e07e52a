//! Tests settings read from lists: which are accepted, and which are refused with which message.

use super::{Error, ProviderKind, Settings, declared, dotenv, printed::env_example};
use crate::core::compaction::strategy::Options;
use reseed_protocol::compaction::SummaryMode;
use secrecy::ExposeSecret;
use std::{collections::BTreeSet, ffi::OsString, fs, os::unix::ffi::OsStringExt, path::Path};

/// Reads settings and returns them, or the errors.
fn read(variables: &[(&str, &str)]) -> Result<Settings, Vec<String>> {
    Settings::from_iter(variables.iter().copied()).map_err(|Error(faults)| faults)
}

/// Checks that these variables are refused with exactly these errors.
fn refused(variables: &[(&str, &str)], faults: &[&str]) {
    assert_eq!(read(variables).map(|_| ()).unwrap_err(), faults, "{variables:?}");
}

#[test]
fn nothing_set_is_the_offline_model_on_loopback() {
    let settings = read(&[]).unwrap();
    assert_eq!(settings.model.provider(), ProviderKind::Offline);
    assert_eq!(settings.model.model_name(), "offline");
    assert_eq!((settings.listen.host.to_string().as_str(), settings.listen.ws_port), ("127.0.0.1", 8080));
    assert_eq!(settings.context.context_strategy.name, "threshold");
    assert_eq!(settings.context.context_compaction_threshold, 0.8);
    assert_eq!(settings.store.database().to_string(), "./data/reseed.db");
    assert_eq!(settings.limits.message_bytes_max, 1024 * 1024);
    assert_eq!(settings.warnings, Vec::<String>::new());
}

#[test]
fn the_provider_follows_from_key_and_address_unless_the_model_is_the_built_in_one() {
    let (key, url) = (("OPENAI_API_KEY", "sk-1"), ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1/"));
    let (claude, proxy) = (("ANTHROPIC_API_KEY", "sk-2"), ("ANTHROPIC_BASE_URL", "http://127.0.0.1:9"));
    let (offline, chosen) = (("MODEL", "offline"), ("MODEL_PROVIDER", "anthropic"));
    for (variables, provider, model) in [
        (vec![key], ProviderKind::OpenAi, "gpt-4.1-mini"),
        (vec![url], ProviderKind::OpenAi, "gpt-4.1-mini"),
        (vec![url, ("MODEL", "llama")], ProviderKind::OpenAi, "llama"),
        (vec![key, url, offline], ProviderKind::Offline, "offline"),
        (vec![claude], ProviderKind::Anthropic, "claude-sonnet-5-5"),
        (vec![proxy, ("MODEL", "x")], ProviderKind::Anthropic, "x"),
        (vec![key, claude], ProviderKind::OpenAi, "gpt-4.1-mini"),
        (vec![key, claude, chosen], ProviderKind::Anthropic, "claude-sonnet-5-5"),
        (vec![claude, offline], ProviderKind::Offline, "offline"),
    ] {
        let settings = read(&variables).unwrap().model;
        assert_eq!((settings.provider(), settings.model_name()), (provider, model), "{variables:?}");
    }
    assert_eq!(read(&[url]).unwrap().model.openai_base_url.as_deref(), Some("http://127.0.0.1:9/v1"));
    let other = |variables: &[(&str, &str)]| read(variables).unwrap().model.other_provider();
    assert_eq!(other(&[key, claude]), Some(ProviderKind::Anthropic));
    assert_eq!(other(&[key, claude, chosen]), Some(ProviderKind::OpenAi));
    assert_eq!((other(&[key]), other(&[claude]), other(&[key, claude, offline])), (None, None, None));
    let faults = read(&[key, chosen]).unwrap_err();
    assert!(faults[0].contains("neither ANTHROPIC_API_KEY nor ANTHROPIC_BASE_URL is set"), "{faults:?}");
}

#[test]
fn what_is_empty_is_not_set_and_what_is_unknown_is_passed_over() {
    let settings =
        read(&[("WS_PORT", " "), ("OPENAI_API_KEY", ""), ("ws_port", "1"), ("LANG", "C"), ("HOST", " ::1 ")]);
    let settings = settings.unwrap();
    assert_eq!(settings.listen.ws_port, 8080);
    assert_eq!(settings.listen.host.to_string(), "::1");
    assert!(settings.model.openai_api_key.is_none());
}

#[test]
fn an_error_shows_an_address_without_its_password() {
    let hidden = "DATABASE_URL is set to a value that is not allowed (";
    for (variable, value, shown) in [
        ("DATABASE_URL", "postgres://reseed:hunter22@db/", hidden),
        ("DATABASE_URL", "postgres://db/?password=hunter22", hidden),
        ("DATABASE_URL", "sqlite://reseed:hunter22@db/", hidden),
        ("DATABASE_URL", "host=127.0.0.1 user=reseed password=hunter22 dbname=reseed", hidden),
        ("DATABASE_URL", "jdbc:postgresql://h/db?user=x&password=hunter22", hidden),
        ("DATABASE_URL", "reseed:hunter22@127.0.0.1/reseed", hidden),
        ("DATABASE_URL", "postgres:reseed:hunter22@127.0.0.1/reseed", hidden),
        ("DATABASE_URL", "postgres//reseed:hunter22@127.0.0.1/reseed", hidden),
        ("DATABASE_URL", "postgres:/reseed:hunter22@127.0.0.1/reseed", hidden),
        ("DATABASE_URL", "postgres://reseed:hun?ter22@127.0.0.1/reseed", hidden),
        ("DATABASE_URL", "hunter22", hidden),
        ("DATABASE_URL", "data/reseed.db", "DATABASE_URL is `data/reseed.db`; allowed: "),
        ("DATABASE_URL", "sqlite://data/", "DATABASE_URL is `sqlite://data/` (it does not name a file); allowed: "),
        ("ALLOWED_ORIGINS", "https://me:hunter22@chat.example", "https://…@chat.example"),
    ] {
        let error = read(&[(variable, value)]).unwrap_err().join("\n");
        assert!(error.contains(shown), "{value}: {error}");
        assert!(!error.contains("hun") && !error.contains("ter22"), "{value}: {error}");
    }
}

#[test]
fn names_and_aliases_are_taken() {
    for (name, strategy) in [
        ("threshold", "threshold"),
        ("manual", "manual"),
        ("dummy", "manual"),
        ("none", "manual"),
        ("Manual", "manual"),
    ] {
        assert_eq!(read(&[("CONTEXT_STRATEGY", name)]).unwrap().context.context_strategy.name, strategy, "{name}");
    }
}

#[test]
fn every_threshold_from_0_to_1_is_taken_also_below_the_target() {
    for threshold in ["0", "0.0", "0.05", "0.6", "0.8", "1", "1.0"] {
        let context = read(&[("CONTEXT_COMPACTION_THRESHOLD", threshold)]).unwrap().context;
        assert_eq!(context.context_compaction_threshold, threshold.parse::<f64>().unwrap());
        assert_eq!(context.context_strategy.options.reserve_tokens, None);
    }
}

#[test]
fn settings_follow_the_strategy() {
    let strategy = |text: &str| read(&[("CONTEXT_STRATEGY", text)]).map(|settings| settings.context.context_strategy);
    let chosen = strategy("Pipeline:steps=[tool_results,truncate],reserveTokens=0,summaryMode=rewrite").unwrap();
    assert_eq!((chosen.name, &*chosen.options.steps), ("pipeline", &["tool_results", "truncate"][..]));
    assert_eq!(chosen.options.reserve_tokens, Some(0), "0 is a number, and not unset");
    assert_eq!(chosen.options.summary_mode, SummaryMode::Rewrite);
    assert_eq!(chosen.options.target, Options::default().target);
    let allowed = "allowed: threshold, manual, dummy, none, sliding_window, tool_results, truncate, importance, \
                   pipeline; alone or with settings, as in threshold:userShare=0.5,background=1";
    for (text, why) in [
        ("threshold:userShare=1.5", "userShare must be 0 to 1, not 1.5"),
        ("threshold:target=0", "target must be above 0 and at most 1, not 0"),
        ("threshold:keepTurns=0", "keepTurns must be 1 to 100000000, not 0"),
        ("threshold:background=soon", "background: invalid type: string \"soon\", expected f64"),
        (
            "pipeline:steps=[manual]",
            "a pipeline may have each strategy once, but neither manual nor pipeline: `manual`",
        ),
        ("threshold:threshold=0.5", "CONTEXT_COMPACTION_THRESHOLD sets threshold"),
    ] {
        assert_eq!(strategy(text).unwrap_err(), [format!("CONTEXT_STRATEGY is `{text}` ({why}); {allowed}")]);
    }
    let unknown = strategy("threshold:userShar=1").unwrap_err().join("\n");
    assert!(unknown.contains("(userShar: unknown field `userShar`, expected one of `threshold`, "), "{unknown}");
}

#[test]
fn lists_are_split_and_tidied() {
    let auth = read(&[
        ("AUTH_TOKENS", "ann:a-token-of-16-chars, bob:with:colon-and-more,"),
        ("ALLOWED_ORIGINS", "https://Chat.example.org:443,http://127.0.0.1:8080"),
    ])
    .unwrap()
    .auth;
    let tokens: Vec<_> = auth.auth_tokens.iter().map(|one| (one.name.as_str(), one.token.expose_secret())).collect();
    assert_eq!(tokens, [("ann", "a-token-of-16-chars"), ("bob", "with:colon-and-more")]);
    let origins: Vec<_> = auth.allowed_origins.iter().map(super::Origin::as_str).collect();
    assert_eq!(origins, ["https://chat.example.org", "http://127.0.0.1:8080"]);
}

#[test]
fn prices_are_those_of_models_by_name() {
    let prices = |text: &str| read(&[("MODEL", "gpt-4.1-mini"), ("MODEL_PRICES", text)]);
    let settings = prices("openai/gpt-4o=2.5/1.25/10, gpt-4.1-mini = 0.4/0.1/1.6,").unwrap();
    let known = &settings.model.model_prices;
    assert!(known.knows("openai/gpt-4o") && known.knows("gpt-4.1-mini") && !known.knows("gpt-4o"));
    assert_eq!(settings.warnings, Vec::<String>::new());
    assert!(read(&[]).unwrap().model.model_prices.is_empty());
    let warnings = prices("gpt-4o=1/1/1").unwrap().warnings;
    let told = "MODEL_PRICES has no price for `gpt-4.1-mini`, set in MODEL: its cost is not reported";
    assert_eq!(warnings, [told]);
    let allowed = "allowed: a list of model=input/cached/output, optionally with /written or /written/hour, separated by \
                   commas; dollars per million tokens, each from 0 to 1000000 with at most 6 decimals";
    for (text, why) in [
        ("gpt-4o:1/1/1", "an item has no `=` between model and prices"),
        ("=1/1/1", "an item's model name is invalid"),
        ("a=1/1/1,a=2/2/2", "a model is listed twice"),
        ("a=1/1", "a model has three to five prices: input/cached/output, then /written, then /hour"),
    ] {
        let fault = format!("MODEL_PRICES is `{text}` ({why}); {allowed}");
        assert_eq!(prices(text).map(|_| ()).unwrap_err(), [fault]);
    }
}

#[test]
fn windows_are_those_of_models_by_name() {
    let windows = |text: &str| read(&[("MODEL", "main"), ("CONTEXT_WINDOW", "9000"), ("MODEL_WINDOWS", text)]);
    let settings = windows("openai/gpt-4o=128000, small = 2000,").unwrap();
    let expected = [("openai/gpt-4o".to_owned(), 128_000), ("small".to_owned(), 2_000)];
    assert_eq!(settings.context.model_windows, expected.into());
    assert_eq!(settings.warnings, Vec::<String>::new());
    let warnings = windows("main=8000").unwrap().warnings;
    assert_eq!(warnings, ["MODEL_WINDOWS sets `main` to 8000 tokens, so CONTEXT_WINDOW is not used for it"]);
    assert_eq!(windows("main=9000").unwrap().warnings, Vec::<String>::new());
    let allowed = "allowed: a list of model=tokens, separated by commas; each a whole number from 512 to 100000000";
    for (text, why) in [
        ("gpt-4o:1000", "an item has no `=` between model and tokens"),
        ("=1000", "an item's model name is invalid"),
        ("a=1000,a=2000", "a model is listed twice"),
        ("a=511", "an item's tokens are not such a number"),
        ("a=8k", "an item's tokens are not such a number"),
    ] {
        let fault = format!("MODEL_WINDOWS is `{text}` ({why}); {allowed}");
        assert_eq!(windows(text).map(|_| ()).unwrap_err(), [fault]);
    }
}

#[test]
fn a_value_that_is_not_allowed_is_told_with_what_is() {
    let whole = "a whole number from";
    for (variable, value, fault) in [
        ("WS_PORT", "99999", format!("WS_PORT is `99999`; allowed: {whole} 0 to 65535")),
        ("WS_PORT", "-1", format!("WS_PORT is `-1`; allowed: {whole} 0 to 65535")),
        ("CONTEXT_WINDOW", "511", format!("CONTEXT_WINDOW is `511`; allowed: {whole} 512 to 100000000")),
        ("TOOL_ROUNDS_MAX", "0", format!("TOOL_ROUNDS_MAX is `0`; allowed: {whole} 1 to 10000")),
        ("SHUTDOWN_GRACE_SECS", "1e9", format!("SHUTDOWN_GRACE_SECS is `1e9`; allowed: {whole} 0 to 3600")),
        (
            "CONTEXT_STRATEGY",
            "sliding\nwindow",
            "CONTEXT_STRATEGY is `sliding\\nwindow`; allowed: threshold, manual, dummy, none, sliding_window, \
                   tool_results, truncate, importance, pipeline; alone or with settings, as in \
                   threshold:userShare=0.5,background=1"
                .to_owned(),
        ),
        ("LOG_FORMAT", "xml", "LOG_FORMAT is `xml`; allowed: text, json".to_owned()),
        ("OPERATORS_READ_CONTENT", "yes", "OPERATORS_READ_CONTENT is `yes`; allowed: true, false".to_owned()),
    ] {
        refused(&[(variable, value)], &[&fault]);
    }
    for share in ["1.01", "-0.5", "NaN", "inf", "80%"] {
        let fault = format!("CONTEXT_COMPACTION_THRESHOLD is `{share}`; allowed: a number from 0 to 1");
        refused(&[("CONTEXT_COMPACTION_THRESHOLD", share)], &[&fault]);
        let fault = format!("USER_SHARE is `{share}`; allowed: a number above 0 and at most 1");
        refused(&[("USER_SHARE", share)], &[&fault]);
    }
}

#[test]
fn addresses_paths_filters_and_origins_are_checked() {
    for (variable, value) in [
        ("HOST", "example.org"),
        ("OPENAI_BASE_URL", "api.openai.com/v1"),
        ("OPENAI_BASE_URL", "https:///v1"),
        ("OPENAI_BASE_URL", "https://a/v1?key=1"),
        ("DATABASE_URL", "postgres://db"),
        ("DATABASE_URL", "sqlite://"),
        ("DATABASE_URL", "sqlite://:memory:"),
        ("DATABASE_URL", "memory:"),
        ("DATABASE_URL", "sqlite://data/"),
        ("DATABASE_URL", "sqlite://data/.."),
        ("LOG_LEVEL", "inof"),
        ("LOG_LEVEL", "info,reseed=loud"),
        ("ALLOWED_ORIGINS", "*"),
        ("ALLOWED_ORIGINS", "https://*.example.org"),
        ("ALLOWED_ORIGINS", "https://example.org/"),
        ("ALLOWED_ORIGINS", "ftp://example.org"),
        ("AUTH_TOKENS", "no-colon"),
        ("AUTH_TOKENS", "name:"),
        ("AUTH_TOKENS", ":token"),
        ("AUTH_TOKENS", "na me:token"),
        ("OPENAI_API_KEY", "sk-1 sk-2"),
        ("NODE_NAME", "two words"),
        ("NODE_TOKEN", "shorter-than-32-characters"),
        ("NODE_ADDRESS", "http://10.0.0.5:8080"),
        ("NODE_ADDRESS", "ws://"),
        ("NODE_ADDRESS", "ws://user@10.0.0.5:8080"),
        ("NODE_ADDRESS", "ws://10.0.0.5:8080/ws"),
    ] {
        let faults = read(&[(variable, value)]).map(|_| ()).unwrap_err();
        assert_eq!(faults.len(), 1, "{variable}={value}");
        assert!(
            faults[0].starts_with(&format!("{variable} is ")) && faults[0].contains("; allowed: "),
            "{}",
            faults[0]
        );
    }
    for (variable, value) in [
        ("HOST", "localhost"),
        ("DATABASE_URL", "sqlite:///var/lib/reseed.db"),
        ("LOG_LEVEL", "WARN"),
        ("LOG_LEVEL", "info, reseed::server=debug"),
        ("OPENAI_BASE_URL", "http://[::1]:8092/v1"),
    ] {
        read(&[(variable, value)]).unwrap();
    }
}

#[test]
fn servers_that_reach_each_other_need_a_secret() {
    let address = ("NODE_ADDRESS", "wss://reseed-1.internal:8443/");
    refused(
        &[address],
        &["NODE_ADDRESS is set, but NODE_TOKEN is not, so other servers could not prove who they are; \
                           set NODE_TOKEN to the same secret on all of them"],
    );
    let settings = read(&[address, ("NODE_TOKEN", "a-secret-of-the-servers-with-40-characters")]).unwrap();
    assert_eq!(settings.node.node_address.as_deref(), Some("wss://reseed-1.internal:8443"));
    assert!(!settings.node.name().is_empty());
    assert_eq!(read(&[("NODE_NAME", "reseed-1")]).unwrap().node.name(), "reseed-1");
}

#[test]
fn constants_are_lowered_for_tests_alone_and_told() {
    assert_eq!(read(&[]).unwrap().limits.guests_max, 512);
    assert!(!declared().iter().any(|setting| Settings::FIXED.contains(&&*setting.variable.to_ascii_lowercase())));
    let lowered = read(&[("RESEED_FIXED", "guests_max=9 guests_max=8 empty_sessions_per_user_max=2")]).unwrap();
    assert_eq!((lowered.limits.guests_max, lowered.limits.empty_sessions_per_user_max), (8, 2));
    assert!(lowered.warnings[0].contains("for tests only"), "{:?}", lowered.warnings);
    refused(
        &[("RESEED_FIXED", "guests_max=many ws_port=1")],
        &[
            "RESEED_FIXED has `guests_max=many`, which is not a constant and its value",
            "RESEED_FIXED has `ws_port=1`, which is not a constant and its value",
        ],
    );
    // As a separate variable it has no effect.
    assert_eq!(
        read(&[("OFFERED_BYTES_PER_USER_MAX", " ")]).unwrap().limits.offered_bytes_per_user_max,
        64 * 1024 * 1024
    );
}

#[test]
fn every_fault_is_told_at_once_in_one_message() {
    let error = Settings::from_iter([("WS_PORT", "x"), ("LOG_FORMAT", "y"), ("CONTEXT_WINDOW", "1")]).unwrap_err();
    let text = error.to_string();
    assert_eq!(text.lines().count(), 4, "{text}");
    for part in ["WS_PORT is `x`", "LOG_FORMAT is `y`", "CONTEXT_WINDOW is `1`"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn an_address_that_others_can_reach_needs_tokens_and_origins() {
    let tokens = ("AUTH_TOKENS", "ann:a-token-of-16-chars");
    let origins = ("ALLOWED_ORIGINS", "https://example.org");
    for (host, variables, faults) in [
        ("127.0.0.1", vec![], 0),
        ("127.8.8.8", vec![], 0),
        ("::1", vec![], 0),
        ("0.0.0.0", vec![], 2),
        ("::", vec![tokens], 1),
        ("10.0.0.1", vec![origins], 1),
        ("0.0.0.0", vec![tokens, origins], 0),
    ] {
        let variables: Vec<_> = variables.into_iter().chain([("HOST", host)]).collect();
        assert_eq!(read(&variables).map_or_else(|faults| faults.len(), |_| 0), faults, "{variables:?}");
    }
}

#[test]
fn each_token_stands_once() {
    refused(
        &[("AUTH_TOKENS", "ann:same-token-twice-1"), ("OPERATOR_TOKENS", "bob:same-token-twice-1")],
        &["AUTH_TOKENS, OPERATOR_TOKENS and SERVICE_TOKENS repeat a token for `bob`; allowed: each token once"],
    );
}

#[test]
fn secrets_are_in_no_message_and_in_no_debug_output() {
    let secret = "hunter2hunter2hunter2";
    let wrong = [
        ("OPENAI_API_KEY", format!("{secret} {secret}")),
        ("AUTH_TOKENS", format!("ann {secret}")),
        ("OPERATOR_TOKENS", format!("a b:{secret}")),
        ("OPENAI_BASE_URL", format!("https://user:{secret}@host/v1")),
    ];
    let text = Settings::from_iter(wrong).unwrap_err().to_string();
    assert_eq!(text.lines().count(), 5);
    assert!(!text.contains("hunter2"), "{text}");
    let right = [
        ("OPENAI_API_KEY", secret.to_owned()),
        ("AUTH_TOKENS", format!("ann:{secret}")),
        ("OPERATOR_TOKENS", "op:hunter2".to_owned()),
    ];
    let settings = Settings::from_iter(right).unwrap();
    assert_eq!(settings.warnings, ["the token of `op` has fewer than 16 characters and might be guessed"]);
    let debug = format!("{settings:?}");
    assert!(!debug.contains("hunter2") && debug.contains("ann"), "{debug}");
}

#[test]
fn what_is_no_setting_can_be_looked_up_and_is_not_shown() {
    let settings = read(&[("REDACT_SECRET", " hunter2 "), ("EMPTY", " "), ("WS_PORT", "1")]).unwrap();
    let value = |name: &str| settings.variables.get(name).map(|value| value.expose_secret().to_owned());
    assert_eq!((value("REDACT_SECRET"), value("EMPTY"), value("WS_PORT")), (Some(" hunter2 ".to_owned()), None, None));
    assert!(!format!("{settings:?}").contains("hunter2"));
    let settings = merged("REDACT_SECRET=from-file\n", &[]).unwrap();
    assert_eq!(settings.variables.get("REDACT_SECRET").unwrap().expose_secret(), "from-file");
}

#[test]
fn the_hooks_file_lies_under_the_working_directory() {
    let read = |file| read(&[("WORKING_DIRECTORY", "/srv/reseed"), ("HOOKS_FILE", file)]).unwrap().hooks_path();
    assert_eq!(read("./hooks.json").as_deref(), Some(Path::new("/srv/reseed/hooks.json")));
    assert_eq!(read("/etc/hooks.json").as_deref(), Some(Path::new("/etc/hooks.json")));
    assert_eq!(read(""), None);
}

#[test]
fn a_setting_that_is_nearly_spelt_right_is_warned_about() {
    let settings = read(&[("LOG_LEVL", "debug")]).unwrap();
    assert_eq!(settings.warnings, ["LOG_LEVL is not a setting and is ignored; did you mean LOG_LEVEL?"]);
}

#[test]
fn the_example_uncommented_is_the_defaults() {
    let uncommented = env_example().replace("\n#", "\n").replace("\n ", "\n# ");
    let variables = dotenv::parse(&uncommented).unwrap();
    let names: BTreeSet<String> = variables.keys().cloned().collect();
    assert_eq!(names, declared().into_iter().map(|declared| declared.variable).collect());
    let settings = Settings::from_iter(variables).unwrap();
    assert_eq!(format!("{settings:?}"), format!("{:?}", read(&[]).unwrap()));
}

/// Reads settings from a file with the contents `dotenv` and from this environment. Returns the errors as one text.
fn merged(dotenv: &str, environment: &[(&str, &[u8])]) -> Result<Settings, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(".env");
    fs::write(&file, dotenv).unwrap();
    let variables = environment.iter().map(|(name, value)| (OsString::from(*name), OsString::from_vec(value.to_vec())));
    Settings::merge(&file, variables).map_err(|error| error.to_string())
}

#[test]
fn the_environment_wins_over_the_file_and_can_unset_what_it_sets() {
    let file =
        "# a comment\nMODEL=one\nexport INSTRUCTIONS='say \"no\" # often'\nWS_PORT=1\nWS_PORT=2\nTOOL_ROUNDS_MAX=600\n";
    let settings = merged(file, &[("MODEL", b"two"), ("TOOL_ROUNDS_MAX", b""), ("LESSCHARSET", b"\xff")]).unwrap();
    assert_eq!(settings.model.model.as_deref(), Some("two"));
    assert_eq!(settings.model.instructions, "say \"no\" # often");
    assert_eq!((settings.listen.ws_port, settings.tools.tool_rounds_max), (2, 50));
}

#[test]
fn a_file_or_value_that_cannot_be_read_is_a_fault_that_repeats_nothing() {
    let fault = merged("MODEL=one\nOPENAI_API_KEY='sk' hunter2\n", &[]).unwrap_err();
    assert!(fault.contains(".env: line 2 has text behind") && !fault.contains("hunter2"), "{fault}");
    let fault = merged("", &[("AUTH_TOKENS", b"ann:hunter2\xff")]).unwrap_err();
    assert!(fault.contains("AUTH_TOKENS is not UTF-8") && !fault.contains("hunter2"), "{fault}");
    let folder = tempfile::tempdir().unwrap();
    assert!(Settings::merge(folder.path(), std::iter::empty()).is_err());
    assert!(Settings::merge(&folder.path().join("none"), std::iter::empty()).is_ok());
}
