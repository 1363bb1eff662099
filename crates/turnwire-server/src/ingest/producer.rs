//! Identifies the producer of a request, and checks that it may write.
//!
//! A producer is identified by its name and by the holder of its credentials. Another holder with
//! the same name neither takes over open replies nor fences anybody out; another worker with the
//! same credentials does. An administrator takes over from the last holder of the name.

use crate::auth::{Caller, Scope, is_valid_id};
use crate::error::{ApiError, ApiResult};
use http::{HeaderMap, HeaderName, HeaderValue};
use turnwire_log::Transaction;
use turnwire_log::store::Producer;

/// `ID.FENCE`
const HEADER: HeaderName = HeaderName::from_static("turnwire-producer");

/// The highest fence. A clock in nanoseconds stays below it.
const MAX_FENCE: u64 = i64::MAX as u64;

/// An external agent, with the name and the fence that it gave itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Publisher<'a> {
    pub id: &'a str,
    pub fence: u64,
    /// The holder of its credentials.
    pub holder: &'a str,
    /// Whether it may take over from another holder.
    pub is_admin: bool,
}

impl<'a> Publisher<'a> {
    /// Reads the header of a request.
    pub fn read_header(headers: &HeaderMap) -> ApiResult<Option<HeaderValue>> {
        let mut values = headers.get_all(HEADER).iter();
        match (values.next(), values.next()) {
            (value, None) => Ok(value.cloned()),
            (_, Some(_)) => Err(invalid_header()),
        }
    }

    /// Parses the header.
    pub fn from_header(
        header: Option<&'a HeaderValue>,
        caller: &'a Caller,
    ) -> ApiResult<Option<Self>> {
        let Some(header) = header else { return Ok(None) };
        let (id, fence) = header.to_str().ok().and_then(parse_header).ok_or_else(invalid_header)?;
        let is_admin = caller.has_scope(Scope::Admin);
        Ok(Some(Self { id, fence, holder: &caller.0.holder, is_admin }))
    }

    /// The holder for which it writes: its own; for an administrator the last holder of the name.
    fn holder_in<'t>(self, tx: &'t Transaction<'_>) -> &'t str
    where
        'a: 't,
    {
        let last = if self.is_admin { tx.producer_holder(self.id) } else { None };
        last.filter(|holder| !holder.is_empty()).unwrap_or(self.holder)
    }

    /// Whether no other producer has written since.
    pub fn is_current(self, tx: &Transaction<'_>) -> bool {
        tx.producer().is_some_and(|known| {
            known.id == self.id && known.fence == self.fence && known.holder == self.holder_in(tx)
        })
    }

    /// Checks that it may write now: it is not fenced out, and the open replies are its own.
    pub fn check_may_write(self, tx: &Transaction<'_>) -> ApiResult<()> {
        let holder = self.holder_in(tx);
        let fence = tx.producer_fence(self.id, holder);
        if fence > self.fence {
            return Err(self.fenced(fence));
        }
        if tx.replies().is_empty() {
            return Ok(());
        }
        match tx.producer().filter(|_| tx.is_produced()) {
            Some(known) if known.matches(self.id, holder) => Ok(()),
            Some(known) if known.id == self.id => Err(busy(&format!(
                "a producer {} with other credentials is writing a reply",
                known.id
            ))),
            Some(known) => Err(busy(&format!("the producer {} is writing a reply", known.id))),
            None => Err(busy("the session's own agent is writing a reply")),
        }
    }

    /// Records it as the current producer. To be called after the events, because the open replies
    /// are then its own.
    pub fn record(self, tx: &mut Transaction<'_>) {
        if !self.is_current(tx) || tx.is_produced() == tx.replies().is_empty() {
            let holder = self.holder_in(tx).to_owned();
            tx.set_producer(Producer { id: self.id.to_owned(), fence: self.fence, holder });
        }
    }

    #[cold]
    fn fenced(self, known: u64) -> ApiError {
        let Self { id, fence, .. } = self;
        let back = if known < MAX_FENCE {
            format!("take it back with a fence above {known}")
        } else {
            "publish under another name: this fence is the highest".to_owned()
        };
        ApiError::conflict(format!(
            "the producer {id} has published with the fence {known}, which is higher than {fence}; nothing was stored"
        ))
        .kind("fenced")
        .hint(format!("a later run took over: stop this one, or {back}"))
    }
}

/// `ID.FENCE`
fn parse_header(text: &str) -> Option<(&str, u64)> {
    let (id, fence) = text.rsplit_once('.')?;
    let digits = !fence.is_empty() && fence.bytes().all(|byte| byte.is_ascii_digit());
    let fence =
        fence.parse().ok().filter(|fence| digits && is_valid_id(id) && *fence <= MAX_FENCE)?;
    Some((id, fence))
}

#[cold]
fn invalid_header() -> ApiError {
    ApiError::bad_request(
        "invalid `Turnwire-Producer` header: expected `ID.FENCE`, for example `worker-1.7`",
    )
    .hint(
        "the id has 1 to 128 of A-Z a-z 0-9 . _ : -; behind the last dot the fence, a whole number up to 2^63 - 1",
    )
}

#[cold]
pub(crate) fn busy(why: &str) -> ApiError {
    ApiError::conflict(format!("{why}; nothing was stored"))
        .kind("busy")
        .hint("wait until it has ended: GET /v1/sessions/{s}/events?until=idle does that")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fence_is_behind_the_last_dot() {
        assert_eq!(parse_header("a.1"), Some(("a", 1)));
        assert_eq!(parse_header("a.b.c.007"), Some(("a.b.c", 7)));
        assert_eq!(parse_header("a.9223372036854775807"), Some(("a", MAX_FENCE)));
        let long = format!("{}.1", "a".repeat(129));
        for bad in ["", ".", "a", "a.", ".1", "a.-1", "a.+1", "a. 1", "a/b.1", "a.1 ", &long] {
            assert_eq!(parse_header(bad), None, "{bad}");
        }
        for large in ["9223372036854775808", "18446744073709551615", "18446744073709551616"] {
            assert_eq!(parse_header(&format!("a.{large}")), None, "{large}");
        }
    }
}
