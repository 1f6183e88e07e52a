//! How a request is adapted to the server and the model that it is for, whatever the API.
//!
//! `plan` has the messages in a form that every server accepts, with the calls' `ids`. `needs` remembers what a model's
//! server refused, and searches for a `form` that it accepts. An API adds how a planned request is written and sent
//! ([`Attempt`]); [`Server::answer`] does the rest.

mod form;
mod ids;
mod needs;
mod plan;

pub(super) use form::Form;
#[cfg(test)]
pub(super) use needs::{KNOWN, Known};
pub(super) use plan::{NO_QUESTION, Plan, ResultImages};

use super::{
    DeltaSink,
    fault::fault,
    retry::{Attempts, Failed, RetryPolicy},
    upstream::Address,
};
use crate::{
    config::DiagnosticsChoice,
    core::{
        fingerprint::fingerprint,
        model::{Answer, ModelFault, ModelRequest},
        need::{Need, Needs},
    },
};
use ids::forget_known;
use needs::{Adaptations, Search};
use reseed_protocol::{ErrorCode, Part};
use std::{cell::OnceCell, future::Future};

/// An API: how a request is written and sent.
pub(super) trait Attempt: Sync {
    /// Returns the bytes of a request, to determine whether a form changes it.
    fn body(&self, request: &ModelRequest, form: &Form) -> Vec<u8>;

    /// Sends a request once. Also returns the needs that changed what was sent.
    fn attempt(
        &self,
        request: &ModelRequest,
        form: &Form,
        sink: &mut dyn DeltaSink,
    ) -> impl Future<Output = Result<(Answer, Needs), Failed>> + Send;
}

/// A model server, with what is known and learnt about it.
#[derive(Debug)]
pub(super) struct Server {
    adaptations: Adaptations,
    retry: RetryPolicy,
    /// Identifies the server in what it gets back, without revealing its address.
    name: String,
    /// The beginning of the names of its models, which the server itself does not know.
    prefix: &'static str,
    /// The models that are asked to compare requests.
    diagnoses: Models,
}

/// Returns true for some models.
type Models = fn(&str) -> bool;

impl Server {
    /// Creates the server at this address. The names of its models begin with `prefix`, which is not sent.
    pub(super) fn new(address: &Address, retry: RetryPolicy, prefix: &'static str) -> Self {
        let name = format!("{:016x}", fingerprint(address.base_url().as_bytes()));
        Self { adaptations: Adaptations::at(address.host()), retry, name, prefix, diagnoses: |_| false }
    }

    /// Asks models to compare requests, as the setting says. `auto` are those that are known to do it.
    pub(super) fn diagnosing(self, choice: DiagnosticsChoice, auto: Models) -> Self {
        let diagnoses: Models = match choice {
            DiagnosticsChoice::Auto => auto,
            DiagnosticsChoice::On => |_| true,
            DiagnosticsChoice::Off => |_| false,
        };
        Self { diagnoses, ..self }
    }

