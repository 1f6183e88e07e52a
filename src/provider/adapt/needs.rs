//! The needs of each model of a server. They are known from the server's address or the model's name, or learnt from
//! refusals.
//!
//! If a server refuses a part of a request, the request is sent again without it or with it in another form. A change
//! that helped is remembered in memory, so after a restart one request is refused again. If it is about what the model
//! accepts, it applies to that model until the settings change. If it is about an option, it applies to that model and
//! that value of the option. If it is about one request's content, it applies to that session.
//!
//! The words of a refusal only suggest what may help ([`Refusal`]). The candidates are tried one after another, and one
//! that did not help is taken back. Refusals of credentials, quotas, rates, token counts and content are never retried.
//!
//! Invariant: something is learnt only from a request that was answered.

#[cfg(test)]
pub(super) mod tests;

use super::form::{Change, Form, Pictures, picture_key, session_key};
use crate::{
    core::{
        fingerprint::{chained, fingerprint, fingerprint_of},
        model::{ModelFault, ModelRequest},
        need::{
            Need::{
                self, Alternate, Apart, NewLimit, NoDiagnostics, NoImages, NoNative, NoOwnFields, NoSealed, NoTools,
                ShortIds,
            },
            Needs, Refusal,
        },
    },
    provider::retry::Failed,
};
use reseed_protocol::{ErrorCode, Part};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Mutex, PoisonError},
};

/// Maximum times that a request is sent again because of refusals. A server may name one part at a time.
const TRIES_MAX: u32 = 8;
/// Maximum of these if no word says what was refused: one for each item in [`BLIND`].
const BLIND_TRIES_MAX: u32 = 8;
/// Maximum number of models that are remembered. For others, each request works around its refusals anew.
const MODELS_MAX: usize = 1024;
/// Maximum number of facts remembered about sessions, a few bytes each. Beyond that, the oldest is forgotten and must
/// be learnt again.
const KEPT_MAX: usize = 16 * 1024;
/// How many times a request is repeated unchanged after a server error, before a part of it is suspected.
const SAME_FORM_TRIES: u32 = 1;
/// The same if the server could not read its model's output, which often differs the next time.
const SAMPLE_TRIES: u32 = 2;

/// The changes to try if a refusal names nothing. They concern parts that a session may contain and its model refuses,
/// which would block the session permanently. Images that are new since the last answer come first.
const BLIND: [Need; 8] = [NoDiagnostics, Apart, Alternate, NoOwnFields, NoSealed, NoNative, NoImages, NoTools];

/// How a server or a model is recognised.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Known {
    /// By the end of the host name.
    Host(&'static str),
    /// By a part of the model's name, on any server.
    Model(&'static [&'static str]),
}

/// Parts of the names of Mistral's models. Their chat templates are strict on every server.
const MISTRALS: &[&str] = &["mistral", "mixtral", "ministral", "magistral", "codestral", "devstral", "pixtral"];

/// Servers and models whose needs are known before any refusal.
pub(crate) const KNOWN: &[(&str, Known, &[Need])] = &[
    ("OpenAI", Known::Host("api.openai.com"), &[NewLimit]),
    ("Azure OpenAI", Known::Host(".openai.azure.com"), &[NewLimit]),
    ("Mistral", Known::Host("api.mistral.ai"), &[ShortIds, Alternate]),
    ("Mistral's models", Known::Model(MISTRALS), &[ShortIds, Alternate]),
];

/// What is known and learnt about one server's models.
#[derive(Debug, Default)]
pub(crate) struct Adaptations {
    host: String,
    learnt: Mutex<BTreeMap<String, Needs>>,
    /// The changes that have helped single sessions.
    kept: Mutex<Kept>,
}

/// A set of keys that forgets the oldest ones.
#[derive(Debug, Default)]
struct Kept {
    known: BTreeSet<u64>,
    order: VecDeque<u64>,
}

