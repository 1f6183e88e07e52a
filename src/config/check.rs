//! What settings must be together: rules over more than one of them.

use super::{ProviderChoice, Settings, values::NamedToken};
use secrecy::ExposeSecret;

/// Characters of a token below which guessing it over the network is no longer hopeless.
const TOKEN_CHARS_GOOD: usize = 16;

/// Adds the faults that no setting has by itself.
pub(super) fn together(settings: &Settings, faults: &mut Vec<String>) {
    let (listen, auth, model) = (&settings.listen, &settings.auth, &settings.model);
    if !listen.host.is_loopback() {
        for (variable, missing) in
            [("AUTH_TOKENS", auth.auth_tokens.is_empty()), ("ALLOWED_ORIGINS", auth.allowed_origins.is_empty())]
        {
            if missing {
                faults.push(format!(
                    "HOST is `{}`, which others can reach, and {variable} is not set; allowed: {variable} set, or HOST \
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
            "MODEL_PROVIDER is `openai`, and neither OPENAI_API_KEY nor OPENAI_BASE_URL is set; allowed: one of them \
             set, or MODEL_PROVIDER auto or offline"
                .to_owned(),
        );
    }
    let tokens: Vec<&NamedToken> = auth.auth_tokens.iter().chain(&auth.operator_tokens).collect();
    for (index, one) in tokens.iter().enumerate() {
        if tokens[..index].iter().any(|other| other.token.expose_secret() == one.token.expose_secret()) {
            faults.push(format!(
                "AUTH_TOKENS and OPERATOR_TOKENS give `{}` a token that stands there before; allowed: each token once",
                one.name
            ));
        }
    }
}

/// What is allowed and still looks wrong.
pub(super) fn warnings(settings: &Settings) -> impl Iterator<Item = String> {
    let tokens = settings.auth.auth_tokens.iter().chain(&settings.auth.operator_tokens);
    let short = tokens.filter(|named| named.token.expose_secret().len() < TOKEN_CHARS_GOOD).map(|named| {
        format!("the token of `{}` has fewer than {TOKEN_CHARS_GOOD} characters and could be guessed", named.name)
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
        format!("MODEL_WINDOWS gives `{model}` {tokens} tokens, so CONTEXT_WINDOW is not used for it")
    });
    let unpriced = unpriced.map(|(variable, model)| {
        format!("MODEL_PRICES does not name `{model}`, which {variable} chooses: what it costs is not told")
    });
    short.chain(unpriced).chain(twice)
}
