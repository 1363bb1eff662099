//! Resume tokens: `EPOCH.SEQ`, or a bare `SEQ`.

use super::session_source::StartPosition;
use turnwire_core::{Head, Seq};
use turnwire_log::Session;

/// What a token means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumePoint {
    /// Resume after this seq.
    After(Head),
    /// The token is invalid, and why.
    Invalid(&'static str),
}

impl From<ResumePoint> for StartPosition {
    fn from(point: ResumePoint) -> Self {
        match point {
            ResumePoint::After(cursor) => Self::After(cursor),
            ResumePoint::Invalid(reason) => Self::Reset(reason),
        }
    }
}

/// Resolves a token. `first` is the earliest event that is kept.
pub fn resolve_token(session: &Session, first: Seq, token: &str) -> ResumePoint {
    let (epoch, seq) = match token.rsplit_once('.') {
        Some((epoch, seq)) => (Some(epoch), seq),
        None => (None, token),
    };
    let Some(cursor) = parse_cursor(seq) else {
        return ResumePoint::Invalid("the token is malformed");
    };
    if epoch.is_some_and(|epoch| epoch != session.epoch()) {
        return ResumePoint::Invalid("the token is of another incarnation of this session");
    }
    if cursor > session.head_state().head {
        return ResumePoint::Invalid("the token is beyond the end of the log");
    }
    if cursor.next() < first {
        return ResumePoint::Invalid("the events after the token were deleted by retention");
    }
    ResumePoint::After(cursor)
}

/// The cursor of a token that this server wrote.
pub(crate) fn token_cursor(token: &str) -> Option<Head> {
    token.rsplit_once('.').and_then(|(_, seq)| parse_cursor(seq))
}

pub(super) fn parse_cursor(text: &str) -> Option<Head> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok().map(Head::new)).flatten()
}
