//! Tests searches without a server.

use super::*;
use crate::core::{
    model::Purpose,
    need::Need::{NoEffort, NoLimit, NoTemperature, OldLimit, OneCall},
};
use reseed_protocol::{
    Message, Role,
    context::{
        ContextEnvelope, ContextMessage, EnvelopeMessages, EnvelopeMeta, RequestOptions, SystemPrompt, ToolDefinition,
    },
};
use std::sync::Arc;

/// A request with these messages, to the model `m`.
pub(in crate::provider) fn asking(messages: Vec<Message>) -> ModelRequest {
    let message = |message| ContextMessage { entry_id: None, message: Arc::new(message) };
    ModelRequest {
        model: "m".into(),
        envelope: ContextEnvelope {
            system: SystemPrompt::default(),
            tools: Vec::new(),
            messages: EnvelopeMessages { cached: messages.into_iter().map(message).collect(), uncached: Vec::new() },
            options: RequestOptions { max_output_tokens: Some(64), ..RequestOptions::default() },
            meta: EnvelopeMeta::default(),
        },
        purpose: Purpose::Turn,
        compared_with: None,
        compacts: None,
    }
}

fn picture(name: &str) -> Part {
    Part::Image { url: format!("data:image/png;base64,{name}"), detail: None }
}

/// A request with an image and tools, without any answer so far.
fn rich() -> ModelRequest {
    let mut rich = asking(vec![Message::new(Role::User, vec![picture("a")])]);
    rich.envelope.tools =
        vec![ToolDefinition { name: "look".into(), description: String::new(), parameters: serde_json::json!({}) }];
    rich
}

fn refused(needs: &[Need]) -> Refusal {
    Refusal { needs: needs.into(), ..Refusal::default() }
}

fn of_request(need: Need) -> Refusal {
    Refusal { of_request: Needs::of(&[need]), ..refused(&[need]) }
}

fn failed(code: ErrorCode, refusal: Refusal) -> Failed {
    Failed { fault: ModelFault { refusal, ..ModelFault::new(code, "x") }, begun: false }
}

/// Passes a refusal to a search, and returns true if it changes the request.
fn tell(search: &mut Search, request: &ModelRequest, refusal: Refusal) -> bool {
    search.goes_on(&mut failed(ErrorCode::UpstreamRejected, refusal), request, |_| true)
}

#[test]
fn what_helped_on_a_guess_is_for_its_session() {
    for need in [NoOwnFields, NoSealed] {
        let (taken, learnt, _) = played(&[need], |_| Vec::new());
        assert_eq!((taken.map(|taken| taken.has(need)), learnt), (Some(true), Needs::default()), "{need}");
    }
}

/// Simulates a server that refuses the parts of the `bad` needs one at a time, and names `named` each time.
fn played(bad: &[Need], named: impl Fn(Need) -> Vec<Need>) -> (Option<Needs>, Needs, u32) {
    let (adaptations, request) = (Adaptations::at("h.example"), asking(Vec::new()));
    let mut search = adaptations.begin(&request);
    let taken = loop {
        let Some(refused_need) = bad.iter().find(|need| !search.form.needs.has(**need)) else {
            search.settle(&request);
            break Some(search.form.needs);
        };
        if !tell(&mut search, &request, refused(&named(*refused_need))) {
            break None;
        }
    };
    adaptations.keep("m", &search);
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
        // Nothing is named, so parts that a session may contain are tried. A session loses nothing by the order of
        // roles.
        (&[Alternate], Some(&[]), Some(Needs::of(&[Alternate])), 3),
        (&[ShortIds], Some(&[]), None, 7),
        // The server accepts the output limit under neither name.
        (&[NoLimit], Some(&[OldLimit, NewLimit, NoLimit]), Some(Needs::of(&[NoLimit])), 3),
    ] {
        let played = played(bad, |need| named.map_or(vec![need], <[Need]>::to_vec));
        assert_eq!((played.0, played.2), (expected, tries), "{bad:?} {named:?}");
        // A value of an option may be the only one that is refused.
        assert_eq!(played.1, expected.unwrap_or_default().without(NoLimit), "{bad:?} {named:?}");
    }
}

