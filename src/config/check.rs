//! Validates settings that depend on each other.

use super::{AuthSettings, ProviderChoice, Settings, listed::is_this_machine, secret_files, values::NamedToken};
use secrecy::ExposeSecret;

/// A token with fewer characters might be guessed over the network.
const TOKEN_CHARS_GOOD: usize = 16;

/// Budgets are sums of the account of requests, and the longest period with an end is a month.
const BUDGETS_RETENTION_DAYS_MIN: u32 = 32;

/// Adds the errors that involve more than one setting.
pub(super) fn together(settings: &Settings, faults: &mut Vec<String>) {
    let (listen, auth) = (&settings.listen, &settings.auth);
    if !listen.host.is_loopback() {
        let is_open = auth.auth_tokens.is_empty() && auth.service_tokens.is_empty() && !settings.jwt.is_used();
        for (variable, missing) in [("AUTH_TOKENS", is_open), ("ALLOWED_ORIGINS", auth.allowed_origins.is_empty())] {
            if missing {
                faults.push(format!(
                    "HOST is `{}`, which is reachable from other machines, and {variable} is not set; set {variable}, \
                     or set HOST to 127.0.0.1 or ::1",
                    listen.host
                ));
            }
        }
    }
    for (missing, set, other) in [
        ("TLS_KEY_FILE", &listen.tls_cert_file, &listen.tls_key_file),
        ("TLS_CERT_FILE", &listen.tls_key_file, &listen.tls_cert_file),
    ] {
        if set.is_some() && other.is_none() {
            faults.push(format!("TLS_CERT_FILE and TLS_KEY_FILE belong together, and {missing} is not set"));
        }
    }
    settings.jwt.check(faults);
    let chosen = match settings.model.model_provider {
        ProviderChoice::Auto => None,
        ProviderChoice::OpenAi => Some(("openai", "OPENAI", settings.model.has_openai())),
        ProviderChoice::Anthropic => Some(("anthropic", "ANTHROPIC", settings.model.has_anthropic())),
    };
    if let Some((choice, name, false)) = chosen {
        faults.push(format!(
            "MODEL_PROVIDER is `{choice}`, and neither {name}_API_KEY nor {name}_BASE_URL is set; set one of them"
        ));
    }
    let node = &settings.node;
    if node.node_address.is_some() && node.node_token.is_none() {
        faults.push(
            "NODE_ADDRESS is set, but NODE_TOKEN is not, so other servers could not prove who they are; set NODE_TOKEN \
             to the same secret on all of them"
                .to_owned(),
        );
    }
    let days = settings.store.usage_retention_days;
    if settings.limits.budgets_file.is_some() && (1..BUDGETS_RETENTION_DAYS_MIN).contains(&days) {
        faults.push(format!(
            "USAGE_RETENTION_DAYS is {days}, and BUDGETS_FILE is set: a budget per month would forget what was spent; \
             set USAGE_RETENTION_DAYS to {BUDGETS_RETENTION_DAYS_MIN} or more, or to 0 to keep the account indefinitely"
        ));
    }
    let tokens: Vec<&NamedToken> = named(auth).collect();
    for (index, one) in tokens.iter().enumerate() {
        if tokens[..index].iter().any(|other| other.token.expose_secret() == one.token.expose_secret()) {
            faults.push(format!(
                "AUTH_TOKENS, OPERATOR_TOKENS and SERVICE_TOKENS repeat a token for `{}`; allowed: each token once",
                one.name
            ));
        }
    }
}

/// Returns every token with its name.
fn named(auth: &AuthSettings) -> impl Iterator<Item = &NamedToken> {
    let scoped = auth.operator_tokens.iter().chain(&auth.service_tokens).map(|scoped| &scoped.named);
    auth.auth_tokens.iter().chain(scoped)
}

/// Returns a warning for each setting that is allowed but looks wrong.
pub(super) fn warnings(settings: &Settings) -> impl Iterator<Item = String> {
    let short =
        named(&settings.auth).filter(|named| named.token.expose_secret().len() < TOKEN_CHARS_GOOD).map(|named| {
            format!("the token of `{}` has fewer than {TOKEN_CHARS_GOOD} characters and might be guessed", named.name)
        });
    let prices = &settings.model.model_prices;
    let models =
        [("MODEL", Some(settings.model.model_name())), ("SUMMARY_MODEL", settings.summaries.summary_model.as_deref())];
    let used = models.into_iter().filter_map(|(variable, model)| Some((variable, model?)));
    let unpriced = used.filter(|(_, model)| !prices.is_empty() && !prices.knows(model));
    let context = &settings.context;
    let named = context.model_windows.get(settings.model.model_name()).filter(|_| context.context_window.is_some());
    let twice = named.filter(|tokens| context.context_window != Some(**tokens)).map(|tokens| {
        let model = settings.model.model_name();
        format!("MODEL_WINDOWS sets `{model}` to {tokens} tokens, so CONTEXT_WINDOW is not used for it")
    });
    let unpriced = unpriced.map(|(variable, model)| {
        format!("MODEL_PRICES has no price for `{model}`, set in {variable}: its cost is not reported")
    });
    let model = &settings.model;
    let plain = [
        ("OPENAI", &model.openai_api_key, &model.openai_base_url),
        ("ANTHROPIC", &model.anthropic_api_key, &model.anthropic_base_url),
    ];
    let plain = plain.into_iter().filter_map(|(name, key, address)| {
        let host = key.as_ref().and(host_over_plain_http(address.as_deref()?))?;
        Some(format!(
            "{name}_BASE_URL sends {name}_API_KEY to `{host}` over plain HTTP, where others can read it; use https://"
        ))
    });
    let unencrypted = is_unencrypted(settings).then(|| {
        format!(
            "HOST is `{}`: tokens and conversations can be read in transit, unless a proxy in front encrypts them \
             (TLS); name it in TRUSTED_PROXIES, or set TLS_CERT_FILE and TLS_KEY_FILE",
            settings.listen.host
        )
    });
    let hooks = settings.hooks_path().and_then(|file| secret_files::exposed(&file, "HOOKS_FILE"));
    let key = settings.tls_paths().and_then(|(_, key)| secret_files::exposed(&key, "TLS_KEY_FILE"));
    let node = settings
        .node
        .node_address
        .as_ref()
        .filter(|address| settings.listen.uses_tls() && address.starts_with("ws://"));
    let node = node
        .map(|address| format!("NODE_ADDRESS is `{address}`, but with TLS_CERT_FILE this server accepts only wss://"));
    short.chain(unpriced).chain(twice).chain(plain).chain(unencrypted).chain(hooks).chain(key).chain(node)
}