impl Kept {
    fn insert(&mut self, key: u64) {
        if self.known.insert(key) {
            self.order.push_back(key);
        }
        if self.order.len() > KEPT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

impl Adaptations {
    /// Creates the adaptations for a server, with what its host name implies.
    pub(crate) fn at(host: &str) -> Self {
        Self { host: host.to_lowercase(), ..Self::default() }
    }

    /// Returns what is known about a model by its name.
    fn known(&self, model: &str) -> Needs {
        let model = model.to_lowercase();
        let is_it = |known: &Known| match known {
            Known::Host(end) => self.host.ends_with(end),
            Known::Model(parts) => parts.iter().any(|part| model.contains(part)),
        };
        let found = KNOWN.iter().filter(|(_, known, _)| is_it(known));
        found.fold(Needs::default(), |needs, (_, _, more)| needs.and(Needs::of(more)))
    }

    /// Returns what was learnt about a model.
    fn learnt(&self, model: &str) -> Needs {
        let learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
        learnt.get(model).copied().unwrap_or_default()
    }

    /// Begins a request to a model.
    pub(crate) fn begin(&self, request: &ModelRequest) -> Search {
        let known = self.known(&request.model);
        let scope = Scope::of(request);
        let mut form = Form::of(known.and(self.learnt(&request.model)));
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.known.is_empty() {
            let needs = Need::ALL.iter().filter(|need| kept.known.contains(&scope.need(**need, request)));
            form.needs = needs.fold(form.needs, |needs, need| needs.with(*need));
            let parts = request.messages().flat_map(|message| &message.message.content);
            let keys = parts.filter_map(|part| match part {
                Part::Image { url, .. } => Some(picture_key(url)),
                _ => None,
            });
            form.hidden = keys.filter(|key| kept.known.contains(&scope.picture(*key))).collect();
        }
        Search { form, known, scope, ..Search::default() }
    }

    /// Remembers what a request showed, and logs what is new.
    pub(crate) fn keep(&self, model: &str, search: &Search) {
        if !search.kept.is_empty() {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            search.kept.iter().for_each(|key| kept.insert(*key));
            let parts = search.kept_needs.iter().map(Need::name).collect::<Vec<_>>().join(", ");
            tracing::warn!(model, parts, "a part of a request was refused; it is left out from now on");
        }
        if search.found.is_empty() {
            return;
        }
        self.learn_all(model, search.found);
    }

    /// Remembers one need of a model.
    pub(crate) fn learn(&self, model: &str, need: Need) {
        self.learn_all(model, Needs::of(&[need]));
    }

    fn learn_all(&self, model: &str, found: Needs) {
        let mut learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
        if learnt.len() >= MODELS_MAX && !learnt.contains_key(model) {
            return;
        }
        let known = learnt.entry(model.to_owned()).or_default();
        for need in found.iter().filter(|need| !known.has(*need)) {
            tracing::warn!(
                model,
                part = need.name(),
                "the model's server refuses this part of requests: {}",
                need.what()
            );
        }
        *known = known.and(found);
    }
}

/// The prefix of a remembered fact's key: the model and the session, so that it does not apply to others.
#[derive(Debug, Clone, Copy, Default)]
struct Scope {
    model: u64,
    session: u64,
}

impl Scope {
    fn of(request: &ModelRequest) -> Self {
        Self { model: fingerprint(request.model.as_bytes()), session: session_key(request) }
    }

    /// Returns the key of a need. If the need omits an option, the key names the option's value instead of the session.
    fn need(self, need: Need, request: &ModelRequest) -> u64 {
        let options = &request.envelope.options;
        let of = match need {
            Need::NoLimit => [2, options.max_output_tokens.unwrap_or(0)],
            Need::NoTemperature => [2, options.temperature.unwrap_or(0.0).to_bits()],
            Need::NoEffort => [2, options.reasoning_effort.as_deref().map_or(0, |it| fingerprint(it.as_bytes()))],
            NoTools => [self.session, fingerprint_of(&request.envelope.tools)],
            // The next compaction makes another item.
            NoNative => {
                let first = request.envelope.messages.cached.first().and_then(|first| first.message.native());
                [self.session, first.map_or(0, |native| fingerprint(native.items.as_bytes()))]
            }
            _ => [self.session, 0],
        };
        chained([self.model, of[0], 0, fingerprint(need.name().as_bytes()), of[1]])
    }

    fn picture(self, key: u64) -> u64 {
        chained([self.model, self.session, 1, key])
    }
}

/// The search for a form of one request that its server accepts.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// The form that is sent.
    pub(crate) form: Form,
    /// The needs of the model that are known without refusals.
    known: Needs,
    scope: Scope,
    /// The last change, the form before it, and the refusal that led to it.
    last: Option<(Change, Form, Refusal)>,
    /// The last refusal that may be transient, and how often it came in a row.
    repeated: Option<(Refusal, u32)>,
    tried: Vec<Change>,
    /// The changes after which the server refused something else instead.
    helped: Vec<(Change, Refusal)>,
    tries: u32,
    /// What helped, and applies to every request to the model.
    found: Needs,
    /// The keys of what helped, and applies to this session.
    kept: Vec<u64>,
    kept_needs: Needs,
}

impl Search {
    /// Handles a failure. Returns true if the request should be sent again in another form. `changes` says whether a
    /// form results in a different request. If no change helped, the refusal's needs are removed, because its words
    /// were misleading.
    pub(crate) fn goes_on(
        &mut self,
        failed: &mut Failed,
        request: &ModelRequest,
        changes: impl Fn(&Form) -> bool,
    ) -> bool {
        if failed.begun {
            self.settle(request);
            return false;
        }
        let fault = &mut failed.fault;
        if !is_refusal(fault) || fault.shown {
            return false;
        }
        let refusal = fault.refusal.clone();
        let same_form_tries = match fault.code {
            _ if refusal.of_sample => SAMPLE_TRIES,
            ErrorCode::UpstreamError => SAME_FORM_TRIES,
            _ => 0,
        };
        if same_form_tries > 0 {
            let before = self.repeated.take().filter(|(earlier, _)| is_same(earlier, &refusal));
            let times = before.map_or(1, |(_, times)| times + 1);
            self.repeated = Some((refusal.clone(), times));
            if times <= same_form_tries {
                return false;
            }
        }
        match self.last.take() {
            Some((_, before, earlier)) if is_same(&earlier, &refusal) => self.form = before,
            Some((change, _, earlier)) => self.helped.push((change, earlier)),
            None => {}
        }
        let tries_max = if refusal.needs.is_empty() { BLIND_TRIES_MAX } else { TRIES_MAX };
        let next = self.candidates(&refusal, request).into_iter().find(|change| {
            let form = self.form.with(change);
            !self.tried.contains(change) && form != self.form && changes(&form)
        });
        let Some(change) = next.filter(|_| self.tries < tries_max) else {
            if fault.code == ErrorCode::UpstreamRejected {
                fault.refusal = Refusal::default();
            }
            return false;
        };
        self.tries += 1;
        self.tried.push(change.clone());
        let changed = self.form.with(&change);
        let before = std::mem::replace(&mut self.form, changed);
        self.last = Some((change, before, refusal));
        true
    }

