//! The public keys of an identity provider, from a JWK set (RFC 7517) or from PEM.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use rustls::pki_types::{SubjectPublicKeyInfoDer, pem::PemObject as _};
use serde::Deserialize;
use serde_json::Value;

/// Maximum bytes of a key set. Those of large providers have a few thousand.
pub(super) const KEYS_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of keys. A provider has a few while it rotates them.
const KEYS_MAX: usize = 64;

/// Maximum number of keys tried for one token. Several are candidates only if the token names no key.
const TRIED_MAX: usize = 4;

/// Bytes of an RSA modulus. Fewer than 2,048 bits are unsafe. A key of 4,096 bits verifies in a tenth of a millisecond.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=512;

/// The DER prefixes of public keys (RFC 5480, RFC 8410).
const ED25519: &[u8] = &[0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
const P256: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7, 3,
    0x42, 0,
];
const P384: &[u8] =
    &[0x30, 0x76, 0x30, 0x10, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 5, 0x2b, 0x81, 4, 0, 0x22, 3, 0x62, 0];

/// The identifier of an RSA key, which stands between two lengths (RFC 3279).
const RSA: &[u8] = &[0x30, 0x0d, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];

#[derive(Debug, Default)]
pub(super) struct KeySet(Vec<Key>);

#[derive(Debug)]
struct Key {
    id: Option<String>,
    /// The only algorithm that it may be used with, if the set names one.
    algorithm: Option<String>,
    kind: Kind,
    key: DecodingKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl Kind {
    fn fits(self, algorithm: Algorithm) -> bool {
        match self {
            Self::Rsa => algorithm.family() == AlgorithmFamily::Rsa,
            Self::P256 => algorithm == Algorithm::ES256,
            Self::P384 => algorithm == Algorithm::ES384,
            Self::Ed25519 => algorithm == Algorithm::EdDSA,
        }
    }
}

#[derive(Deserialize)]
struct Listed {
    keys: Vec<Value>,
}

/// A key of a JWK set. The absent fields belong to other kinds of keys.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    crv: String,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Reads a JWK set, or PEM.
    ///
    /// # Errors
    /// The reason why it contains no usable key.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
        let keys = if first == Some(&b'{') { listed(text)? } else { from_pem(text)? };
        if keys.is_empty() {
            let allowed = "RSA keys of 2048 to 4096 bits, P-256, P-384 and Ed25519, for signatures";
            return Err(format!("it has no public key that can be used; allowed: {allowed}"));
        }
        Ok(Self(keys))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the keys that may have signed a token: those with its key id first, then those without an id. Returns at
    /// most [`TRIED_MAX`].
    pub(super) fn candidates(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<DecodingKey> {
        let name = format!("{algorithm:?}");
        let is_meant = |key: &&Key| {
            key.kind.fits(algorithm)
                && key.algorithm.as_ref().is_none_or(|only| *only == name)
                && (id.is_none() || key.id.is_none() || key.id.as_deref() == id)
        };
        let mut found: Vec<&Key> = self.0.iter().filter(is_meant).collect();
        found.sort_by_key(|key| id.is_some() && key.id.is_none());
        found.into_iter().take(TRIED_MAX).map(|key| key.key.clone()).collect()
    }
}

/// Reads a JWK set. Providers also list keys of other kinds and for other uses, which are skipped.
fn listed(text: &[u8]) -> Result<Vec<Key>, String> {
    let Listed { keys } = serde_json::from_slice(text).map_err(|_| "it is not a JWK set".to_owned())?;
    if keys.len() > KEYS_MAX {
        return Err(format!("it has {} keys; at most {KEYS_MAX} are allowed", keys.len()));
    }
    let jwks = keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
    Ok(jwks.filter_map(of_jwk).collect())
}

fn of_jwk(jwk: Jwk) -> Option<Key> {
    let signs = jwk.r#use.is_none_or(|of| of == "sig");
    let verifies = jwk.key_ops.is_none_or(|ops| ops.iter().any(|op| op == "verify"));
    if !signs || !verifies {
        return None;
    }
    let bytes = |text: Option<String>| BASE64_URL_SAFE_NO_PAD.decode(text?).ok();
    let (kind, key) = match (jwk.kty.as_str(), jwk.crv.as_str()) {
        ("RSA", _) => {
            // Some providers write leading zeros, which ring rejects.
            let [n, e] = [bytes(jwk.n)?, bytes(jwk.e)?].map(|number| {
                let zeros = number.iter().take_while(|byte| **byte == 0).count();
                number[zeros..].to_vec()
            });
            (Kind::Rsa, RSA_BYTES.contains(&n.len()).then(|| DecodingKey::from_rsa_raw_components(&n, &e))?)
        }
        ("EC", crv @ ("P-256" | "P-384")) => {
            let (kind, length) = if crv == "P-256" { (Kind::P256, 32) } else { (Kind::P384, 48) };
            let (x, y) = (bytes(jwk.x)?, bytes(jwk.y)?);
            let point = [&[4], x.as_slice(), &y].concat();
            (kind, (x.len() == length && y.len() == length).then(|| DecodingKey::from_ec_der(&point))?)
        }
        ("OKP", "Ed25519") => {
            let x = bytes(jwk.x)?;
            (Kind::Ed25519, (x.len() == 32).then(|| DecodingKey::from_ed_der(&x))?)
        }
        _ => return None,
    };
    Some(Key { id: jwk.kid, algorithm: jwk.alg, kind, key })
}

/// Reads every `PUBLIC KEY` of a PEM text.
fn from_pem(text: &[u8]) -> Result<Vec<Key>, String> {
    if text.windows(11).any(|part| part == b"PRIVATE KEY") {
        return Err("it has a private key, which can sign tokens for any user; use only the public key".to_owned());
    }
    let all = SubjectPublicKeyInfoDer::pem_slice_iter(text).take(KEYS_MAX).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|_| "it is neither a JWK set nor PEM".to_owned())?;
    let key = |der: &SubjectPublicKeyInfoDer<'_>| {
        let (kind, key) = of_der(der)?;
        Some(Key { id: None, algorithm: None, kind, key })
    };
    let found: Vec<Key> = all.iter().filter_map(key).collect();
    for kind in [Kind::Rsa, Kind::P256, Kind::P384, Kind::Ed25519] {
        let count = found.iter().filter(|key| key.kind == kind).count();
        if count > TRIED_MAX {
            return Err(format!(
                "it has {count} keys of one kind; at most {TRIED_MAX} are tried for a token, as PEM does not say which \
                 one signed it. Use a JWK set"
            ));
        }
    }
    Ok(found)
}

/// Extracts a key from its DER encoding. Each kind has only one form, so no general parser is needed.
fn of_der(der: &[u8]) -> Option<(Kind, DecodingKey)> {
    if let Some(key) = der.strip_prefix(ED25519).filter(|key| key.len() == 32) {
        return Some((Kind::Ed25519, DecodingKey::from_ed_der(key)));
    }
    if let Some(key) = der.strip_prefix(P256).filter(|key| key.len() == 65) {
        return Some((Kind::P256, DecodingKey::from_ec_der(key)));
    }
    if let Some(key) = der.strip_prefix(P384).filter(|key| key.len() == 97) {
        return Some((Kind::P384, DecodingKey::from_ec_der(key)));
    }
    // In keys of 2,048 bits and more, each length takes two bytes.
    let [0x30, 0x82, _, _, rest @ ..] = der else { return None };
    let [3, 0x82, _, _, 0, key @ ..] = rest.strip_prefix(RSA)? else { return None };
    // The modulus, an exponent, and the lengths of both.
    (RSA_BYTES.start()..=&(RSA_BYTES.end() + 32))
        .contains(&&key.len())
        .then(|| (Kind::Rsa, DecodingKey::from_rsa_der(key)))
}
