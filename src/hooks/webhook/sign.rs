//! The signature of the Standard Webhooks specification, version 1 (symmetric): HMAC-SHA256 over the call's id, the
//! time and the body, separated by `.`.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use ring::hmac;
use std::{fmt, str::FromStr};

/// The prefix that marks a secret.
const SECRET_PREFIX: &str = "whsec_";

/// The number of bytes that the specification allows. Fewer could be guessed, and more add nothing.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Maximum secrets of one webhook: two during a rotation, and as many again if one is late.
pub(super) const SECRETS_MAX: usize = 4;

/// Base64 with optional padding, which some programs omit.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A secret shared by the server and one webhook.
#[derive(Clone)]
pub(crate) struct Secret(hmac::Key);

/// The text is not a secret. The message does not repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a secret; allowed: `{SECRET_PREFIX}` and {} to {} bytes in base64",
    SECRET_BYTES.start(),
    SECRET_BYTES.end()
)]
pub(crate) struct InvalidSecret;

impl FromStr for Secret {
    type Err = InvalidSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSecret> {
        let text = text.strip_prefix(SECRET_PREFIX).ok_or(InvalidSecret)?;
        let bytes = LENIENT.decode(text).map_err(|_| InvalidSecret)?;
        if !SECRET_BYTES.contains(&bytes.len()) {
            return Err(InvalidSecret);
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Returns the value of `webhook-signature`. It has one signature per secret, so that during a rotation a receiver
/// needs to know only one of them.
pub(super) fn signatures(secrets: &[Secret], id: &str, seconds: &str, body: &[u8]) -> String {
    let each = secrets.iter().map(|Secret(key)| {
        let mut context = hmac::Context::with_key(key);
        for piece in [id.as_bytes(), b".", seconds.as_bytes(), b".", body] {
            context.update(piece);
        }
        format!("v1,{}", STANDARD.encode(context.sign()))
    });
    each.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{InvalidSecret, Secret, signatures};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn secret(text: &str) -> Secret {
        text.parse().unwrap()
    }

    /// The test vectors of the specification's own libraries.
    #[test]
    fn a_published_message_has_its_published_signature() {
        let signed =
            signatures(&[secret(SECRET)], "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn each_secret_signs_and_the_order_is_kept() {
        let other = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
        let alone = |text: &str| signatures(&[secret(text)], "msg_1", "1", b"{}");
        let both = signatures(&[secret(SECRET), secret(other)], "msg_1", "1", b"{}");
        assert_eq!(both, format!("{} {}", alone(SECRET), alone(other)));
        assert_ne!(alone(SECRET), alone(other));
    }

    #[test]
    fn a_secret_has_its_prefix_and_as_many_bytes_as_the_specification_allows() {
        let of = |bytes: usize| {
            use base64::Engine as _;
            format!("whsec_{}", super::STANDARD.encode(vec![7; bytes]))
        };
        for text in [SECRET.to_owned(), of(24), of(25), of(64), of(25).trim_end_matches('=').to_owned()] {
            assert!(text.parse::<Secret>().is_ok(), "{text}");
        }
        for text in [
            SECRET.trim_start_matches("whsec_").to_owned(),
            of(23),
            of(65),
            format!("{SECRET}!"),
            "whsec_".to_owned(),
            String::new(),
            SECRET.replace("whsec_", "whsk_"),
        ] {
            assert_eq!(text.parse::<Secret>().map(|_| ()), Err(InvalidSecret), "{text}");
        }
        assert_eq!(format!("{:?}", secret(SECRET)), "Secret(..)");
        assert_eq!(InvalidSecret.to_string(), "not a secret; allowed: `whsec_` and 24 to 64 bytes in base64");
    }
}
