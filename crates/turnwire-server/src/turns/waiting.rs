//! The sessions in which something waits for somebody.

use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiResult;
use std::ops::ControlFlow;
use std::sync::Arc;
use turnwire_log::store::{SessionQuery, Status};
use turnwire_log::{Session, Snapshot};

/// How many sessions are read at a time.
const PAGE: usize = 100;

/// Looks at each session that waits, among those that the caller reaches, until somebody has seen
/// enough; those that changed last come first.
pub(crate) async fn each_waiting(
    app: &App,
    caller: &Caller,
    mut look: impl FnMut(Arc<Session>, Snapshot) -> ControlFlow<()>,
) -> ApiResult<()> {
    let mut page = SessionQuery {
        tenant: caller.tenant().clone(),
        search: None,
        status: Some(Status::Waiting),
        after: None,
        limit: PAGE,
    };
    loop {
        let records = app.log.list(&page).await?;
        let is_last = records.len() < PAGE;
        for record in records {
            page.after = Some((record.updated_ms, record.no));
            if !caller.0.reaches(&record.key.id) {
                continue;
            }
            let Some(session) = app.log.open(&record.key).await? else { continue };
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
