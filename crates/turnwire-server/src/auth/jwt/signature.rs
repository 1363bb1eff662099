//! Checks the signatures of tokens with ring, which TLS needs anyway. `jsonwebtoken` calls it.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{self, ErrorKind};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey};
use ring::hmac;
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};

/// Signs nothing, and reads no JWK.
static RING: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: |algorithm, key| Ok(Box::new(SignatureVerifier::new(*algorithm, key)?)),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes `jsonwebtoken` use ring in this process, unless the program has chosen another library.
pub(super) fn install_provider() {
    // `Err`: there is one already.
    let _ = RING.install_default();
}

struct SignatureVerifier {
    algorithm: Algorithm,
    key: Key,
}

enum Key {
    Secret(hmac::Key),
    Public(UnparsedPublicKey<Vec<u8>>),
}

impl SignatureVerifier {
    fn new(algorithm: Algorithm, key: &DecodingKey) -> errors::Result<Self> {
        // Otherwise a public key could be used as the secret of an HMAC.
        if !key.family().algorithms().contains(&algorithm) {
            return Err(ErrorKind::InvalidKeyFormat.into());
        }
        let bytes = key.try_get_as_bytes()?;
        let secret = |algorithm| Key::Secret(hmac::Key::new(algorithm, bytes));
        let public = |algorithm: &'static dyn VerificationAlgorithm| {
            Key::Public(UnparsedPublicKey::new(algorithm, bytes.to_vec()))
        };
        let key = match algorithm {
            Algorithm::HS256 => secret(hmac::HMAC_SHA256),
            Algorithm::HS384 => secret(hmac::HMAC_SHA384),
            Algorithm::HS512 => secret(hmac::HMAC_SHA512),
            Algorithm::RS256 => public(&signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => public(&signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => public(&signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => public(&signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => public(&signature::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => public(&signature::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => public(&signature::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => public(&signature::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => public(&signature::ED25519),
            _ => return Err(ErrorKind::UnsupportedAlgorithm.into()),
        };
        Ok(Self { algorithm, key })
    }
}

impl Verifier<Vec<u8>> for SignatureVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Error> {
        let verified = match &self.key {
            Key::Secret(key) => hmac::verify(key, message, signature),
            Key::Public(key) => key.verify(message, signature),
        };
        verified.map_err(|_| Error::new())
    }
}

impl JwtVerifier for SignatureVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
