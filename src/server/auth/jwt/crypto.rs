//! Verifies signatures with ring. The cryptography that `jsonwebtoken` ships with must not be linked into this project.

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind,
    crypto::{CryptoProvider, JwtVerifier, KeyUtils},
    errors::ErrorKind,
    signature::{Error, Verifier},
};
use ring::signature::{
    self as by_ring, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

/// Only verifies. Signing and converting keys are not needed.
static RING: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
    verifier_factory: |algorithm, key| Ok(Box::new(ByRing { algorithm: *algorithm, key: key.clone() })),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes `jsonwebtoken` verify with ring, unless a program that embeds the server has chosen otherwise.
pub(super) fn install() {
    let _ = RING.install_default();
}

struct ByRing {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for ByRing {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for ByRing {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Error> {
        // A key of another kind is never tried. A point of one curve could be a valid number elsewhere.
        if self.key.family() != self.algorithm.family() {
            return Err(Error::new());
        }
        let of_bytes = |algorithm: &'static dyn VerificationAlgorithm| match self.key.kind() {
            DecodingKeyKind::SecretOrDer(key) => UnparsedPublicKey::new(algorithm, key).verify(message, signature),
            DecodingKeyKind::RsaModulusExponent { .. } => Err(ring::error::Unspecified),
        };
        let of_rsa = |algorithm: &'static RsaParameters| match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(algorithm, message, signature)
            }
            DecodingKeyKind::SecretOrDer(key) => UnparsedPublicKey::new(algorithm, key).verify(message, signature),
        };
        let verified = match self.algorithm {
            Algorithm::RS256 => of_rsa(&by_ring::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => of_rsa(&by_ring::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => of_rsa(&by_ring::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => of_rsa(&by_ring::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => of_rsa(&by_ring::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => of_rsa(&by_ring::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => of_bytes(&by_ring::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => of_bytes(&by_ring::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => of_bytes(&by_ring::ED25519),
            // Algorithms with a shared secret, and any that the library may add.
            _ => Err(ring::error::Unspecified),
        };
        verified.map_err(|_| Error::new())
    }
}
