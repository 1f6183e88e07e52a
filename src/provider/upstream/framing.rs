//! Determines from the beginning of a body whether it is an event stream, JSON or a web page. The declared content type
//! is unreliable at many servers and proxies.

use super::{
    json_values::JsonValues,
    sse::{Sse, TooLarge},
};

/// A body that is split into events as it arrives.
#[derive(Debug)]
pub(crate) enum Framing {
    /// Only blanks have arrived.
    Unknown(Vec<u8>),
    /// Server-sent events.
    Sse(Sse),
    /// JSON: the whole answer in one value, or one value per event.
    Json(JsonValues),
    /// A web page, which is not an answer.
    Page,
}

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
                    Some(b'{' | b'[') => Self::Json(JsonValues::default()),
                    Some(b'<') => Self::Page,
                    _ => Self::Sse(Sse::default()),
                };
                let bytes = std::mem::take(before);
                let pushed = framing.push(&bytes);
                *self = framing;
                pushed
            }
            Self::Sse(sse) => sse.push(bytes),
            Self::Json(values) => values.push(bytes),
            Self::Page => Ok(()),
        }
    }

    /// Advances to the next complete event and discards the previous one. Returns `false` if more bytes are needed.
    pub(crate) fn advance(&mut self) -> bool {
        match self {
            Self::Sse(sse) => sse.advance(),
            Self::Json(values) => values.advance(),
            Self::Unknown(_) | Self::Page => false,
        }
    }

    /// Returns true if the end of the body completes an event.
    pub(crate) fn end(&mut self) -> bool {
        match self {
            Self::Sse(sse) => sse.end(),
            Self::Json(values) => values.end(),
            Self::Unknown(_) | Self::Page => false,
        }
    }

    /// Returns the data of the current event.
    pub(crate) fn data(&self) -> &[u8] {
        match self {
            Self::Sse(sse) => sse.data(),
            Self::Json(values) => values.data(),
            Self::Unknown(_) | Self::Page => &[],
        }
    }
}

/// Maximum bytes of blanks before a body begins. Some servers send them to keep a connection open.
const BLANKS_MAX: usize = 64 * 1024;

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
        if framing.end() {
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
