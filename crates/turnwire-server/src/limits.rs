//! Shared limits that stay fair between tenants: how much runs at once, and how many bytes are buffered.
//!
//! Every limit "at once" that several tenants share goes through [`FairQueue`], so that a tenant that
//! uses up its share delays only itself. Every request body that is held in memory is counted in a
//! [`ByteBudget`].

mod byte_budget;
mod unread_bytes;

pub(crate) use byte_budget::{ByteBudget, ReservedBytes};
pub(crate) use turnwire_log::FairQueue;
pub(crate) use unread_bytes::UnreadBytes;

use crate::error::ApiError;
use turnwire_log::fair_queue::QueueFull;

impl From<QueueFull> for ApiError {
    fn from(full: QueueFull) -> Self {
        Self::too_many(full.to_string())
            .hint("wait for some of them to finish, then try again")
            .retry_after(1)
    }
}
