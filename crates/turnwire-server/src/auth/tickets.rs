//! Tickets: short-lived credentials that a browser puts into a URL when it cannot set a header. Valid once,
//! for a minute, and never longer than the credentials that created it.

use super::Identity;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

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
        crate::auth::Auth::without_credentials(&crate::config::Limits::default()).anonymous()
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