    /// Plans a request in this form. `native` is the API whose own form of a summary can be sent.
    pub(super) fn plan<'a>(
        &'a self,
        request: &'a ModelRequest,
        form: &Form,
        images: ResultImages,
        native: Option<&str>,
    ) -> Plan<'a> {
        let mut plan = Plan::new(request, form, &self.name, (images, native));
        plan.model = request.model.strip_prefix(self.prefix).unwrap_or(&request.model);
        plan.is_diagnosed = (self.diagnoses)(plan.model);
        plan
    }

    /// Returns true if a model is asked to compare requests.
    pub(super) fn diagnoses(&self, model: &str) -> bool {
        (self.diagnoses)(model.strip_prefix(self.prefix).unwrap_or(model))
    }

    /// Sends a request until it is answered or fails permanently, and remembers what that showed. Nobody waits for a
    /// request that fills the cache, and its refusal says nothing about others.
    pub(super) async fn answer(
        &self,
        api: &impl Attempt,
        request: &ModelRequest,
        sink: &mut dyn DeltaSink,
    ) -> Result<Answer, ModelFault> {
        let mut search = self.adaptations.begin(request);
        if request.only_fills_cache() {
            let attempt = api.attempt(request, &search.form, sink).await;
            return attempt.map(|(answer, _)| answer).map_err(|failed| failed.fault);
        }
        if request.compacts.is_some() {
            return self.compacted(api, request, &search, sink).await;
        }
        let answer = self.answered(api, request, &mut search, sink).await;
        self.adaptations.keep(&request.model, &search);
        answer
    }

    async fn answered(
        &self,
        api: &impl Attempt,
        request: &ModelRequest,
        search: &mut Search,
        sink: &mut dyn DeltaSink,
    ) -> Result<Answer, ModelFault> {
        let mut attempts = Attempts::new(&self.retry);
        loop {
            match api.attempt(request, &search.form, &mut *sink).await {
                Ok((answer, shown)) => {
                    search.settle(request);
                    return Ok(self.completed(answer, request, search, shown));
                }
                Err(mut failed) => {
                    let (present, sent) = (search.form.clone(), OnceCell::new());
                    let changes =
                        |form: &Form| api.body(request, form) != *sent.get_or_init(|| api.body(request, &present));
                    if !search.goes_on(&mut failed, request, changes) {
                        attempts.after(failed, &mut *sink).await?;
                    }
                }
            }
        }
    }

    /// Lets the server compact a conversation in its own form. A refusal is not worked around, because the usual
    /// summary can be made instead. If the model's server has no compaction, it is not asked again.
    async fn compacted(
        &self,
        api: &impl Attempt,
        request: &ModelRequest,
        search: &Search,
        sink: &mut dyn DeltaSink,
    ) -> Result<Answer, ModelFault> {
        if search.form.needs.has(Need::NoCompaction) {
            return Err(no_compaction());
        }
        let mut attempts = Attempts::new(&self.retry);
        loop {
            match api.attempt(request, &search.form, &mut *sink).await {
                Ok((answer, shown)) => return Ok(self.completed(answer, request, search, shown)),
                Err(failed) => {
                    if refuses_compaction(&failed.fault, request) {
                        self.adaptations.learn(&request.model, Need::NoCompaction);
                    }
                    // All of it would be compacted, and billed, once more.
                    if failed.fault.code == ErrorCode::UpstreamTruncated {
                        return Err(failed.fault);
                    }
                    attempts.after(failed, &mut *sink).await?;
                }
            }
        }
    }

    /// Adds to an answer its origin and the adaptations of its request. `shown` has the needs that changed the request.
    fn completed(&self, mut answer: Answer, request: &ModelRequest, search: &Search, shown: Needs) -> Answer {
        let is_sealed = |part: &Part| matches!(part, Part::Reasoning { payload: Some(_), .. });
        if answer.payload.is_none() && answer.parts.iter().any(is_sealed) {
            answer.payload = Some(Box::default());
        }
        if let Some(payload) = &mut answer.payload {
            payload.server.clone_from(&self.name);
            if let Some(native) = &mut payload.compaction {
                native.server.clone_from(&self.name);
            }
            forget_known(payload, request.messages().map(|message| &*message.message));
        }
        if let Some(response) = &mut answer.response {
            response.server.clone_from(&self.name);
        }
        answer.adapted = search.adapted(shown);
        answer.learnt = search.found();
        answer
    }
}

/// Returns the fault of a request for the provider's own compaction where it has none.
pub(super) fn no_compaction() -> ModelFault {
    fault(ErrorCode::UpstreamNotFound, "it has no compaction of its own")
}

/// Returns true if a refusal means that the model's server has no compaction of its own, and not that it cannot compact
/// this conversation. A refusal that names nothing may be about the conversation, and so may one of an earlier item.
fn refuses_compaction(fault: &ModelFault, request: &ModelRequest) -> bool {
    let refusal = &fault.refusal;
    let has_item = request.envelope.messages.cached.first().is_some_and(|first| first.message.native().is_some());
    let is_about_it = refusal.needs.first() == Some(&Need::NoNative) && !has_item;
    match fault.code {
        ErrorCode::UpstreamNotFound => true,
        ErrorCode::UpstreamRejected => is_about_it && !refusal.of_request.has(Need::NoCompaction),
        _ => false,
    }
}
