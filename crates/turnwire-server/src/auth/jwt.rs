//! Tokens that somebody else signs. The algorithm, the issuer and the audience are settled here; a
//! token never chooses them.

use super::{Identity, Refusal, Scope, Scopes, SessionRule, is_id, sha256};
use crate::auth::tenant::Tenants;
use crate::config::{JwtAlgorithm, JwtConfig};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use parking_lot::RwLock;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Verified tokens that are remembered, so that a signature is checked once.
const REMEMBERED: usize = 10_000;

/// Until when, in seconds since 1970, and who.
type Verified = (u64, Arc<Identity>);

pub(crate) struct Jwt {
    key: DecodingKey,
    validation: Validation,
    config: JwtConfig,
    verified: RwLock<HashMap<[u8; 32], Verified>>,
}

impl Jwt {
    pub(crate) fn new(
        config: JwtConfig,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let key = read_key(&config, env)?;
        let mut validation = Validation::new(algorithm(config.algorithm));
        validation.set_issuer(&[&config.issuer]);
        validation.set_audience(&[&config.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        validation.leeway = config.leeway.0.as_secs();
        Ok(Self { key, validation, config, verified: RwLock::default() })
    }

    /// Whether a text may be one of these at all.
    pub(crate) fn looks_like(text: &str) -> bool {
        text.bytes().filter(|&byte| byte == b'.').count() == 2
    }

    pub(crate) fn verify(&self, text: &str, tenants: &Tenants) -> Result<Arc<Identity>, Refusal> {
        let hash = sha256(text.as_bytes());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        if let Some((until, identity)) = self.verified.read().get(&hash) {
            return if *until > now { Ok(Arc::clone(identity)) } else { Err(Refusal::Outdated) };
        }
        let claims = decode::<Map<String, Value>>(text, &self.key, &self.validation)
            .map_err(|error| match error.kind() {
                jsonwebtoken::errors::ErrorKind::ExpiredSignature => Refusal::Outdated,
                _ => Refusal::Wrong,
            })?
            .claims;
        let identity = Arc::new(self.identity(&claims, tenants).ok_or(Refusal::Wrong)?);
        let until = claims.get("exp").and_then(Value::as_u64).unwrap_or_default();
        let until = until.saturating_add(self.validation.leeway);
        let mut verified = self.verified.write();
        if verified.len() >= REMEMBERED {
            verified.retain(|_, (until, _)| *until > now);
        }
        if verified.len() >= REMEMBERED {
            verified.clear();
        }
        verified.insert(hash, (until, Arc::clone(&identity)));
        Ok(identity)
    }

    fn identity(&self, claims: &Map<String, Value>, tenants: &Tenants) -> Option<Identity> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let tenant = self.config.tenant.as_deref().or_else(|| text(&self.config.tenant_claim))?;
        let sessions = match claims.get(&self.config.sessions_claim) {
            None => None,
            Some(list) => Some(words(list)?.map(SessionRule::new).collect()),
        };
        // A scope of somebody else's vocabulary gives nothing, and is no reason to refuse the rest.
        let scopes: Scopes = match claims.get(&self.config.scopes_claim) {
            None => Scopes::default(),
            Some(list) => words(list)?.filter_map(|name| name.parse::<Scope>().ok()).collect(),
        };
        is_id(tenant).then(|| Identity {
            tenant: tenants.get(tenant),
            scopes,
            subject: text("sub").map(Into::into),
            sessions,
        })
    }
}

/// A list of texts, or one text of words.
fn words(value: &Value) -> Option<Box<dyn Iterator<Item = &str> + '_>> {
    match value {
        Value::String(text) => Some(Box::new(text.split_ascii_whitespace())),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            Some(Box::new(items.iter().filter_map(Value::as_str)))
        }
        _ => None,
    }
}

fn algorithm(algorithm: JwtAlgorithm) -> Algorithm {
    match algorithm {
        JwtAlgorithm::HS256 => Algorithm::HS256,
        JwtAlgorithm::HS384 => Algorithm::HS384,
        JwtAlgorithm::HS512 => Algorithm::HS512,
        JwtAlgorithm::RS256 => Algorithm::RS256,
        JwtAlgorithm::RS384 => Algorithm::RS384,
        JwtAlgorithm::RS512 => Algorithm::RS512,
        JwtAlgorithm::PS256 => Algorithm::PS256,
        JwtAlgorithm::PS384 => Algorithm::PS384,
        JwtAlgorithm::PS512 => Algorithm::PS512,
        JwtAlgorithm::ES256 => Algorithm::ES256,
        JwtAlgorithm::ES384 => Algorithm::ES384,
        JwtAlgorithm::EdDSA => Algorithm::EdDSA,
    }
}

fn read_key(
    config: &JwtConfig,
    env: impl Fn(&str) -> Option<String>,
) -> Result<DecodingKey, String> {
    let file = |path: &std::path::Path| {
        std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    if let Some(path) = &config.public_key_file {
        let pem = file(path)?;
        return match config.algorithm {
            JwtAlgorithm::ES256 | JwtAlgorithm::ES384 => DecodingKey::from_ec_pem(&pem),
            JwtAlgorithm::EdDSA => DecodingKey::from_ed_pem(&pem),
            _ => DecodingKey::from_rsa_pem(&pem),
        }
        .map_err(|error| {
            let (path, algorithm) = (path.display(), config.algorithm);
            format!("{path} is no public key for {algorithm:?} in PEM: {error}")
        });
    }
    let secret = match (&config.secret_env, &config.secret_file) {
        (Some(name), _) => env(name)
            .ok_or_else(|| {
                format!("the environment variable {name} (auth.jwt.secret_env) is not set")
            })?
            .into_bytes(),
        (None, Some(path)) => file(path)?.trim_ascii().to_vec(),
        (None, None) => return Err("auth.jwt has no key".to_owned()),
    };
    if secret.len() < 32 {
        return Err("the secret of auth.jwt is shorter than 32 bytes and could be guessed; \
                    `openssl rand -base64 48` makes a good one"
            .to_owned());
    }
    Ok(DecodingKey::from_secret(&secret))
}
