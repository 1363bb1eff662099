//! Authentication and authorization: who sends a request, and what they may do.
//!
//! The table of routes checks the scope. A handler takes a [`Caller`] to find out whose sessions it may use:
//!
//! ```
//! use turnwire_server::{ApiResult, Caller};
//!
//! async fn show(caller: Caller) -> ApiResult<String> {
//!     let session = caller.session_key("s1")?;
//!     Ok(format!("{} of {}", session.id, session.tenant))
//! }
//! ```

mod actions;
mod expiry;
mod jwt;
mod scopes;
mod tenant;
mod tickets;

pub(crate) use actions::Action;
pub(crate) use expiry::{expired_error, is_expired, wait_until_expired};
pub use scopes::{Scope, Scopes};
pub use tenant::Tenant;
pub(crate) use tenant::{ConnectionPermit, TOO_MANY_CONNECTIONS};
pub(crate) use tickets::{SharedTicket, Ticket};
pub use turnwire_log::visible_sessions::SessionPattern;

use crate::config::{Config, Limits};
use crate::error::{ApiError, ApiResult};
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use tokio::time::Instant;
use turnwire_log::VisibleSessions;
use turnwire_log::store::{SessionKey, to_hex};

/// The tenant of a server without credentials.
pub const DEFAULT_TENANT: &str = "default";

/// The holder of valid credentials.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The tenant whose sessions it may use.
    pub tenant: Arc<Tenant>,
    /// What it may do.
    pub scopes: Scopes,
    /// The user or program that holds the credentials, if they name one.
    pub subject: Option<Arc<str>>,
    /// The only sessions that it may use. `None`: all sessions of the tenant.
    pub sessions: Option<Box<[SessionPattern]>>,
    /// When the credentials expire; `None`: never. Streams and sockets opened with them end then.
    pub expires_at: Option<Instant>,
    /// Whether the credentials are a ticket. A ticket cannot create further tickets.
    pub is_ticket: bool,
    /// Identifies the holder of the credentials within the tenant: the same for every token of one
    /// subject, different for any two holders. Idempotency keys and producers belong to it.
    pub holder: Arc<str>,
}

impl Identity {
    /// An identity that never expires, reaches every session of its tenant, and names no subject.
    pub fn new(tenant: Arc<Tenant>, scopes: Scopes) -> Self {
        Self {
            tenant,
            scopes,
            subject: None,
            sessions: None,
            expires_at: None,
            is_ticket: false,
            holder: holder_id("anonymous", b""),
        }
    }

    /// The sessions that it may use, as a filter for lists.
    pub fn reach(&self) -> VisibleSessions {
        self.sessions
            .as_ref()
            .map_or(VisibleSessions::ALL, |rules| VisibleSessions::only(rules.iter().cloned()))
    }

    /// Whether it may use a session.
    pub fn reaches(&self, session: &str) -> bool {
        self.sessions.as_ref().is_none_or(|rules| rules.iter().any(|rule| rule.matches(session)))
    }
}

/// The [`Identity::holder_id`] of a kind of credentials and a name that is unique among them. It is a hash,
/// so that stored data has neither subjects nor anything made from tokens in plain text.
fn holder_id(kind: &str, name: &[u8]) -> Arc<str> {
    hex(&sha256(&[kind.as_bytes(), b"\0", name].concat()), 16).into()
}

/// The first `count` bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8], count: usize) -> String {
    to_hex(bytes.get(..count).unwrap_or(bytes))
}

/// Whether a text can be the id of a session: 1 to 128 of `A-Z a-z 0-9 . _ : -`.
pub fn is_valid_id(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(fits)
}

/// Who sent a request. A handler can take it if the route requires a scope.
#[derive(Debug, Clone)]
pub struct Caller(pub Arc<Identity>);

impl Caller {
    /// The tenant's name.
    pub fn tenant(&self) -> &Arc<str> {
        self.0.tenant.name()
    }

    /// The user or program that holds the credentials, if they name one.
    pub fn subject(&self) -> Option<&Arc<str>> {
        self.0.subject.as_ref()
    }

    /// When the credentials expire.
    pub fn expires_at(&self) -> Option<Instant> {
        self.0.expires_at
    }

