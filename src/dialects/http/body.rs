//! Reads the body of a request: as it is, or compressed with gzip or zstd. Its size is bounded after decoding too.

use super::Failure;
use axum::{
    body::{Body, to_bytes},
    http::{HeaderMap, StatusCode, header},
};
use bytes::Bytes;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::io::Read;

/// Reads a body of at most `bytes_max` bytes.
///
/// # Errors
/// Returns an error if it is larger, encoded in an unknown way, or damaged.
pub async fn read(body: Body, headers: &HeaderMap, bytes_max: usize) -> Result<Bytes, Failure> {
    let encoding = headers.get(header::CONTENT_ENCODING).map(|encoding| encoding.to_str().unwrap_or("?"));
    let encoding = encoding.unwrap_or("identity").trim().to_ascii_lowercase();
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|length| length > bytes_max) {
        return Err(too_large(bytes_max));
    }
    let bytes = to_bytes(body, bytes_max).await.map_err(|error| {
        let error = error.into_inner();
        if error.downcast_ref::<axum::Error>().is_some() || error.to_string().contains("length limit") {
            too_large(bytes_max)
        } else {
            Failure::invalid("the body of the request could not be read")
        }
    })?;
    decode(bytes, &encoding, bytes_max)
}

/// Reads a body that is a JSON object.
///
/// # Errors
/// Names the first field that cannot be used.
pub fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    let broken = |why: String| Failure::invalid(format!("the body: {why}")).with_code("invalid_json");
    let text = std::str::from_utf8(bytes).map_err(|error| broken(error.to_string()))?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize(&mut reader);
    match read {
        // A list would be taken for the fields in their order.
        Ok(_) if !text.trim_start().starts_with('{') => Err(broken("it must be a JSON object".to_owned())),
        Ok(read) => reader.end().map(|()| read).map_err(|error| broken(error.to_string())),
        Err(error) => {
            let field = error.path().to_string();
            let what = error.into_inner();
            let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
            match is_json && field != "." {
                true => Err(Failure::invalid(format!("`{field}`: {what}")).at(field)),
                false => Err(broken(what.to_string())),
            }
        }
    }
}

/// Decodes a body.
fn decode(bytes: Bytes, encoding: &str, bytes_max: usize) -> Result<Bytes, Failure> {
    match encoding {
        "identity" | "" => Ok(bytes),
        "gzip" | "x-gzip" => bounded(flate2::read::MultiGzDecoder::new(&bytes[..]), bytes_max),
        "zstd" => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(&bytes[..]);
            bounded(decoder.map_err(|_| damaged())?, bytes_max)
        }
        _ => Err(Failure::invalid("the content encoding of the body must be gzip, zstd or identity")
            .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)),
    }
}

/// Reads everything, unless it is more than this.
fn bounded(decoder: impl Read, bytes_max: usize) -> Result<Bytes, Failure> {
    let mut decoded = Vec::new();
    let mut limited = decoder.take(bytes_max as u64 + 1);
    limited.read_to_end(&mut decoded).map_err(|_| damaged())?;
    if decoded.len() > bytes_max { Err(too_large(bytes_max)) } else { Ok(decoded.into()) }
}

fn damaged() -> Failure {
    Failure::invalid("the body of the request cannot be decoded")
}

fn too_large(bytes_max: usize) -> Failure {
    let message = format!("the body of the request has more than {bytes_max} bytes");
    Failure::invalid(message).with_code("request_too_large").with_status(StatusCode::PAYLOAD_TOO_LARGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn gzip(text: &str) -> Bytes {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap().into()
    }

    fn zstd(text: &str) -> Bytes {
        ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest).into()
    }

    #[test]
    fn a_body_is_decoded_and_bounded_after_decoding() {
        let text = "sea ".repeat(100);
        for (encoding, bytes) in [("identity", Bytes::from(text.clone())), ("gzip", gzip(&text)), ("zstd", zstd(&text))]
        {
            let decoded = decode(bytes.clone(), encoding, 400).unwrap();
            assert_eq!(decoded, text, "{encoding}");
            if encoding != "identity" {
                assert!(bytes.len() < 399, "{encoding}");
                let refused = decode(bytes, encoding, 399).unwrap_err();
                assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE, "{encoding}");
            }
        }
    }

    #[test]
    fn a_damaged_body_is_refused() {
        for encoding in ["gzip", "zstd"] {
            let refused = decode("neither".into(), encoding, 400).unwrap_err();
            assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{encoding}");
        }
        assert_eq!(decode("x".into(), "br", 400).unwrap_err().status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
}
