//! `[auth]` and `[tls]`: who may do what, and with which keys.

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
    /// Tokens that somebody else signs.
    pub jwt: Option<JwtConfig>,
}

impl AuthConfig {
    /// Whether anybody has to show anything.
    pub fn has_credentials(&self) -> bool {
        !self.tokens.is_empty() || self.jwt.is_some()
    }
}

/// `[[auth.tokens]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    /// Whose sessions it reaches.
    pub tenant: String,
    /// The hash of the token; the token itself is nowhere.
    pub sha256: Sha256,
    /// What it may do.
    pub scopes: Scopes,
    /// Who holds it.
    pub subject: Option<String>,
    /// Only these sessions: ids, or beginnings of ids with a `*` behind.
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
    /// The environment variable with the secret, for HS256 and its like.
    pub secret_env: Option<String>,
    /// The file with the secret.
    pub secret_file: Option<PathBuf>,
    /// Who has to have signed: `iss`.
    pub issuer: String,
    /// For whom it has to be: `aud`.
    pub audience: String,
    /// The tenant of everybody whom this issuer knows. Without it, `tenant_claim` says it.
    pub tenant: Option<String>,
    /// The claim that names the tenant.
    #[serde(default = "tenant_claim")]
    pub tenant_claim: String,
    /// The claim that lists the scopes: a list, or words with spaces between.
    #[serde(default = "scopes_claim")]
    pub scopes_claim: String,
    /// The claim that lists the sessions; without the claim in a token it reaches all of its tenant.
    #[serde(default = "sessions_claim")]
    pub sessions_claim: String,
    /// How far the clocks may be apart.
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

/// How a JWT may be signed. One is chosen: a token never chooses for itself.
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
    /// Whether who checks could also sign.
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