    /// Whether the caller has a scope.
    pub fn has_scope(&self, scope: Scope) -> bool {
        self.0.scopes.allow(scope)
    }

    /// An error unless the caller has a scope.
    pub fn require_scope(&self, scope: Scope) -> ApiResult<()> {
        if self.has_scope(scope) {
            return Ok(());
        }
        Err(ApiError::forbidden(format!("these credentials lack the scope \"{}\"", scope.name()))
            .hint("use a token with this scope; `turnwire token new --scopes` creates one"))
    }

    /// The key of a session that the caller may use; any other session does not exist for the caller.
    pub fn session_key(&self, id: &str) -> ApiResult<SessionKey> {
        if !is_valid_id(id) {
            return Err(ApiError::bad_request(
                "invalid session id: expected 1 to 128 characters of A-Z a-z 0-9 . _ : -",
            ));
        }
        if !self.0.reaches(id) {
            return Err(turnwire_log::Error::NoSession.into());
        }
        Ok(SessionKey { tenant: Arc::clone(self.tenant()), id: id.into() })
    }
}

/// Why credentials are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// The request has none.
    Missing,
    /// They are unknown or malformed.
    Invalid,
    /// They have expired.
    Expired,
    /// The ticket is used, expired or unknown.
    InvalidTicket,
}

impl From<AuthError> for ApiError {
    fn from(refusal: AuthError) -> Self {
        let (message, hint) = match refusal {
            AuthError::Missing => (
                "this request needs credentials",
                "send `Authorization: Bearer TOKEN` or `x-api-key: TOKEN`; if you cannot set headers, send ?ticket= from POST /v1/tickets",
            ),
            AuthError::Invalid => {
                ("unknown credentials", "create a token with `turnwire token new`")
            }
            AuthError::Expired => ("this token has expired", "get a new one from its issuer"),
            AuthError::InvalidTicket => (
                "this ticket was used already or has expired",
                "a ticket is valid once, for 60 seconds: get a new one from POST /v1/tickets",
            ),
        };
        Self::unauthorized(message).hint(hint)
    }
}

/// All credentials that the server accepts.
pub struct Auth {
    /// The identity of every request, if the settings have no credentials.
    anonymous: Option<Arc<Identity>>,
    tokens: HashMap<[u8; 32], ([u8; 32], Arc<Identity>)>,
    jwt: Option<jwt::Jwt>,
    tickets: tickets::Tickets,
    max_tickets: usize,
    tenants: tenant::Tenants,
}

impl Auth {
    /// Reads the credentials of the settings. `env` reads an environment variable.
    pub fn new(config: &Config, env: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut auth = Self::without_credentials(&config.limits);
        if !config.auth.has_credentials() {
            return Ok(auth);
        }
        auth.anonymous = None;
        for token in &config.auth.tokens {
            let rules =
                |list: &Vec<String>| list.iter().map(|rule| SessionPattern::new(rule)).collect();
            let holder = match &token.subject {
                Some(subject) => holder_id("subject", subject.as_bytes()),
                None => holder_id("token", &token.sha256.0),
            };
            let identity = Identity {
                subject: token.subject.as_deref().map(Into::into),
                sessions: token.sessions.as_ref().map(rules),
                holder,
                ..Identity::new(auth.tenants.get(&token.tenant), token.scopes)
            };
            auth.tokens.insert(token.sha256.0, (token.sha256.0, Arc::new(identity)));
        }
        if let Some(jwt) = &config.auth.jwt {
            auth.jwt = Some(jwt::Jwt::new(jwt.clone(), env)?);
        }
        Ok(auth)
    }

    /// A server without credentials: everybody may do everything.
    pub fn without_credentials(limits: &Limits) -> Self {
        let tenants =
            tenant::Tenants::new(limits.connections_per_tenant, limits.requests_per_second);
        let anonymous = Identity::new(tenants.get(DEFAULT_TENANT), Scopes::all());
        Self {
            anonymous: Some(Arc::new(anonymous)),
            tokens: HashMap::new(),
            jwt: None,
            tickets: tickets::Tickets::default(),
            max_tickets: limits.tickets,
            tenants,
        }
    }

