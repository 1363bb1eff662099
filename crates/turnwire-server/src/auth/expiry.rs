//! Expiry of credentials. Streams, piped replies and sockets end when their credentials expire.

use crate::error::ApiError;
use tokio::time::{Instant, sleep_until};

/// Waits until credentials expire; forever if they do not.
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

/// The error for a client whose credentials expired while it was served.
pub(crate) fn expired_error() -> ApiError {
    ApiError::unauthorized("the credentials have expired")
        .kind("credentials_expired")
        .hint("connect again with new credentials; a stream continues after the last event id")
}