    /// Returns the changes that may help, the likeliest first.
    fn candidates(&self, refusal: &Refusal, request: &ModelRequest) -> Vec<Change> {
        let is_blind = refusal.needs.is_empty();
        let pictures = Pictures::of(request);
        if refusal.of_bytes && !pictures.are_most {
            return Vec::new();
        }
        let mut needs = if is_blind { BLIND.to_vec() } else { refusal.needs.to_vec() };
        if is_blind && pictures.has_new() {
            needs.sort_by_key(|need| *need != NoImages);
        }
        let changes = needs.into_iter().flat_map(|need| match need {
            NoImages if is_blind || refusal.of_request.has(NoImages) => pictures.suspects(refusal.images_max),
            need => vec![Change::Need(need)],
        });
        changes.collect()
    }

    /// Ends the search, because the server accepted the request.
    pub(crate) fn settle(&mut self, request: &ModelRequest) {
        self.helped.extend(self.last.take().map(|(change, _, refusal)| (change, refusal)));
        for (change, refusal) in std::mem::take(&mut self.helped) {
            match change {
                Change::Need(need) if is_lasting(need, &refusal, request) => self.found = self.found.with(need),
                // The model's output this time says nothing about the next request.
                _ if refusal.of_sample => {}
                Change::Need(need) => {
                    self.kept.push(self.scope.need(need, request));
                    self.kept_needs = self.kept_needs.with(need);
                }
                Change::Hide(pictures) => {
                    self.kept.extend(pictures.into_iter().map(|key| self.scope.picture(key)));
                    self.kept_needs = self.kept_needs.with(NoImages);
                }
            }
        }
    }

    /// Returns the newly learnt needs, which apply to the model from now on.
    pub(crate) fn found(&self) -> Needs {
        self.found
    }

    /// Returns those of the shown needs that are due to refusals.
    pub(crate) fn adapted(&self, shown: Needs) -> Needs {
        shown.iter().filter(|need| !self.known.has(*need)).fold(Needs::default(), Needs::with)
    }
}

/// Returns true if the change that helped is about the model, and not about one request's content.
fn is_lasting(need: Need, refusal: &Refusal, request: &ModelRequest) -> bool {
    // If the refusal did not name it, the request may have succeeded for another reason, such as a message that must
    // not come last, or one tool's definition.
    let is_guess = refusal.needs.is_empty() && need != Alternate;
    // Even servers that accept tools refuse calls in the history if no tools are offered.
    let is_of_history = need == NoTools && request.envelope.tools.is_empty();
    // The server may refuse only this value.
    let is_of_value = matches!(need, Need::NoLimit | Need::NoTemperature | Need::NoEffort);
    !is_guess && !is_of_history && !is_of_value && !refusal.of_request.has(need)
}

/// Returns true if two refusals are about the same needs, even in a different order.
fn is_same(one: &Refusal, other: &Refusal) -> bool {
    one.needs.first() == other.needs.first() || Needs::of(&one.needs) == Needs::of(&other.needs)
}

/// Returns true if a fault is a refusal of the request's form.
fn is_refusal(fault: &ModelFault) -> bool {
    match fault.code {
        ErrorCode::UpstreamRejected => true,
        ErrorCode::UpstreamNotFound | ErrorCode::UpstreamError => !fault.refusal.needs.is_empty(),
        ErrorCode::ContextOverflow => fault.refusal.of_bytes,
        _ => false,
    }
}
