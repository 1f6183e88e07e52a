//! What each model of a server needs: known from the server's address or the model's name, or learnt from refusals.
//!
//! A server that refuses a part of a request is asked once more without it, or with it in another form. What helped
//! holds for that model until the settings change; it is kept in memory, so after a restart one request is refused
//! again. The words of a refusal only say what may help ([`Refusal`]): the candidates are tried one after another, and
//! one that did not help is taken back. Never tried again: refusals of credentials, quota, rates, size, and of what was
//! said.

use crate::{
    core::{
        model::ModelFault,
        need::{
            Need::{self, Alternate, Apart, NewLimit, NoImages, NoOwnFields, NoSealed, NoTools, ShortIds},
            Needs, Refusal,
        },
    },
    provider::retry::Failed,
};
use reseed_protocol::ErrorCode;
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// Most requests that are sent again for one answer, because of refusals: a server may name one part at a time.
const TRIES_MAX: u32 = 8;
/// Most of them without a word that says what was refused.
const BLIND_TRIES_MAX: u32 = 3;
/// Most models of which something is kept; beyond, refusals are worked around each time.
const MODELS_MAX: usize = 1024;

/// What is tried if a refusal names nothing: what a session may hold that its model does not take, and that would keep
/// it from ever going on.
const BLIND: [Need; 6] = [Apart, Alternate, NoOwnFields, NoSealed, NoImages, NoTools];

/// How a server or a model is recognised.
#[derive(Debug, Clone, Copy)]
pub(super) enum Known {
    /// By the end of its host's name.
    Host(&'static str),
    /// By a part of the model's name, wherever it runs.
    Model(&'static [&'static str]),
}

/// Parts of the names of Mistral's models. Their templates are strict, and go with them to every server.
const MISTRALS: &[&str] = &["mistral", "mixtral", "ministral", "magistral", "codestral", "devstral", "pixtral"];

/// Servers and models whose needs are known before they refuse anything.
pub(super) const KNOWN: &[(&str, Known, &[Need])] = &[
    ("OpenAI", Known::Host("api.openai.com"), &[NewLimit]),
    ("Azure OpenAI", Known::Host(".openai.azure.com"), &[NewLimit]),
    ("Mistral", Known::Host("api.mistral.ai"), &[ShortIds, Alternate]),
    ("Mistral's models", Known::Model(MISTRALS), &[ShortIds, Alternate]),
];

/// What is known and learnt of one server's models.
#[derive(Debug, Default)]
pub(super) struct Adaptations {
    host: String,
    learnt: Mutex<BTreeMap<String, Needs>>,
}

impl Adaptations {
    /// Knows of a server what its host's name tells.
    pub(super) fn at(host: &str) -> Self {
        Self { host: host.to_lowercase(), learnt: Mutex::default() }
    }

    /// Returns what is known of a model by name.
    fn known(&self, model: &str) -> Needs {
        let model = model.to_lowercase();
        let is_it = |known: &Known| match known {
            Known::Host(end) => self.host.ends_with(end),
            Known::Model(parts) => parts.iter().any(|part| model.contains(part)),
        };
        let found = KNOWN.iter().filter(|(_, known, _)| is_it(known));
        found.fold(Needs::default(), |needs, (_, _, more)| needs.and(Needs::of(more)))
    }

    /// Returns what was learnt of a model.
    fn learnt(&self, model: &str) -> Needs {
        let learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
        learnt.get(model).copied().unwrap_or_default()
    }

    /// Begins a request to a model.
    pub(super) fn begin(&self, model: &str) -> Search {
        let learnt = self.learnt(model);
        let needs = self.known(model).and(learnt);
        Search { needs, learnt, ..Search::default() }
    }