#[test]
fn nothing_is_tried_for_other_failures() {
    let request = rich();
    for code in [
        ErrorCode::UpstreamAuth,
        ErrorCode::UpstreamQuota,
        ErrorCode::UpstreamRateLimited,
        ErrorCode::ContentFiltered,
        ErrorCode::ContextOverflow,
    ] {
        let mut failed = failed(code, refused(&[NoImages]));
        assert!(!Search::default().goes_on(&mut failed, &request, |_| true), "{code}");
    }
    let mut rejected = failed(ErrorCode::UpstreamRejected, refused(&[NoImages]));
    assert!(!Search::default().goes_on(&mut rejected, &request, |_| false));
    assert_eq!(rejected.fault.refusal, Refusal::default(), "its words did not say what was wrong");
}

#[test]
fn only_an_answer_shows_that_a_form_was_taken() {
    let (adaptations, request) = (Adaptations::at("h.example"), asking(Vec::new()));
    for code in [
        ErrorCode::UpstreamRateLimited,
        ErrorCode::UpstreamOverloaded,
        ErrorCode::UpstreamTimeout,
        ErrorCode::UpstreamUnreachable,
        ErrorCode::ContextOverflow,
    ] {
        let mut search = adaptations.begin(&request);
        assert!(tell(&mut search, &request, refused(&[NoSealed, ShortIds])));
        let mut other = failed(code, Refusal::default());
        assert!(!search.goes_on(&mut other, &request, |_| true), "{code}");
        assert!(search.found().is_empty(), "{code}");
        // The same refusal comes again, so the change did not help.
        assert!(tell(&mut search, &request, refused(&[NoSealed, ShortIds])), "{code}");
        search.settle(&request);
        assert_eq!(search.found(), Needs::of(&[ShortIds]), "{code}");
    }
    let mut search = adaptations.begin(&request);
    assert!(tell(&mut search, &request, refused(&[NoSealed])));
    let mut broke = Failed { begun: true, ..failed(ErrorCode::UpstreamTruncated, Refusal::default()) };
    assert!(!search.goes_on(&mut broke, &request, |_| true));
    assert_eq!(search.found(), Needs::of(&[NoSealed]), "an answer had begun");
}

#[test]
fn a_refusal_in_another_order_is_the_same() {
    let request = asking(Vec::new());
    let mut search = Adaptations::at("h.example").begin(&request);
    assert!(tell(&mut search, &request, refused(&[NoEffort, OneCall])));
    assert!(tell(&mut search, &request, refused(&[OneCall, NoEffort])));
    search.settle(&request);
    assert_eq!(search.found(), Needs::of(&[OneCall]));
}

#[test]
fn what_is_wrong_with_one_request_is_kept_for_its_session_alone() {
    let adaptations = Adaptations::at("h.example");
    let request = rich();
    for need in [NoLimit, NoTemperature, NoTools, NoSealed] {
        let mut search = adaptations.begin(&request);
        assert!(tell(&mut search, &request, of_request(need)));
        search.settle(&request);
        assert!(search.found().is_empty());
        adaptations.keep("m", &search);
    }
    let mut search = adaptations.begin(&request);
    assert!(tell(&mut search, &request, of_request(NoImages)));
    search.settle(&request);
    adaptations.keep("m", &search);
    let kept = adaptations.begin(&request).form;
    assert_eq!(kept.needs, Needs::of(&[NoLimit, NoTemperature, NoTools, NoSealed]));
    assert!(kept.hides("data:image/png;base64,a") && !kept.hides("data:image/png;base64,b"));
    // Another value or another session is a different case. The same value is not.
    let mut other = request.clone();
    other.envelope.options.max_output_tokens = Some(32);
    assert!(!adaptations.begin(&other).form.needs.has(NoLimit));
    let other = asking(vec![Message::new(Role::User, vec![picture("b"), picture("a")])]);
    assert_eq!(adaptations.begin(&other).form, Form::of(Needs::of(&[NoLimit, NoTemperature])));
}

