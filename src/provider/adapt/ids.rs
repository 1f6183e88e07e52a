//! The ids of tool calls as they are sent to a server.
//!
//! A server gets its own ids back unchanged. A call gets our id if another server made it, or if its id was missing or
//! used twice. Every server accepts our ids, except those that require nine letters and digits, and Anthropic, which
//! takes no `.` and `:`. For these, an id is derived from ours. So ids are mapped one to one, and a call has the same
//! id in each request of a session. An answer does not keep an id that was already in its request ([`forget_known`]).

use crate::core::fingerprint::fingerprint;
use reseed_protocol::{CallId, Message, Payload};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

/// The length that Mistral's servers and templates require.
const SHORT_CHARS: usize = 9;

/// The maximum length that every server accepts for the id of a foreign call.
const ID_BYTES_MAX: usize = 40;
/// The maximum length of an id that is sent back to its server. LiteLLM puts Gemini's signature of a call into its id,
/// which has several KiB. Far beyond that, something else is wrong.
const OWN_ID_BYTES_MAX: usize = 64 * 1024;

/// The ids in one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ids(BTreeMap<CallId, String>);

impl Ids {
    /// Chooses the ids of these messages' calls for a server's model. `short` means that it requires nine letters and
    /// digits. An id that carries a signature is only for the model that signed it, because another model behind the
    /// same router may refuse it.
    pub(crate) fn of(messages: &[Cow<'_, Message>], (server, model): (&str, &str), short: bool) -> Self {
        let mut taken = BTreeSet::new();
        let mut ids = BTreeMap::new();
        for message in messages {
            let payload = message.payload.as_deref().filter(|payload| payload.server == server);
            let is_its = message.model.as_deref().is_none_or(|by| by == model);
            let own_max = if is_its { OWN_ID_BYTES_MAX } else { ID_BYTES_MAX };
            for (call, ..) in message.tool_calls() {
                let calls = payload.into_iter().flat_map(|payload| &payload.calls);
                let own = calls.filter(|own| own.call_id == *call).map(|own| (own.id.clone(), own_max));
                let ours = std::iter::once(call.as_str().to_owned());
                let mapped = ours.chain((0_u64..).map(|salt| shortened(call, salt))).map(|id| (id, ID_BYTES_MAX));
                let fits = |id: &str, max| (1..=max).contains(&id.len()) && (!short || is_short(id));
                let mut ids_of_call = own.chain(mapped).filter(|(id, max)| fits(id, *max)).map(|(id, _)| id);
                let id = ids_of_call.find(|id| !taken.contains(id));
                let id = id.expect("the numbers do not end");
                taken.insert(id.clone());
                ids.entry(call.clone()).or_insert(id);
            }
        }
        Self(ids)
    }

    /// Replaces our ids that have other characters than letters, digits, `_` and `-`. A client may bring along calls
    /// with such ids.
    pub(crate) fn make_plain(&mut self) {
        let mut taken: BTreeSet<String> = self.0.values().cloned().collect();
        for (call, id) in &mut self.0 {
            if call.as_str() == id.as_str() && !is_plain(id) {
                let mut ids = (0_u64..).map(|salt| shortened(call, salt));
                *id = ids.find(|id| taken.insert(id.clone())).expect("the numbers do not end");
            }
        }
    }

    /// Returns the id of a call, or our own id if the request does not contain the call.
    pub(crate) fn of_call<'i>(&'i self, call: &'i CallId) -> &'i str {
        self.0.get(call).map_or(call.as_str(), String::as_str)
    }
}

/// Forgets the ids of an answer's calls that the server already gave to earlier calls of the request or the answer.
/// These calls are sent with our ids, even after a compaction has removed the calls that had the ids first.
pub(crate) fn forget_known<'m>(answer: &mut Payload, messages: impl Iterator<Item = &'m Message>) {
    let before = messages.filter_map(|message| message.payload.as_deref());
    let before = before.filter(|payload| payload.server == answer.server);
    let known: BTreeSet<&str> = before.flat_map(|payload| &payload.calls).map(|call| call.id.as_str()).collect();
    for at in 0..answer.calls.len() {
        let (earlier, rest) = answer.calls.split_at_mut(at);
        let call = &mut rest[0];
        if known.contains(call.id.as_str()) || earlier.iter().any(|earlier| earlier.id == call.id) {
            call.id.clear();
        }
    }
}

