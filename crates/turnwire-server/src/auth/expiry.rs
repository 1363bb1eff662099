//! When credentials expire: streams, piped replies and sockets wait for it beside their work.

use crate::error::ApiError;
use tokio::time::{Instant, sleep_until};

/// Waits until credentials expire; for ever where they do not.
pub(crate) async fn wait_until_expired(expires_at: Option<Instant>) {
    match expires_at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Whether credentials have expired.
pub(crate) fn is_expired(expires_at: Option<Instant>, now: Instant) -> bool {
    expires_at.is_some_and(|at| at <= now)
}

/// What a client is told whose credentials expired while it was served.
pub(crate) fn expired_error() -> ApiError {
    ApiError::unauthorized("the credentials have expired")
        .kind("credentials_expired")
        .hint("come back with new credentials; a stream goes on behind the last event id")
}
