//! Parsing and lookups that several handlers share.

use crate::app::App;
use crate::auth::Caller;
use crate::error::{ApiError, ApiResult};
use std::sync::Arc;
use turnwire_core::Head;
use turnwire_log::Session;

/// Parses a position in a session's log: a seq, or a resume token. Beyond the end is the end.
pub fn parse_position(session: &Session, head: Head, text: &str) -> ApiResult<Head> {
    let seq = match text.split_once('.') {
        Some((epoch, seq)) if epoch == session.epoch() => seq,
        Some(_) => {
            return Err(ApiError::gone(
                "the token belongs to another session, or to an earlier incarnation of this one",
            )
            .kind("foreign_token")
            .hint(format!("this session's last_event_id is {}", session.resume_token(head))));
        }
        None => text,
    };
    let seq = seq.parse::<u64>().map_err(|_| {
        ApiError::bad_request("invalid `at`: expected a seq or a resume token EPOCH.SEQ")
    })?;
    Ok(Head::new(seq).min(head))
}

/// A session that the caller may see.
pub async fn find_session(app: &App, caller: &Caller, id: &str) -> ApiResult<Arc<Session>> {
    let session = app.log.open_session(&caller.session_key(id)?).await?;
    session.ok_or_else(|| turnwire_log::Error::NoSession.into())
}

/// The same, for a change: it need not show what is on its way into the log.
pub async fn find_session_to_write(
    app: &App,
    caller: &Caller,
    id: &str,
) -> ApiResult<Arc<Session>> {
    let session = app.log.open_session_to_write(&caller.session_key(id)?).await?;
    session.ok_or_else(|| turnwire_log::Error::NoSession.into())
}
