//! Lists the sessions that wait for an answer.

use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiResult;
use std::ops::ControlFlow;
use std::sync::Arc;
use turnwire_log::store::{SessionQuery, SessionStatus};
use turnwire_log::{Session, Snapshot};

/// How many sessions are read at a time.
const PAGE: usize = 100;

/// Visits the waiting sessions of some agents that the caller may see, most recently changed first,
/// until the visitor breaks.
pub(crate) async fn for_each_waiting(
    app: &App,
    caller: &Caller,
    is_wanted_agent: impl Fn(&str) -> bool,
    mut look: impl FnMut(Arc<Session>, Snapshot) -> ControlFlow<()>,
) -> ApiResult<()> {
    let mut page = SessionQuery {
        visible: caller.0.reach(),
        status: Some(SessionStatus::Waiting),
        ..SessionQuery::latest(caller.tenant().clone(), PAGE)
    };
    loop {
        let records = app.log.list_sessions(&page).await?;
        let is_last = records.len() < PAGE;
        for record in records {
            page.after = Some((record.updated_ms, record.number));
            if !is_wanted_agent(&record.agent) {
                continue;
            }
            let Some(session) = app.log.open_session(&record.key).await? else { continue };
            let snapshot = match session.snapshot().await {
                Ok(snapshot) => snapshot,
                // It was deleted a moment ago.
                Err(turnwire_log::Error::NoSession) => continue,
                Err(error) => return Err(error.into()),
            };
            if look(session, snapshot).is_break() {
                return Ok(());
            }
        }
        if is_last {
            return Ok(());
        }
    }
}
