//! Resume tokens: `EPOCH.SEQ`, or a bare `SEQ`.

use super::session_source::StartPosition;
use turnwire_core::Seq;
use turnwire_log::Session;

/// What a token means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumePoint {
    /// Resume after this seq.
    After(u64),
    /// The token is invalid, and why.
    Invalid(&'static str),
}

impl From<ResumePoint> for StartPosition {
    fn from(place: ResumePoint) -> Self {
        match place {
            ResumePoint::After(seq) => Self::After(seq),
            ResumePoint::Invalid(why) => Self::Reset(why),
        }
    }
}

/// Resolves a token. `first` is the earliest event that is kept.
pub fn resolve_token(session: &Session, first: Seq, token: &str) -> ResumePoint {
    let (epoch, seq) = match token.rsplit_once('.') {
        Some((epoch, seq)) => (Some(epoch), seq),
        None => (None, token),
    };
    let Some(seq) = parse_seq(seq) else { return ResumePoint::Invalid("the token is malformed") };
    if epoch.is_some_and(|epoch| epoch != session.epoch()) {
        return ResumePoint::Invalid("the token is of another incarnation of this session");
    }
    if seq > session.head_state().head {
        return ResumePoint::Invalid("the token is beyond the end of the log");
    }
    if seq.saturating_add(1) < first.get() {
        return ResumePoint::Invalid("the events after the token were deleted by retention");
    }
    ResumePoint::After(seq)
}

fn parse_seq(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}
