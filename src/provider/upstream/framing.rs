//! Splits a body into events as it arrives. Its beginning shows whether it is an event stream, JSON or a web page. The
//! declared content type is unreliable at many servers and proxies.

use super::sse::Sse;
use serde::de::IgnoredAny;
use std::ops::Range;

/// Maximum bytes of one event, or of a JSON body. The largest event is `response.completed`, which repeats the whole
/// answer and has at most some MiB. No answer has larger ones.
pub(crate) const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum bytes of blanks before a body begins. Some servers send them to keep a connection open.
const BLANKS_MAX: usize = 64 * 1024;

/// A body that is split into events as it arrives.
#[derive(Debug)]
pub(crate) enum Framing {
    /// Only blanks have arrived.
    Unknown(Vec<u8>),
    /// Server-sent events.
    Sse(Sse),
    /// JSON from a server that does not stream. Each value is an event, once the body has ended.
    Json { body: Vec<u8>, value: Range<usize> },
    /// A web page, which is not an answer.
    Page,
}

/// An event exceeds [`EVENT_BYTES_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Default for Framing {
    fn default() -> Self {
        Self::Unknown(Vec::new())
    }
}

impl Framing {
    /// Appends bytes. First take out all events: call [`Framing::advance`] until it returns `false`.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        match self {
            Self::Unknown(before) => {
                before.extend_from_slice(bytes);
                let text = before.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(before);
                let mut framing = match text.trim_ascii_start().first() {
                    None | Some(0xEF) if before.len() < BLANKS_MAX => return Ok(()),
                    Some(b'{' | b'[') => Self::Json { body: Vec::new(), value: 0..0 },
                    Some(b'<') => Self::Page,
                    _ => Self::Sse(Sse::default()),
                };
                let pushed = framing.push(text);
                *self = framing;
                pushed
            }
            Self::Sse(sse) => sse.push(bytes),
            Self::Json { body, .. } if body.len() + bytes.len() > EVENT_BYTES_MAX => Err(TooLarge),
            Self::Json { body, .. } => {
                body.extend_from_slice(bytes);
                Ok(())
            }
            Self::Page => Ok(()),
        }
    }

    /// Advances to the next complete event and discards the previous one. Returns `false` if more bytes are needed.
    pub(crate) fn advance(&mut self) -> bool {
        match self {
            Self::Sse(sse) => sse.advance(),
            Self::Unknown(_) | Self::Json { .. } | Self::Page => false,
        }
    }

    /// Advances to the next event that only the end of the body completes. Returns `false` if there is none.
    pub(crate) fn end(&mut self) -> bool {
        match self {
            Self::Sse(sse) => sse.end(),
            Self::Json { body, value } => {
                // The elements of a list are values too.
                let is_between = |byte: &u8| byte.is_ascii_whitespace() || b",[]".contains(byte);
                let from = value.end + body[value.end..].iter().take_while(|byte| is_between(byte)).count();
                let mut values = serde_json::Deserializer::from_slice(&body[from..]).into_iter::<IgnoredAny>();
                let is_whole = matches!(values.next(), Some(Ok(_)));
                *value = from..if is_whole { from + values.byte_offset() } else { body.len() };
                from < body.len()
            }
            Self::Unknown(_) | Self::Page => false,
        }
    }

    /// Returns the data of the current event.
    pub(crate) fn data(&self) -> &[u8] {
        match self {
            Self::Sse(sse) => sse.data(),
            Self::Json { body, value } => &body[value.clone()],
            Self::Unknown(_) | Self::Page => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the events of a body that arrives in chunks of `size` bytes.
    fn events(body: &[u8], size: usize) -> (Vec<String>, bool) {
        let mut framing = Framing::default();
        let mut events = Vec::new();
        for chunk in body.chunks(size) {
            framing.push(chunk).unwrap();
            while framing.advance() {
                events.push(String::from_utf8(framing.data().to_vec()).unwrap());
            }
        }
        while framing.end() {
            events.push(String::from_utf8(framing.data().to_vec()).unwrap());
        }
        (events, matches!(framing, Framing::Page))
    }

    #[test]
    fn a_body_is_told_by_how_it_begins_however_it_is_cut() {
        for (body, expected, page) in [
            ("data: {\"a\":1}\n\ndata: [DONE]\n\n", &["{\"a\":1}", "[DONE]"][..], false),
            ("\u{feff}data: a\n\n", &["a"], false),
            (": ping\n\ndata: a\n\n", &["a"], false),
            ("{\"a\":{\"b\":[\"}\\\"{\"]}}", &["{\"a\":{\"b\":[\"}\\\"{\"]}}"], false),
            ("\u{feff} \r\n{\n  \"a\": 1\n}\n", &["{\n  \"a\": 1\n}"], false),
            ("{\"a\":1}\n{\"a\":2}\r\n\r\n{\"a\":3}", &["{\"a\":1}", "{\"a\":2}", "{\"a\":3}"], false),
            ("[{\"a\":1},\n{\"a\":[]}]", &["{\"a\":1}", "{\"a\":[]}"], false),
            ("{\"a\":\"cut", &["{\"a\":\"cut"], false),
            ("<!doctype html><p>data: a\n\n", &[], true),
            (" \n", &[], false),
            ("", &[], false),
        ] {
            for size in 1..=body.len().max(1) {
                let expected = (expected.iter().map(|&event| event.to_owned()).collect(), page);
                assert_eq!(events(body.as_bytes(), size), expected, "{body:?} by {size}");
            }
        }
    }
}
