//! Tickets: short-lived credentials that a browser puts into a URL when it cannot set a header. Valid once,
//! for a minute, and never longer than the credentials that created it.

use super::{Auth, Identity, Scope, Scopes};
use crate::error::{ApiError, ApiResult};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use turnwire_log::log::now_ms;
use turnwire_log::visible_sessions::SessionPattern;

/// How long a ticket is valid.
const LIFETIME: Duration = Duration::from_mins(1);

/// A new ticket. The server keeps only the hash of its text.
pub(crate) struct Ticket {
    pub(crate) text: String,
    pub(crate) expires_in: Duration,
}

/// Until when it is valid, and whose it is.
type IssuedTicket = (Instant, Arc<Identity>);

#[derive(Default)]
pub(crate) struct Tickets {
    issued: Mutex<HashMap<[u8; 32], IssuedTicket>>,
}

impl Tickets {
    /// Creates a ticket; `None` if there are too many unused ones.
    pub(crate) fn issue(&self, maker: &Identity, max: usize, now: Instant) -> Option<Ticket> {
        let text = random_text()?;
        let mut open = self.issued.lock();
        if open.len() >= max {
            open.retain(|_, (until, _)| *until > now);
        }
        if open.len() >= max {
            return None;
        }
        let until = maker.expires_at.map_or(now + LIFETIME, |at| at.min(now + LIFETIME));
        let identity = Arc::new(Identity { is_ticket: true, ..maker.clone() });
        open.insert(super::sha256(text.as_bytes()), (until, identity));
        Some(Ticket { text, expires_in: until.saturating_duration_since(now) })
    }

    /// Uses up a ticket and returns its identity.
    pub(crate) fn redeem(&self, text: &str, now: Instant) -> Option<Arc<Identity>> {
        let (until, identity) = self.issued.lock().remove(&super::sha256(text.as_bytes()))?;
        (until > now).then_some(identity)
    }
}

/// A ticket as nodes of a cluster share it: what its identity may do. Its text is not in here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SharedTicket {
    tenant: String,
    scopes: Vec<String>,
    subject: Option<String>,
    sessions: Option<Vec<String>>,
    /// How long the credentials of its maker were valid when it was made, and when that was, in milliseconds since 1970.
    expires: Option<(u64, i64)>,
    holder: String,
}

impl SharedTicket {
    /// Creates a ticket for the holder of credentials.
    pub(crate) fn issue(maker: &Identity) -> ApiResult<(Ticket, Self)> {
        let now = Instant::now();
        if super::is_expired(maker.expires_at, now) {
            return Err(super::expired_error());
        }
        let text = random_text()
            .ok_or_else(|| ApiError::internal("the system returned no random numbers"))?;
        let left = maker.expires_at.map(|at| at.saturating_duration_since(now));
        let expires =
            left.map(|left| (u64::try_from(left.as_millis()).unwrap_or(u64::MAX), now_ms()));
        let scopes = Scope::ALL.into_iter().filter(|scope| maker.scopes.allow(*scope));
        let shared = Self {
            tenant: maker.tenant.name().to_string(),
            scopes: scopes.map(|scope| scope.name().to_owned()).collect(),
            subject: maker.subject.as_deref().map(str::to_owned),
            sessions: maker
                .sessions
                .as_ref()
                .map(|rules| rules.iter().map(ToString::to_string).collect()),
            expires,
            holder: maker.holder.to_string(),
        };
        let expires_in = left.map_or(LIFETIME, |left| left.min(LIFETIME));
        Ok((Ticket { text, expires_in }, shared))
    }

    /// The identity of its holder.
    pub(crate) fn into_identity(self, auth: &Auth) -> Option<Arc<Identity>> {
        let scopes: Option<Scopes> =
            self.scopes.iter().map(|name| name.parse::<Scope>().ok()).collect();
        let expires_at = self.expires.map(|(left, made_ms)| {
            // A clock that is behind makes the time shorter, never longer.
            let since = now_ms().abs_diff(made_ms);
            Instant::now() + Duration::from_millis(left.saturating_sub(since))
        });
        let sessions = self.sessions;
        Some(Arc::new(Identity {
            subject: self.subject.map(Into::into),
            sessions: sessions
                .map(|rules| rules.iter().map(|rule| SessionPattern::new(rule)).collect()),
            expires_at,
            is_ticket: true,
            holder: self.holder.into(),
            ..Identity::new(auth.tenant(&self.tenant), scopes?)
        }))
    }
}

/// 256 random bits as text for a URL.
pub(crate) fn random_text() -> Option<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anybody() -> Arc<Identity> {
        Auth::without_credentials(&crate::config::Limits::default()).anonymous()
    }

    #[test]
    fn a_ticket_is_good_once() {
        let tickets = Tickets::default();
        let now = Instant::now();
        let ticket = tickets.issue(&anybody(), 10, now).unwrap();
        assert!(tickets.redeem(&ticket.text, now).is_some());
        assert!(tickets.redeem(&ticket.text, now).is_none());
    }

    #[test]
    fn a_ticket_is_good_for_a_minute() {
        let tickets = Tickets::default();
        let now = Instant::now();
        let ticket = tickets.issue(&anybody(), 10, now).unwrap();
        assert!(tickets.redeem(&ticket.text, now + LIFETIME).is_none());
    }

    #[test]
    fn a_ticket_expires_with_the_credentials_that_made_it() {
        let tickets = Tickets::default();
        let now = Instant::now();
        let expires_at = now + Duration::from_secs(5);
        let maker = Identity { expires_at: Some(expires_at), ..(*anybody()).clone() };
        let ticket = tickets.issue(&maker, 10, now).unwrap();
        assert_eq!(ticket.expires_in, Duration::from_secs(5));
        let identity = tickets.redeem(&ticket.text, now).unwrap();
        assert_eq!((identity.expires_at, identity.is_ticket), (Some(expires_at), true));
        let late = tickets.issue(&maker, 10, now).unwrap();
        assert!(tickets.redeem(&late.text, expires_at).is_none());
        let forever = tickets.issue(&anybody(), 10, now).unwrap();
        assert_eq!(forever.expires_in, LIFETIME);
    }

    #[test]
    fn unused_tickets_are_bounded_and_outdated_ones_make_room() {
        let tickets = Tickets::default();
        let now = Instant::now();
        assert!((0..3).all(|_| tickets.issue(&anybody(), 3, now).is_some()));
        assert!(tickets.issue(&anybody(), 3, now).is_none());
        assert!(tickets.issue(&anybody(), 3, now + LIFETIME).is_some());
    }
}
