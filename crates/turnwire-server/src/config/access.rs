//! `[auth]` and `[tls]`: credentials and certificates.

use super::value::{HumanDuration, Sha256};
use crate::auth::Scopes;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// `[auth]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// Bearer tokens.
    pub tokens: Vec<TokenConfig>,
    /// JSON Web Tokens, signed by another service.
    pub jwt: Option<JwtConfig>,
}

impl AuthConfig {
    /// Whether clients need credentials.
    pub fn has_credentials(&self) -> bool {
        !self.tokens.is_empty() || self.jwt.is_some()
    }
}

/// `[[auth.tokens]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    /// The tenant whose sessions it may use.
    pub tenant: String,
    /// The hash of the token; the token itself is not stored.
    pub sha256: Sha256,
    /// What it may do.
    pub scopes: Scopes,
    /// Its holder.
    pub subject: Option<String>,
    /// Only these sessions: ids, or prefixes of ids that end with `*`.
    pub sessions: Option<Vec<String>>,
}

/// `[auth.jwt]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JwtConfig {
    /// The one algorithm that is accepted.
    pub algorithm: JwtAlgorithm,
    /// The file with the public key, in PEM.
    pub public_key_file: Option<PathBuf>,
    /// The environment variable with the secret, for HS256, HS384 and HS512.
    pub secret_env: Option<String>,
    /// The file with the secret.
    pub secret_file: Option<PathBuf>,
    /// The required `iss`.
    pub issuer: String,
    /// The required `aud`.
    pub audience: String,
    /// The tenant of all tokens of this issuer. Without it, `tenant_claim` names the tenant.
    pub tenant: Option<String>,
    /// The claim that names the tenant.
    #[serde(default = "tenant_claim")]
    pub tenant_claim: String,
    /// The claim that lists the scopes: a list, or words separated by spaces.
    #[serde(default = "scopes_claim")]
    pub scopes_claim: String,
    /// The claim that lists the sessions; a token without the claim may use all sessions of its tenant.
    #[serde(default = "sessions_claim")]
    pub sessions_claim: String,
    /// The allowed difference between clocks.
    #[serde(default = "leeway")]
    pub leeway: HumanDuration,
}

fn tenant_claim() -> String {
    "tenant".to_owned()
}

fn scopes_claim() -> String {
    "scope".to_owned()
}

fn sessions_claim() -> String {
    "sessions".to_owned()
}

fn leeway() -> HumanDuration {
    HumanDuration(Duration::from_secs(30))
}

/// The signature algorithm of JWTs. The settings choose it; a token never does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the names are those of RFC 7518 and RFC 8037")]
pub enum JwtAlgorithm {
    HS256,
    HS384,
    HS512,
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
}

impl JwtAlgorithm {
    /// Whether the same key signs and verifies.
    pub fn is_symmetric(self) -> bool {
        matches!(self, Self::HS256 | Self::HS384 | Self::HS512)
    }
}

/// `[tls]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The file with the certificates, in PEM, the server's own first.
    pub cert: PathBuf,
    /// The file with the key, in PEM.
    pub key: PathBuf,
}