fn is_plain(id: &str) -> bool {
    id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn is_short(id: &str) -> bool {
    id.len() == SHORT_CHARS && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns nine letters and digits that depend only on the call. Another salt gives others.
fn shortened(call: &CallId, salt: u64) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut rest =
        fingerprint(format!("{}{call}", if salt == 0 { String::new() } else { salt.to_string() }).as_bytes());
    (0..SHORT_CHARS)
        .map(|_| {
            let digit = DIGITS[(rest % 62) as usize];
            rest /= 62;
            char::from(digit)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::{CallPayload, Part, Payload, Role};

    fn answer(server: &str, calls: &[(&str, &str)]) -> Cow<'static, Message> {
        let part = |(ours, _): &(&str, &str)| Part::ToolCall {
            call_id: ours.parse().unwrap(),
            name: "look".into(),
            arguments: "{}".into(),
        };
        let own = |(ours, theirs): &(&str, &str)| CallPayload {
            call_id: ours.parse().unwrap(),
            id: (*theirs).to_owned(),
            fields: None,
        };
        let payload = Payload { server: server.into(), calls: calls.iter().map(own).collect(), ..Payload::default() };
        let mut message = Message::new(Role::Assistant, calls.iter().map(part).collect());
        message.payload = Some(Box::new(payload));
        Cow::Owned(message)
    }

    #[test]
    fn a_server_gets_its_own_ids_and_of_others_those_that_it_takes() {
        let messages = [
            answer("here", &[("a1", "D681PevKs"), ("a2", "call:2"), ("a3", ""), ("a4", "D681PevKs")]),
            answer("there", &[("b1", "toolu_0123456789")]),
        ];
        let ids = |server: &str, short| {
            let ids = Ids::of(&messages, (server, "m"), short);
            ["a1", "a2", "a3", "a4", "b1"].map(|call| ids.of_call(&call.parse().unwrap()).to_owned())
        };
        assert_eq!(ids("here", false), ["D681PevKs", "call:2", "a3", "a4", "b1"]);
        assert_eq!(ids("there", false), ["a1", "a2", "a3", "a4", "toolu_0123456789"]);
        let short = ids("here", true);
        assert_eq!(short[0], "D681PevKs");
        assert!(short.iter().all(|id| is_short(id)), "{short:?}");
        assert_eq!(BTreeSet::from(short.clone()).len(), short.len());
        // Earlier messages do not change them.
        let later = Ids::of(&messages[1..], ("here", "m"), true);
        assert_eq!(later.of_call(&"b1".parse().unwrap()), short[4]);
    }

    #[test]
    fn only_ids_with_other_characters_are_made_plain() {
        let messages =
            [answer("here", &[("a1", "call:1")]), answer("there", &[("functions.look:0", "x"), ("b-2_", "y")])];
        let mut ids = Ids::of(&messages, ("here", "m"), false);
        ids.make_plain();
        let [own, odd, plain] =
            ["a1", "functions.look:0", "b-2_"].map(|call| ids.of_call(&call.parse().unwrap()).to_owned());
        assert_eq!((own.as_str(), plain.as_str()), ("call:1", "b-2_"));
        assert!(is_short(&odd), "{odd}");
    }

    #[test]
    fn a_long_id_goes_back_to_its_server_alone() {
        let signed = format!("call_1__thought__{}", "c2ln".repeat(2_000));
        let foreign = "f".repeat(41);
        let mut other = answer("here", &[("a2", signed.as_str())]).into_owned();
        other.model = Some("another".into());
        let messages = [
            answer("here", &[("a1", signed.as_str())]),
            answer("there", &[(foreign.as_str(), "b")]),
            Cow::Owned(other),
        ];
        let of = |server: &str, call: &str| {
            let ids = Ids::of(&messages, (server, "m"), false);
            ids.of_call(&call.parse().unwrap()).to_owned()
        };
        assert_eq!(of("here", "a1"), signed);
        assert_eq!(of("there", "a1"), "a1");
        assert_eq!(of("here", "a2"), "a2", "another model behind the same router signed it");
        let mapped = of("here", &foreign);
        assert!(is_short(&mapped), "{mapped}");
        assert_eq!(of("elsewhere", &foreign), mapped);
    }

    #[test]
    fn an_id_that_comes_again_is_mapped_alike_with_and_without_the_first() {
        let first = answer("here", &[("a1", "same"), ("a2", "other")]);
        let second = answer("here", &[("b1", "same"), ("b2", "new"), ("b3", "new")]);
        let mut payload = second.payload.as_deref().unwrap().clone();
        forget_known(&mut payload, [&*first].into_iter());
        let mut second = second.into_owned();
        second.payload = Some(Box::new(payload));
        let messages = [first, Cow::Owned(second)];
        for messages in [&messages[..], &messages[1..]] {
            let ids = Ids::of(messages, ("here", "m"), false);
            assert_eq!(
                ["b1", "b2", "b3"].map(|call| ids.of_call(&call.parse().unwrap()).to_owned()),
                ["b1", "new", "b3"]
            );
        }
    }
}
