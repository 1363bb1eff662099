//! JSON Web Tokens, which another service signs. The settings choose the algorithm, the issuer and the
//! audience; a token never does.

mod signature;

use super::{
    AuthError, Identity, Scope, Scopes, SessionPattern, holder_id, is_expired, is_valid_id, sha256,
};
use crate::auth::tenant::Tenants;
use crate::config::{JwtAlgorithm, JwtConfig};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use parking_lot::RwLock;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// How many verified tokens are cached, so that each signature is checked once.
const MAX_CACHED: usize = 10_000;

/// Until when (time since 1970), and whose it is.
type Verified = (Duration, Arc<Identity>);

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
        signature::install_provider();
        let key = read_key(&config, env)?;
        let mut validation = Validation::new(algorithm(config.algorithm));
        validation.set_issuer(&[&config.issuer]);
        validation.set_audience(&[&config.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        validation.leeway = config.leeway.0.as_secs();
        Ok(Self { key, validation, config, verified: RwLock::default() })
    }

    /// Whether a text has the form of a JWT.
    pub(crate) fn is_jwt_shaped(text: &str) -> bool {
        text.bytes().filter(|&byte| byte == b'.').count() == 2
    }

    pub(crate) fn verify(&self, text: &str, tenants: &Tenants) -> Result<Arc<Identity>, AuthError> {
        let hash = sha256(text.as_bytes());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if let Some((until, identity)) = self.verified.read().get(&hash) {
            let is_over = *until <= now || is_expired(identity.expires_at, Instant::now());
            return if is_over { Err(AuthError::Expired) } else { Ok(Arc::clone(identity)) };
        }
        let token = decode::<Claims>(text, &self.key, &self.validation).map_err(|error| {
            use jsonwebtoken::errors::ErrorKind::ExpiredSignature;
            let is_expired = matches!(error.kind(), ExpiredSignature);
            if is_expired { AuthError::Expired } else { AuthError::Invalid }
        })?;
        // RFC 7515, 4.1.11: a token with a critical extension that we do not understand is invalid. We
        // understand none.
        if token.header.crit.is_some() {
            return Err(AuthError::Invalid);
        }
        let Claims(claims) = token.claims;
        let until = claims.get("exp").and_then(numeric_date).ok_or(AuthError::Invalid)?;
        let until = until.saturating_add(self.config.leeway.0);
        if until <= now {
            return Err(AuthError::Expired);
        }
        let expires_at = Instant::now().checked_add(until.saturating_sub(now));
        let identity = self.identity(&claims, tenants).ok_or(AuthError::Invalid)?;
        let identity = Arc::new(Identity { expires_at, ..identity });
        let mut verified = self.verified.write();
        if verified.len() >= MAX_CACHED {
            verified.retain(|_, (until, _)| *until > now);
        }
        if verified.len() >= MAX_CACHED {
            verified.clear();
        }
        verified.insert(hash, (until, Arc::clone(&identity)));
        Ok(identity)
    }

    fn identity(&self, claims: &Map<String, Value>, tenants: &Tenants) -> Option<Identity> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        // The library would accept a list that contains our issuer.
        if text("iss") != Some(&self.config.issuer) {
            return None;
        }
        let subject = match claims.get("sub") {
            None => None,
            Some(subject) => Some(subject.as_str()?),
        };
        let tenant = self.config.tenant.as_deref().or_else(|| text(&self.config.tenant_claim))?;
        let sessions = match claims.get(&self.config.sessions_claim) {
            None => None,
            Some(list) => Some(string_list(list)?.map(SessionPattern::new).collect()),
        };
        // An unknown scope grants nothing, and does not invalidate the others.
        let scopes: Scopes = match claims.get(&self.config.scopes_claim) {
            None => Scopes::default(),
            Some(list) => {
                string_list(list)?.filter_map(|name| name.parse::<Scope>().ok()).collect()
            }
        };
        is_valid_id(tenant).then(|| Identity {
            subject: subject.map(Into::into),
            sessions,
            // All tokens without a subject have one holder: a new token of the same client could not be
            // distinguished from another client's.
            holder: holder_id("jwt", subject.unwrap_or_default().as_bytes()),
            ..Identity::new(tenants.get(tenant), scopes)
        })
    }
}

