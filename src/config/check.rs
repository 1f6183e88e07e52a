//! Validates settings that depend on each other.

use super::{ProviderChoice, Settings, values::NamedToken};
use secrecy::ExposeSecret;

/// A token with fewer characters might be guessed over the network.
const TOKEN_CHARS_GOOD: usize = 16;

/// Adds the errors that involve more than one setting.
pub(super) fn together(settings: &Settings, faults: &mut Vec<String>) {
    let (listen, auth, model) = (&settings.listen, &settings.auth, &settings.model);
    if !listen.host.is_loopback() {
        for (variable, missing) in
            [("AUTH_TOKENS", auth.auth_tokens.is_empty()), ("ALLOWED_ORIGINS", auth.allowed_origins.is_empty())]
        {
            if missing {
                faults.push(format!(
                    "HOST is `{}`, which is reachable from other machines, and {variable} is not set; set {variable}, or set HOST to \
                     127.0.0.1 or ::1",
                    listen.host
                ));
            }
        }
    }
    if model.model_provider == ProviderChoice::OpenAi
        && model.openai_api_key.is_none()
        && model.openai_base_url.is_none()
    {
        faults.push(
            "MODEL_PROVIDER is `openai`, but neither OPENAI_API_KEY nor OPENAI_BASE_URL is set; set one of them, or set \
             MODEL_PROVIDER to auto or offline"
                .to_owned(),
        );
    }
    let tokens: Vec<&NamedToken> = auth.auth_tokens.iter().chain(&auth.operator_tokens).collect();
    for (index, one) in tokens.iter().enumerate() {
        if tokens[..index].iter().any(|other| other.token.expose_secret() == one.token.expose_secret()) {
            faults.push(format!(
                "AUTH_TOKENS and OPERATOR_TOKENS repeat a token for `{}`; allowed: each token once",
                one.name
            ));
        }
    }
}

/// Returns what is allowed but looks wrong.
pub(super) fn warnings(settings: &Settings) -> impl Iterator<Item = String> {
    let tokens = settings.auth.auth_tokens.iter().chain(&settings.auth.operator_tokens);
    let short = tokens.filter(|named| named.token.expose_secret().len() < TOKEN_CHARS_GOOD).map(|named| {
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
    short.chain(unpriced).chain(twice)
}
