//! Who publishes, and whether they may.

use crate::auth::is_id;
use crate::error::{ApiError, ApiResult};
use http::{HeaderMap, HeaderName, HeaderValue};
use turnwire_log::Tx;
use turnwire_log::store::Producer;

/// `ID.FENCE`
const HEADER: HeaderName = HeaderName::from_static("turnwire-producer");

/// An agent elsewhere, by the name and the fence that it gave itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Publisher<'a> {
    pub id: &'a str,
    pub fence: u64,
}

impl<'a> Publisher<'a> {
    /// What a request says about who it is from.
    pub fn header(headers: &HeaderMap) -> ApiResult<Option<HeaderValue>> {
        let mut values = headers.get_all(HEADER).iter();
        match (values.next(), values.next()) {
            (value, None) => Ok(value.cloned()),
            (_, Some(_)) => Err(no_producer()),
        }
    }

    /// Who that is.
    pub fn of(header: Option<&'a HeaderValue>) -> ApiResult<Option<Self>> {
        let Some(header) = header else { return Ok(None) };
        header.to_str().ok().and_then(Self::parse).map(Some).ok_or_else(no_producer)
    }

    /// The same, as the log has it.
    pub fn to_producer(self) -> Producer {
        Producer { id: self.id.to_owned(), fence: self.fence }
    }

    fn parse(text: &'a str) -> Option<Self> {
        let (id, fence) = text.rsplit_once('.')?;
        let digits = !fence.is_empty() && fence.bytes().all(|byte| byte.is_ascii_digit());
        let fence = fence.parse().ok().filter(|_| digits && is_id(id))?;
        Some(Self { id, fence })
    }

    /// Whether nobody has taken over since they last wrote.
    pub fn is_last(self, tx: &Tx<'_>) -> bool {
        tx.producer().is_some_and(|known| known.id == self.id && known.fence == self.fence)
    }

    /// Whether they may write now: nobody has taken over from them, and what is open is theirs.
    pub fn check(self, tx: &Tx<'_>) -> ApiResult<()> {
        let fence = tx.fence_of(self.id);
        if fence > self.fence {
            return Err(self.fenced(fence));
        }
        if tx.replies().is_empty() {
            return Ok(());
        }
        match tx.producer().filter(|_| tx.is_produced()) {
            Some(known) if known.id == self.id => Ok(()),
            Some(known) => Err(busy(&format!("the producer {} is writing a reply", known.id))),
            None => Err(busy("the session's own agent is writing a reply")),
        }
    }

    /// Notes who writes from now on. To be called behind the events, since what is open then is
    /// theirs.
    pub fn note(self, tx: &mut Tx<'_>) {
        if !self.is_last(tx) || tx.is_produced() == tx.replies().is_empty() {
            tx.set_producer(self.to_producer());
        }
    }

    #[cold]
    fn fenced(self, known: u64) -> ApiError {
        let Self { id, fence } = self;
        ApiError::conflict(format!(
            "the producer {id} has published with the fence {known}, and {fence} is lower; nothing was stored"
        ))
        .kind("fenced")
        .hint(format!("a later run took over: stop this one, or take it back with a fence above {known}"))
    }
}

#[cold]
fn no_producer() -> ApiError {
    ApiError::bad_request("this is no Turnwire-Producer").hint(
        "it is ID.FENCE: 1 to 128 of A-Z a-z 0-9 . _ : - and, behind the last dot, a whole number, as in worker-1.7",
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
        let parse = Publisher::parse;
        assert_eq!(parse("a.1"), Some(Publisher { id: "a", fence: 1 }));
        assert_eq!(parse("a.b.c.007"), Some(Publisher { id: "a.b.c", fence: 7 }));
        let most = "a.18446744073709551615";
        assert_eq!(parse(most), Some(Publisher { id: "a", fence: u64::MAX }));
        let long = format!("{}.1", "a".repeat(129));
        for bad in ["", ".", "a", "a.", ".1", "a.-1", "a.+1", "a. 1", "a/b.1", "a.1 ", &long] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(parse("a.18446744073709551616"), None);
    }
}