/// The claims of a token. A duplicate name is refused: two readers could each use another one.
struct Claims(Map<String, Value>);

impl<'de> Deserialize<'de> for Claims {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Unique;
        impl<'de> Visitor<'de> for Unique {
            type Value = Claims;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object without duplicate names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Claims, A::Error> {
                let mut claims = Map::new();
                while let Some((name, value)) = entries.next_entry::<String, Value>()? {
                    if claims.insert(name, value).is_some() {
                        return Err(A::Error::custom("duplicate claim"));
                    }
                }
                Ok(Claims(claims))
            }
        }
        from.deserialize_map(Unique)
    }
}

/// A `NumericDate`: seconds since 1970, possibly with a fraction.
fn numeric_date(value: &Value) -> Option<Duration> {
    match value.as_u64() {
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => Duration::try_from_secs_f64(value.as_f64()?).ok(),
    }
}

/// A list of strings, or one string of words.
fn string_list(value: &Value) -> Option<Box<dyn Iterator<Item = &str> + '_>> {
    if let Value::String(text) = value {
        return Some(Box::new(text.split_ascii_whitespace()));
    }
    let items = value.as_array().filter(|items| items.iter().all(Value::is_string))?;
    Some(Box::new(items.iter().filter_map(Value::as_str)))
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
        // The lengths are those of the key itself, without its PEM and its algorithm.
        let (key, lengths, required) = match config.algorithm {
            JwtAlgorithm::ES256 => {
                (DecodingKey::from_ec_pem(&pem), 65..=65, "a P-256 key, as an uncompressed point")
            }
            JwtAlgorithm::ES384 => {
                (DecodingKey::from_ec_pem(&pem), 97..=97, "a P-384 key, as an uncompressed point")
            }
            JwtAlgorithm::EdDSA => (DecodingKey::from_ed_pem(&pem), 32..=32, "an Ed25519 key"),
            JwtAlgorithm::RS256
            | JwtAlgorithm::RS384
            | JwtAlgorithm::RS512
            | JwtAlgorithm::PS256
            | JwtAlgorithm::PS384
            | JwtAlgorithm::PS512
            | JwtAlgorithm::HS256
            | JwtAlgorithm::HS384
            | JwtAlgorithm::HS512 => {
                (DecodingKey::from_rsa_pem(&pem), 256..=1100, "an RSA key of 2048 to 8192 bits")
            }
        };
        let invalid = |why: &dyn fmt::Display| {
            let (path, algorithm) = (path.display(), config.algorithm);
            format!("{path} is not a public key for {algorithm:?} in PEM: {why}")
        };
        let key = key.map_err(|error| invalid(&error))?;
        return match key.try_get_as_bytes() {
            Ok(bytes) if lengths.contains(&bytes.len()) => Ok(key),
            _ => Err(invalid(&format!("the algorithm requires {required}"))),
        };
    }
    let secret = match (&config.secret_env, &config.secret_file) {
        (Some(name), _) => env(name)
            .ok_or_else(|| {
                format!("the environment variable {name} (`auth.jwt.secret_env`) is not set")
            })?
            .into_bytes(),
        (None, Some(path)) => file(path)?.trim_ascii().to_vec(),
        (None, None) => return Err("auth.jwt has no key".to_owned()),
    };
    if secret.len() < 32 {
        return Err("the secret of auth.jwt is shorter than 32 bytes and could be guessed; \
                    create one with `openssl rand -base64 48`"
            .to_owned());
    }
    Ok(DecodingKey::from_secret(&secret))
}
