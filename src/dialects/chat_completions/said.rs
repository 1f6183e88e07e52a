//! What a client's list of messages says, and the hash chain by which a place in it is known again.
//!
//! Only what clients send back unharmed counts: roles, texts, images, the names and arguments of calls. Ids do not, nor
//! does reasoning. In answers, white space does not count either: clients trim them.

use reseed_protocol::Part;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// A message of a client's list, apart from system prompts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// By the user: texts and images.
    User(Vec<Part>),
    /// An answer.
    Answer {
        /// Its text.
        text: String,
        /// Its calls.
        calls: Vec<Call>,
    },
    /// The result of a call.
    Result {
        /// The client's id of the call.
        call: String,
        /// The output.
        output: String,
    },
}

/// A call in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    /// The client's id of it.
    pub(super) id: String,
    /// The tool.
    pub(super) name: String,
    /// The arguments, as JSON text.
    pub(super) arguments: String,
}

/// The hash of a list of messages. That of a longer list contains it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Chain([u8; 20]);

impl Chain {
    /// The hash of no messages.
    pub(super) const ROOT: Self = Self([0; 20]);

    /// Returns the hash with one more message.
    pub(super) fn then(self, said: &Said) -> Self {
        match said {
            Said::User(parts) => self.then_user(parts),
            Said::Answer { text, calls } => {
                let mut answer = AnswerHash::default();
                answer.text(text);
                calls.iter().for_each(|call| answer.call(&call.name, &call.arguments));
                answer.after(self)
            }
            Said::Result { output, .. } => self.then_result(output),
        }
    }

    /// Returns the hash with a message of the user.
    pub(super) fn then_user(self, parts: &[Part]) -> Self {
        let mut hash = self.start(b'u');
        for part in parts {
            match part {
                Part::Text { text } => sized(&mut hash, b't', text),
                Part::Image { url, .. } => sized(&mut hash, b'i', url),
                Part::Reasoning { .. } | Part::ToolCall { .. } | Part::ToolResult { .. } => {}
            }
        }
        Self::end(hash)
    }

    /// Returns the hash with the result of a call.
    pub(super) fn then_result(self, output: &str) -> Self {
        let mut hash = self.start(b'r');
        sized(&mut hash, b't', output);
        Self::end(hash)
    }

    fn start(self, kind: u8) -> Sha256 {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update([kind]);
        hash
    }

    fn end(hash: Sha256) -> Self {
        let mut chain = [0; 20];
        chain.copy_from_slice(&hash.finalize()[..20]);
        Self(chain)
    }

    /// Returns it as 40 hexadecimal digits.
    pub(super) fn hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the hash that was written as [`Self::hex`].
    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let mut chain = [0; 20];
        if text.len() != 40 || !text.is_ascii() {
            return None;
        }
        for (at, byte) in chain.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(chain))
    }

    /// Returns the hash of this list under a name, for ids.
    pub(super) fn named(self, name: &str) -> String {
        let mut hash = self.start(b'n');
        sized(&mut hash, b'n', name);
        Self::end(hash).hex()
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.hex()[..8])
    }
}

/// The hash of an answer, which may be in several pieces: the model's words before and after calls that the server
/// made are one answer to the client.
#[derive(Debug, Clone, Default)]
pub(super) struct AnswerHash {
    text: Sha256,
    has_text: bool,
    calls: Vec<[u8; 32]>,
}

impl AnswerHash {
    /// Adds text.
    pub(super) fn text(&mut self, text: &str) {
        for word in text.split_whitespace() {
            self.text.update(word);
            self.has_text = true;
        }
    }

    /// Adds a call.
    pub(super) fn call(&mut self, name: &str, arguments: &str) {
        let mut hash = Sha256::new();
        sized(&mut hash, b'n', name);
        sized(&mut hash, b'a', &canonical(arguments));
        self.calls.push(hash.finalize().into());
    }

    /// Removes the call with this index.
    pub(super) fn without_call(&mut self, at: usize) {
        self.calls.remove(at);
    }

    /// Returns the hash of a list that ends with this answer. Clients leave out an answer that says nothing.
    pub(super) fn after(&self, before: Chain) -> Chain {
        if !self.has_text && self.calls.is_empty() {
            return before;
        }
        let mut hash = before.start(b'a');
        hash.update(self.text.clone().finalize());
        self.calls.iter().for_each(|call| hash.update(call));
        Chain::end(hash)
    }
}

fn sized(hash: &mut Sha256, kind: u8, text: &str) {
    hash.update([kind]);
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}

/// Returns the arguments of a call in one form, whatever the order of their fields and the white space between them.
fn canonical(arguments: &str) -> String {
    let arguments = arguments.trim();
    if arguments.is_empty() {
        return "{}".to_owned();
    }
    match serde_json::from_str(arguments) {
        Ok(value) => sorted(value).to_string(),
        Err(_) => arguments.to_owned(),
    }
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

/// Returns the hash after each message, beginning with that of none.
pub(super) fn chains(list: &[Said]) -> Vec<Chain> {
    let mut chain = Chain::ROOT;
    let after = list.iter().map(|said| {
        chain = chain.then(said);
        chain
    });
    std::iter::once(Chain::ROOT).chain(after).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str, arguments: &[&str]) -> Chain {
        let call = |arguments: &&str| Call { id: "x".into(), name: "look".into(), arguments: (*arguments).into() };
        Chain::ROOT.then(&Said::Answer { text: text.into(), calls: arguments.iter().map(call).collect() })
    }

    #[test]
    fn only_what_comes_back_unharmed_counts() {
        assert_eq!(answer("The sea. \n", &[]), answer("The sea.", &[]));
        assert_ne!(answer("The sea", &[]), answer("The seas", &[]));
        assert_eq!(answer("", &[r#"{"b": 1, "a": {"d": 2, "c": 3}}"#]), answer("", &[r#"{"a":{"c":3,"d":2},"b":1}"#]));
        assert_eq!(answer("", &[""]), answer("", &["{}"]));
        assert_ne!(answer("", &["{}"]), answer("", &["{}", "{}"]));
        assert_eq!(answer(" ", &[]), Chain::ROOT);
        let user = |text: &str| Chain::ROOT.then_user(&[Part::Text { text: text.into() }]);
        assert_ne!(user("a"), user("a "));
        assert_ne!(user("a"), Chain::ROOT.then_result("a"));
        assert_ne!(user("a"), Chain::ROOT.then_user(&[Part::Image { url: "a".into(), detail: None }]));
    }

    #[test]
    fn a_chain_is_written_and_read() {
        let chain = answer("x", &[]);
        assert_eq!(Chain::from_hex(&chain.hex()), Some(chain));
        assert_eq!([Chain::from_hex("xy"), Chain::from_hex(&"é".repeat(20))], [None, None]);
    }
}
