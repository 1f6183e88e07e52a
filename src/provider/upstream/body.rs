//! The bytes of a response, decompressed if the server compressed them unasked.

use flate2::write::GzDecoder;
use reqwest::{
    Response,
    header::{CONTENT_ENCODING, HeaderMap},
};
use std::io::Write as _;

/// The body of a response.
#[derive(Debug)]
pub(super) struct Body {
    response: Response,
    gzip: Option<GzDecoder<Vec<u8>>>,
}

/// The connection broke, or the bytes do not match their header.
#[derive(Debug)]
pub(super) struct Broken;

impl Body {
    pub(super) fn new(response: Response) -> Self {
        let encoding = response.headers().get(CONTENT_ENCODING).and_then(|encoding| encoding.to_str().ok());
        let is_gzip =
            encoding.is_some_and(|name| matches!(name.trim().to_ascii_lowercase().as_str(), "gzip" | "x-gzip"));
        Self { response, gzip: is_gzip.then(|| GzDecoder::new(Vec::new())) }
    }

    pub(super) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Waits for the next bytes; `None` at the end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        loop {
            let Some(bytes) = self.response.chunk().await.map_err(|_| Broken)? else { return Ok(None) };
            let Some(gzip) = &mut self.gzip else { return Ok(Some(bytes.into())) };
            // Bytes decompressed before an error are still usable. The next call then returns the error.
            let unpacked = gzip.write_all(&bytes).and_then(|()| gzip.flush());
            let ready = std::mem::take(gzip.get_mut());
            match unpacked {
                _ if !ready.is_empty() => return Ok(Some(ready)),
                Ok(()) => {}
                Err(_) => return Err(Broken),
            }
        }
    }
}
