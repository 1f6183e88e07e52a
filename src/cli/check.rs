//! `reseed check`: reads the settings, sends the model one short request, and prints what it found.

mod servers;

use super::{say, serve};
use crate::{
    config::Settings,
    core::{
        context::envelope,
        model::{Delta, ModelRequest, Purpose},
    },
    provider::DeltaSink,
    server::{Identity, auth::Jwt},
    service, store,
};
use anyhow::Context as _;
use reseed_protocol::{
    Message,
    context::{ContextEnvelope, ContextMessage, EnvelopeMessages, EnvelopeMeta, RequestOptions},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// A short prompt that any model can answer.
const QUESTION: &str = "Reply with the single word: ready";

/// Maximum tokens of the answer. Models that reason first need some.
const ANSWER_TOKENS_MAX: u64 = 512;

/// Measures the time to the first piece of the answer.
struct FirstPiece {
    began: Instant,
    after: Option<Duration>,
}

impl DeltaSink for FirstPiece {
    fn delta(&mut self, _: Delta<'_>) {
        self.after.get_or_insert_with(|| self.began.elapsed());
    }
}

pub(super) async fn run(settings: &Settings) -> anyhow::Result<()> {
    for warning in &settings.warnings {
        say(format!("warning     {warning}"));
    }
    let provider = service::provider(settings)?;
    say(format!("provider    {} ({})", provider.name(), settings.model.address_of(settings.model.provider())));
    if let Some(other) = settings.model.other_provider() {
        say(format!("beside it   {} ({})", other.prefix().trim_end_matches('/'), settings.model.address_of(other)));
    }
    let listed = service::model::list(&*provider).await;
    let settings = &service::model::chosen(settings, &listed)?;
    let model = settings.model.model_name().to_owned();
    say(format!("model       {model}"));
    match &listed {
        Ok(models) if models.is_empty() => say("models      none listed"),
        Ok(models) => {
            let known = models.iter().any(|listed| listed.id == model);
            let note = if known { "includes the model" } else { "does NOT include the model" };
            say(format!("models      {} listed; {note}", models.len()));
        }
        Err(fault) => say(format!("models      cannot be listed: {}", fault.message)),
    }
    let windows = service::windows(settings, &listed);
    let deployment = service::deployment(settings, windows)?;
    let assumed = match deployment.windows.window(&deployment.model) {
        Some(_) => "",
        None => "; warning: nothing names its window, so this is assumed; set CONTEXT_WINDOW",
    };
    say(format!("window      {} tokens{assumed}", deployment.windows.tokens(&deployment.model)));
    if let Some(model) = &settings.summaries.summary_model {
        let windows = &deployment.windows;
        let assumed = windows.warning(model).map_or_else(String::new, |warning| format!("; warning: {warning}"));
        let tokens = windows.window(model).map_or("not known".to_owned(), |window| format!("{} tokens", window.tokens));
        say(format!("summaries   by {model}, window {tokens}{assumed}"));
    }
    say(format!("strategy    {}", deployment.strategy));
    say(format!("compacts    {}", serve::compacts_line(&deployment)));
    if let Some(limits) = serve::limits_line(settings) {
        say(format!("limits      {limits}"));
    }
    let webhooks = service::webhooks(settings)?;
    if settings.hooks.hooks_file.is_some() {
        // Calling a webhook would make it act.
        say(format!("webhooks    {}, not called", webhooks.len()));
    }
    service::budgets(settings)?;
    servers::check(settings, deployment.counter(&deployment.model)).await?;
    if let Some(jwt) = Jwt::open(settings, None).await? {
        say(format!("users       {jwt}"));
    }
    let database = settings.store.database();
    let described = store::describe(&database).await.with_context(|| format!("open the database {database}"))?;
    for (about, line) in described {
        say(format!("{about:<12}{line}"));
    }
    let listen = &settings.listen;
    let operators = listen.operator_port.map_or_else(String::new, |port| format!(", for operators on port {port}"));
    say(format!("listens on  {}:{}{operators}", listen.host, listen.ws_port));
    if let Some(identity) = Identity::read(settings)? {
        say(format!("TLS         {}", identity.validity()));
    }
    let request = ModelRequest {
        model,
        envelope: ContextEnvelope {
            system: envelope::system_prompt(&settings.model.instructions),
            tools: Vec::new(),
            messages: EnvelopeMessages {
                cached: vec![ContextMessage { entry_id: None, message: Arc::new(Message::user(QUESTION)) }],
                uncached: Vec::new(),
            },
            options: RequestOptions { max_output_tokens: Some(ANSWER_TOKENS_MAX), ..RequestOptions::default() },
            meta: EnvelopeMeta::default(),
        },
        purpose: Purpose::Turn,
        compared_with: None,
        compacts: None,
    };
    let began = Instant::now();
    let mut first = FirstPiece { began, after: None };
    let answer = provider.answer(&request, &mut first).await.context("send the request")?;
    let total = began.elapsed();
    let first = first.after.unwrap_or(total);
    say(format!("answer      first piece after {} ms, complete after {} ms", first.as_millis(), total.as_millis()));
    match answer.usage {
        Some(usage) => say(format!(
            "usage       reported: {} input tokens, {} output tokens",
            usage.input_tokens, usage.output_tokens
        )),
        None => say("usage       not reported: token counts will be estimates"),
    }
    Ok(())
}