    /// Keeps what a request showed, and names what is new in the log.
    pub(super) fn keep(&self, model: &str, found: Needs) {
        if found.is_empty() {
            return;
        }
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

/// The search for a form of one request that its server takes.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The form that is sent.
    pub(super) needs: Needs,
    /// What was learnt before this request.
    learnt: Needs,
    /// The form before the last change.
    before: Needs,
    /// The last change, and the refusal that it was for.
    last: Option<(Need, Refusal)>,
    tried: Vec<Need>,
    /// What helped, and will help the next request too.
    found: Needs,
    tries: u32,
}

impl Search {
    /// Takes a failure, and returns true if the request is to be sent again in another form. `changes` tells if a set
    /// of needs gives another request than the present one.
    pub(super) fn goes_on(&mut self, failed: &Failed, changes: impl Fn(Needs) -> bool) -> bool {
        let refusal = &failed.fault.refusal;
        if !is_refusal(&failed.fault) {
            // The server took it; what else failed is no matter of form.
            self.settle();
            return false;
        }
        match self.last.take() {
            Some((_, earlier)) if earlier == *refusal => self.needs = self.before,
            Some((need, earlier)) => self.helped(need, &earlier),
            None => {}
        }
        let is_blind = refusal.needs.is_empty();
        let tries_max = if is_blind { BLIND_TRIES_MAX } else { TRIES_MAX };
        let candidates = if is_blind { &BLIND[..] } else { &refusal.needs };
        let next = candidates
            .iter()
            .copied()
            .find(|need| !self.tried.contains(need) && !self.needs.has(*need) && changes(self.needs.with(*need)));
        let Some(need) = next.filter(|_| self.tries < tries_max && !failed.fault.shown && !refusal.of_content) else {
            return false;
        };
        self.tries += 1;
        self.tried.push(need);
        self.before = self.needs;
        self.needs = self.needs.with(need);
        self.last = Some((need, refusal.clone()));
        true
    }

    /// Ends the search: the server took the request.
    pub(super) fn settle(&mut self) {
        if let Some((need, refusal)) = self.last.take() {
            self.helped(need, &refusal);
        }
    }

    /// Returns what holds for the model from now on, and was not known before.
    pub(super) fn found(&self) -> Needs {
        self.found
    }

    /// Returns what was changed because of refusals.
    pub(super) fn changed(&self) -> Needs {
        let changed = self.needs.iter().filter(|need| self.learnt.has(*need) || self.tried.contains(need));
        changed.fold(Needs::default(), Needs::with)
    }

