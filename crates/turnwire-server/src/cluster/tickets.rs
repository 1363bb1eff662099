//! Tickets that any node accepts: in a cluster they are in the database, otherwise in memory.

use crate::App;
use crate::auth::{
    AuthError, Caller, Identity, SharedTicket, Ticket, hex, sha256, too_many_tickets,
};
use crate::error::{ApiError, ApiResult};
use std::sync::Arc;

/// Creates a ticket for a caller.
pub(crate) async fn issue(app: &App, caller: &Caller) -> ApiResult<Ticket> {
    let Some(cluster) = &app.cluster else { return app.auth.issue_ticket(caller) };
    let (ticket, shared) = SharedTicket::issue(&caller.0)?;
    let value = serde_json::to_string(&shared).map_err(ApiError::internal)?;
    let max = app.config.limits.tickets;
    if !cluster.store()?.put_once(&key(&ticket.text), &value, ticket.expires_in, max).await? {
        return Err(too_many_tickets());
    }
    Ok(ticket)
}

/// Uses up a ticket and returns its identity.
pub(crate) async fn redeem(app: &App, text: &str) -> Result<Arc<Identity>, AuthError> {
    let Some(cluster) = &app.cluster else { return app.auth.redeem_ticket(text) };
    let taken = match cluster.store() {
        Ok(store) => store.take_once(&key(text)).await,
        Err(error) => Err(error),
    };
    let value = taken.unwrap_or_else(|error| {
        tracing::warn!(%error, "a ticket could not be looked up");
        None
    });
    let shared: Option<SharedTicket> = value.and_then(|value| serde_json::from_str(&value).ok());
    let identity = shared.and_then(|shared| shared.into_identity(&app.auth));
    identity.ok_or(AuthError::InvalidTicket)
}

/// The database has only the hash of a ticket.
fn key(text: &str) -> String {
    format!("ticket/{}", hex(&sha256(text.as_bytes()), 32))
}