    #[cfg(test)]
    fn anonymous(&self) -> Arc<Identity> {
        self.anonymous.clone().expect("open to all")
    }

    /// A tenant, with its limits on this node.
    pub(crate) fn tenant(&self, name: &str) -> Arc<Tenant> {
        self.tenants.get(name)
    }

    /// Whether everybody may do everything.
    pub fn is_open(&self) -> bool {
        self.anonymous.is_some()
    }

    /// Authenticates a token, also one that a client sends over a WebSocket.
    pub fn authenticate_token(&self, text: &str) -> ApiResult<Caller> {
        Ok(Caller(self.verify_token(text)?))
    }

    fn verify_token(&self, text: &str) -> Result<Arc<Identity>, AuthError> {
        if let Some(anonymous) = &self.anonymous {
            return Ok(Arc::clone(anonymous));
        }
        if let Some(jwt) = self.jwt.as_ref().filter(|_| jwt::Jwt::is_jwt_shaped(text)) {
            return jwt.verify(text, &self.tenants);
        }
        // The lookup uses a hash, so its duration says nothing about a token.
        let hash = sha256(text.as_bytes());
        match self.tokens.get(&hash) {
            Some((known, identity)) if known.ct_eq(&hash).into() => Ok(Arc::clone(identity)),
            _ => Err(AuthError::Invalid),
        }
    }

    /// Authenticates a request by its headers.
    pub(crate) fn authenticate_headers(
        &self,
        headers: &HeaderMap,
    ) -> Result<Arc<Identity>, AuthError> {
        if let Some(anonymous) = &self.anonymous {
            return Ok(Arc::clone(anonymous));
        }
        let text = |name: http::HeaderName| headers.get(name).map(http::HeaderValue::to_str);
        if let Some(value) = text(AUTHORIZATION) {
            let token = value.ok().and_then(parse_bearer).ok_or(AuthError::Invalid)?;
            return self.verify_token(token);
        }
        match text(http::HeaderName::from_static("x-api-key")) {
            Some(key) => self.verify_token(key.map_err(|_| AuthError::Invalid)?.trim()),
            None => Err(AuthError::Missing),
        }
    }

    /// Creates a ticket for a caller.
    pub(crate) fn issue_ticket(&self, caller: &Caller) -> ApiResult<Ticket> {
        let now = Instant::now();
        if is_expired(caller.expires_at(), now) {
            return Err(expired_error());
        }
        self.tickets.issue(&caller.0, self.max_tickets, now).ok_or_else(too_many_tickets)
    }

    /// Uses up a ticket and returns its identity.
    pub(crate) fn redeem_ticket(&self, text: &str) -> Result<Arc<Identity>, AuthError> {
        self.tickets.redeem(text, Instant::now()).ok_or(AuthError::InvalidTicket)
    }
}

#[cold]
pub(crate) fn too_many_tickets() -> ApiError {
    ApiError::too_many("too many unused tickets").retry_after(60)
}

/// The token of `Bearer TOKEN`; `Bearer` may have any case.
fn parse_bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Generates a random token, and its hash for the settings.
pub fn generate_token() -> Option<(String, String)> {
    let token = format!("tw_{}", tickets::random_text()?);
    let hash = hex(&sha256(token.as_bytes()), 32);
    Some((token, hash))
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        crate::guard::RequestContext::from_extensions(&parts.extensions).caller()
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(crate::guard::RequestContext::from_extensions(&parts.extensions).caller().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_is_a_bearer() {
        assert_eq!(parse_bearer("Bearer abc"), Some("abc"));
        assert_eq!(parse_bearer("bearer  abc "), Some("abc"));
        assert_eq!(parse_bearer("Basic abc"), None);
        assert_eq!(parse_bearer("Bearer "), None);
        assert_eq!(parse_bearer("abc"), None);
    }

    #[test]
    fn ids_have_their_letters_and_their_length() {
        assert!(is_valid_id("a.b_c:d-1"));
        assert!(is_valid_id(&"x".repeat(128)));
        for wrong in ["", "a/b", "a b", "ä", "a\n", &"x".repeat(129)] {
            assert!(!is_valid_id(wrong), "{wrong}");
        }
    }
}
