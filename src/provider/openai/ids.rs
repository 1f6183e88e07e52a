//! Ids of calls as a server gets them.
//!
//! A server gets its own ids back. A call that another server made, or whose id came twice or never, has ours, which
//! every server takes but those that want nine letters and digits: these get ids derived from it. So ids are mapped one
//! to one, and the same in each request of a session, whatever was said before.

use crate::core::fingerprint::fingerprint;
use reseed_protocol::{CallId, Message};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

/// The length that Mistral's servers and templates want.
const SHORT_CHARS: usize = 9;

/// The longest id that any server takes.
const ID_BYTES_MAX: usize = 64;

/// The ids in one request.
#[derive(Debug, Default)]
pub(super) struct Ids(BTreeMap<CallId, String>);

impl Ids {
    /// Chooses the ids of these messages' calls for a server, `short` if it wants nine letters and digits.
    pub(super) fn of(messages: &[Cow<'_, Message>], server: &str, short: bool) -> Self {
        let mut taken = BTreeSet::new();
        let mut ids = BTreeMap::new();
        for message in messages {
            let payload = message.payload.as_deref().filter(|payload| payload.server == server);
            for (call, ..) in message.tool_calls() {
                let calls = payload.into_iter().flat_map(|payload| &payload.calls);
                let own = calls.filter(|own| own.call_id == *call).map(|own| own.id.clone());
                let ours = std::iter::once(call.as_str().to_owned());
                let derived = (0_u64..).map(|salt| shortened(call, salt));
                let fits = |id: &String| (1..=ID_BYTES_MAX).contains(&id.len()) && (!short || is_short(id));
                let id = own.chain(ours).chain(derived).find(|id| fits(id) && !taken.contains(id));
                let id = id.expect("the numbers do not end");
                taken.insert(id.clone());
                ids.entry(call.clone()).or_insert(id);
            }
        }
        Self(ids)
    }

    /// Returns the id of a call; ours if the request has no such call.
    pub(super) fn of_call<'i>(&'i self, call: &'i CallId) -> &'i str {
        self.0.get(call).map_or(call.as_str(), String::as_str)
    }
}

fn is_short(id: &str) -> bool {
    id.len() == SHORT_CHARS && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns nine letters and digits that depend on the call alone; another salt gives others.
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
            let ids = Ids::of(&messages, server, short);
            ["a1", "a2", "a3", "a4", "b1"].map(|call| ids.of_call(&call.parse().unwrap()).to_owned())
        };
        assert_eq!(ids("here", false), ["D681PevKs", "call:2", "a3", "a4", "b1"]);
        assert_eq!(ids("there", false), ["a1", "a2", "a3", "a4", "toolu_0123456789"]);
        let short = ids("here", true);
        assert_eq!(short[0], "D681PevKs");
        assert!(short.iter().all(|id| is_short(id)), "{short:?}");
        assert_eq!(BTreeSet::from(short.clone()).len(), short.len());
        // What was said before does not change them.
        let later = Ids::of(&messages[1..], "here", true);
        assert_eq!(later.of_call(&"b1".parse().unwrap()), short[4]);
    }
}