    fn helped(&mut self, need: Need, refusal: &Refusal) {
        // If the refusal did not name them, the request may have been taken for another reason: one damaged image, one
        // message that the server does not want to come last.
        let is_guess = refusal.needs.is_empty() && matches!(need, Apart | NoImages | NoTools);
        if !is_guess && !refusal.of_request {
            self.found = self.found.with(need);
        }
    }
}

/// Returns true for a refusal of the request's form.
fn is_refusal(fault: &ModelFault) -> bool {
    match fault.code {
        ErrorCode::UpstreamRejected => true,
        ErrorCode::UpstreamNotFound | ErrorCode::UpstreamError => !fault.refusal.needs.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::need::Need::{NoLimit, OldLimit};

    fn failed(code: ErrorCode, needs: &[Need]) -> Failed {
        let refusal = Refusal { needs: needs.to_vec(), ..Refusal::default() };
        Failed { fault: ModelFault { refusal, ..ModelFault::new(code, "x") }, begun: false }
    }

    /// Plays a server that refuses `bad` needs' parts one at a time and names `named` each time.
    fn played(bad: &[Need], named: impl Fn(Need) -> Vec<Need>) -> (Option<Needs>, Needs, u32) {
        let adaptations = Adaptations::at("h.example");
        let mut search = adaptations.begin("m");
        let taken = loop {
            let Some(refused) = bad.iter().find(|need| !search.needs.has(**need)) else {
                search.settle();
                break Some(search.needs);
            };
            if !search.goes_on(&failed(ErrorCode::UpstreamRejected, &named(*refused)), |_| true) {
                break None;
            }
        };
        adaptations.keep("m", search.found());
        (taken, adaptations.learnt("m"), search.tries)
    }

    #[test]
    fn candidates_are_tried_in_turn_and_only_what_helps_is_kept() {
        let both = Needs::of(&[NewLimit, ShortIds]);
        for (bad, named, expected, tries) in [
            (&[NewLimit, ShortIds][..], None, Some(both), 2),
            // The first candidate does not help, and is taken back.
            (&[ShortIds], Some(&[NoSealed, ShortIds][..]), Some(Needs::of(&[ShortIds])), 2),
            (&[ShortIds], Some(&[NoSealed]), None, 1),
            // Nothing is named: what a session may hold is tried.
            (&[NoOwnFields], Some(&[]), Some(Needs::of(&[NoOwnFields])), 3),
            (&[ShortIds], Some(&[]), None, 3),
            // Neither name of the output limit is taken.
            (&[NoLimit], Some(&[OldLimit, NewLimit, NoLimit]), Some(Needs::of(&[NoLimit])), 3),
        ] {
            let played = played(bad, |need| named.map_or(vec![need], <[Need]>::to_vec));
            assert_eq!((played.0, played.2), (expected, tries), "{bad:?} {named:?}");
            assert_eq!(played.1, expected.unwrap_or_default(), "{bad:?} {named:?}");
        }
    }

    #[test]
    fn nothing_is_tried_for_other_failures_nor_learnt_of_what_one_request_holds() {
        for code in [
            ErrorCode::UpstreamAuth,
            ErrorCode::UpstreamQuota,
            ErrorCode::UpstreamRateLimited,
            ErrorCode::ContentFiltered,
            ErrorCode::ContextOverflow,
        ] {
            assert!(!Search::default().goes_on(&failed(code, &[NoImages]), |_| true), "{code}");
        }
        let mut of_content = failed(ErrorCode::UpstreamRejected, &[NoImages]);
        of_content.fault.refusal.of_content = true;
        assert!(!Search::default().goes_on(&of_content, |_| true));
        assert!(!Search::default().goes_on(&failed(ErrorCode::UpstreamRejected, &[NoImages]), |_| false));
        let mut damaged = failed(ErrorCode::UpstreamRejected, &[NoImages]);
        damaged.fault.refusal.of_request = true;
        let mut search = Search::default();
        assert!(search.goes_on(&damaged, |_| true));
        search.settle();
        assert_eq!((search.found(), search.changed()), (Needs::default(), Needs::of(&[NoImages])));
    }

    /// The table of the README, printed from what is known and from the refusals that are recognised.
    fn table() -> String {
        let mut rows = vec![["server", "what it needs", "how it is recognised"].map(str::to_owned)];
        let names = |needs: &[Need]| needs.iter().map(|need| format!("`{need}`")).collect::<Vec<_>>().join(", ");
        for (server, known, needs) in KNOWN {
            let how = match known {
                Known::Host(end) => format!("by address: `{end}`"),
                Known::Model(parts) => format!("by the model's name: {}", parts.join(", ")),
            };
            rows.push([(*server).to_owned(), names(needs), how]);
        }
        let mut refused: Vec<(&str, Vec<Need>)> = Vec::new();
        for &(server, need, _) in crate::provider::refusal::tests::EXAMPLES {
            match refused.iter_mut().find(|(known, _)| *known == server) {
                Some((_, needs)) if needs.contains(&need) => {}
                Some((_, needs)) => needs.push(need),
                None => refused.push((server, vec![need])),
            }
        }
        rows.extend(
            refused.iter().map(|(server, needs)| [(*server).to_owned(), names(needs), "by what it refused".into()]),
        );
        rows.insert(1, ["---"; 3].map(str::to_owned));
        let mut text: String = rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect();
        text.push_str("\n| name | what is done |\n| --- | --- |\n");
        text.extend(Need::ALL.iter().map(|need| format!("| `{need}` | {} |\n", need.what())));
        text
    }

    #[test]
    fn the_tables_of_the_readme_are_those_of_the_code() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/provider/README.md");
        let (from, to) = ("<!-- printed by `UPDATE=1 cargo test --lib provider::openai::adapt` -->\n", "<!-- end -->");
        let committed = std::fs::read_to_string(file).unwrap();
        let (head, rest) = committed.split_once(from).unwrap();
        let (_, tail) = rest.split_once(to).unwrap();
        let printed = format!("{head}{from}{}{to}{tail}", table());
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(file, printed).unwrap();
        } else {
            assert!(
                committed == printed,
                "{file} is out of date: run UPDATE=1 cargo test --lib provider::openai::adapt"
            );
        }
    }

    #[test]
    fn known_servers_and_models_need_no_refusal() {
        let needs = |host: &str, model: &str| Adaptations::at(host).begin(model).needs;
        assert_eq!(needs("api.openai.com", "gpt-5"), Needs::of(&[NewLimit]));
        assert_eq!(needs("x.openai.azure.com", "d"), Needs::of(&[NewLimit]));
        assert_eq!(needs("localhost", "mistralai/Devstral-Small"), Needs::of(&[ShortIds, Alternate]));
        assert!(needs("localhost", "qwen3").is_empty());
    }
}