/// Returns true if other machines can reach the server, and no proxy is known that could encrypt their traffic.
fn is_unencrypted(settings: &Settings) -> bool {
    let (listen, auth) = (&settings.listen, &settings.auth);
    let has_tokens = named(auth).next().is_some() || settings.jwt.is_used();
    !listen.host.is_loopback() && has_tokens && listen.trusted_proxies.is_empty() && !listen.uses_tls()
}

/// Returns the host that receives what is sent to an address unencrypted, unless it is this machine.
fn host_over_plain_http(address: &str) -> Option<String> {
    let authority = address.strip_prefix("http://")?.split('/').next()?;
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None => authority.split(':').next()?,
    };
    (!is_this_machine(host)).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_kept_for_at_least_the_longest_period_of_a_budget() {
        for (days, file, is_refused) in [
            ("0", "budgets.json", false),
            ("1", "budgets.json", true),
            ("31", "budgets.json", true),
            ("32", "budgets.json", false),
            ("1", "", false),
        ] {
            let loaded = Settings::from_iter([("USAGE_RETENTION_DAYS", days), ("BUDGETS_FILE", file)]);
            assert_eq!(loaded.is_err(), is_refused, "{days} {file}");
        }
    }

    #[test]
    fn tokens_that_other_machines_send_unencrypted_are_warned_about() {
        for (host, proxies, file, warns) in [
            ("0.0.0.0", "", "", true),
            ("::", "", "", true),
            ("0.0.0.0", "10.0.0.7", "", false),
            ("0.0.0.0", "", "server.pem", false),
            ("127.0.0.1", "", "", false),
        ] {
            let variables = [
                ("HOST", host),
                ("TRUSTED_PROXIES", proxies),
                ("TLS_CERT_FILE", file),
                ("TLS_KEY_FILE", file),
                ("AUTH_TOKENS", "ann:token-of-ann-5c1d0e77b2"),
                ("ALLOWED_ORIGINS", "https://chat.example"),
            ];
            let loaded = Settings::from_iter(variables).unwrap();
            let warned = loaded.warnings.iter().any(|warning| warning.contains("(TLS)"));
            assert_eq!(warned, warns, "{host} behind `{proxies}` with `{file}`");
        }
    }

    #[test]
    fn a_certificate_and_its_key_are_set_together_and_nodes_use_them() {
        for (certificate, key, address, fault, warning) in [
            ("server.pem", "", "", Some("TLS_KEY_FILE is not set"), None),
            ("", "server.key", "", Some("TLS_CERT_FILE is not set"), None),
            ("server.pem", "server.key", "ws://10.0.0.5:8080", None, Some("accepts only wss://")),
            ("server.pem", "server.key", "wss://10.0.0.5:8080", None, None),
            ("", "", "ws://10.0.0.5:8080", None, None),
        ] {
            let loaded = Settings::from_iter([
                ("TLS_CERT_FILE", certificate),
                ("TLS_KEY_FILE", key),
                ("NODE_ADDRESS", address),
                ("NODE_TOKEN", "a-secret-of-the-servers-with-40-characters"),
            ]);
            match (loaded, fault) {
                (Err(error), Some(fault)) => assert!(error.to_string().contains(fault), "{error}"),
                (Ok(settings), None) => {
                    let found = settings.warnings.iter().find(|warning| warning.contains("NODE_ADDRESS"));
                    let has = |found: &String| warning.is_some_and(|warning| found.contains(warning));
                    assert!(found.map_or(warning.is_none(), has), "{:?}", settings.warnings);
                }
                (loaded, fault) => panic!("{certificate} {key}: {loaded:?}, not {fault:?}"),
            }
        }
    }

    #[test]
    fn a_key_sent_unencrypted_to_another_machine_is_warned_about() {
        let table = [
            ("http://models.example/v1", Some("models.example")),
            ("http://10.0.0.7:8000/v1", Some("10.0.0.7")),
            ("http://[fd00::7]:8000/v1", Some("fd00::7")),
            ("https://models.example/v1", None),
            ("http://localhost:8000/v1", None),
            ("http://127.0.0.1/v1", None),
            ("http://[::1]:8000/v1", None),
        ];
        for (url, host) in table {
            let of = |key: &str| {
                Settings::from_iter([("OPENAI_BASE_URL", url), ("OPENAI_API_KEY", key), ("MODEL", "m")]).unwrap()
            };
            let warned = of("key").warnings.iter().any(|warning| warning.contains("plain HTTP"));
            assert_eq!((warned, host_over_plain_http(url).as_deref()), (host.is_some(), host), "{url}");
            assert!(!of("").warnings.iter().any(|warning| warning.contains("plain HTTP")), "{url} without a key");
        }
    }
}