#[test]
fn a_refusal_without_words_is_first_about_what_is_new() {
    let adaptations = Adaptations::at("h.example");
    let first = |request: &ModelRequest| {
        let mut search = adaptations.begin(request);
        let mut tried = Vec::new();
        while tell(&mut search, request, Refusal::default()) {
            tried.push(match search.tried.last() {
                Some(Change::Need(need)) => need.name(),
                _ => "images",
            });
        }
        tried
    };
    let request = rich();
    let others = [
        "cache_diagnostics",
        "user_messages",
        "roles",
        "own_fields",
        "encrypted_reasoning",
        "compaction_item",
        "tools",
    ];
    assert_eq!(first(&request), [&["images"], &others[..]].concat());
    let said = Message { model: Some("m".into()), ..Message::new(Role::Assistant, Vec::new()) };
    let later = asking(vec![Message::new(Role::User, vec![picture("a")]), said]);
    assert_eq!(first(&later)[5..], ["compaction_item", "images", "tools"]);
}

#[test]
fn what_a_model_wrote_is_asked_again_before_tools_are_left_out() {
    let (adaptations, request) = (Adaptations::at("h.example"), rich());
    let of_sample = || Refusal { of_sample: true, ..of_request(NoTools) };
    let mut search = adaptations.begin(&request);
    let mut goes_on = || search.goes_on(&mut failed(ErrorCode::UpstreamError, of_sample()), &request, |_| true);
    assert_eq!([goes_on(), goes_on(), goes_on()], [false, false, true]);
    search.settle(&request);
    assert!(search.form.needs.has(NoTools) && search.found().is_empty());
    adaptations.keep("m", &search);
    assert!(adaptations.begin(&request).form.needs.is_empty(), "the next request has tools");
}

#[test]
fn a_server_that_fails_is_asked_again_before_a_part_is_suspected() {
    let request = rich();
    let mut search = Adaptations::at("h.example").begin(&request);
    let mut goes_on =
        |need| search.goes_on(&mut failed(ErrorCode::UpstreamError, refused(&[need])), &request, |_| true);
    assert_eq!([goes_on(NoTools), goes_on(OneCall), goes_on(OneCall)], [false, false, true]);
}

#[test]
fn of_too_many_bytes_images_are_left_out_where_they_are_most() {
    let too_large = || {
        let refusal = Refusal { of_bytes: true, images_max: Some(1), ..of_request(NoImages) };
        failed(ErrorCode::ContextOverflow, refusal)
    };
    let mut request = asking(vec![Message::new(Role::User, vec![picture("a"), picture("b")])]);
    let mut search = Search::default();
    assert!(search.goes_on(&mut too_large(), &request, |_| true));
    assert!(search.form.hides("data:image/png;base64,a") && !search.form.hides("data:image/png;base64,b"));
    request.envelope.system.compiled = "x".repeat(1_000);
    assert!(!Search::default().goes_on(&mut too_large(), &request, |_| true));
}

#[test]
fn calls_of_a_history_without_tools_teach_nothing() {
    let request = asking(Vec::new());
    let mut search = Adaptations::at("h.example").begin(&request);
    assert!(tell(&mut search, &request, refused(&[NoTools])));
    search.settle(&request);
    assert!(search.found().is_empty());
}

#[test]
fn known_servers_and_models_need_no_refusal() {
    let needs = |host: &str, model: &str| {
        let request = ModelRequest { model: model.into(), ..asking(Vec::new()) };
        Adaptations::at(host).begin(&request).form.needs
    };
    assert_eq!(needs("api.openai.com", "gpt-5"), Needs::of(&[NewLimit]));
    assert_eq!(needs("x.openai.azure.com", "d"), Needs::of(&[NewLimit]));
    assert_eq!(needs("localhost", "mistralai/Devstral-Small"), Needs::of(&[ShortIds, Alternate]));
    assert!(needs("localhost", "qwen3").is_empty());
}
