//! Resume tokens: `EPOCH.SEQ`, or a bare `SEQ`.

use super::watcher::Start;
use turnwire_core::Seq;
use turnwire_log::Session;

/// Where a token leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Behind this place.
    After(u64),
    /// Nowhere, and why.
    Nowhere(&'static str),
}

impl From<Place> for Start {
    fn from(place: Place) -> Self {
        match place {
            Place::After(seq) => Self::After(seq),
            Place::Nowhere(why) => Self::Reset(why),
        }
    }
}

/// Finds where a token leads. `first` is the earliest event that is kept.
pub fn place(session: &Session, first: Seq, token: &str) -> Place {
    let (epoch, seq) = match token.rsplit_once('.') {
        Some((epoch, seq)) => (Some(epoch), seq),
        None => (None, token),
    };
    let Some(seq) = read_seq(seq) else { return Place::Nowhere("the token cannot be read") };
    if epoch.is_some_and(|epoch| epoch != session.epoch()) {
        return Place::Nowhere("the token is of another incarnation of this session");
    }
    if seq > session.head_state().head {
        return Place::Nowhere("the token is beyond the end of the log");
    }
    if seq.saturating_add(1) < first.get() {
        return Place::Nowhere("the events behind the token are no longer kept");
    }
    Place::After(seq)
}

fn read_seq(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}
