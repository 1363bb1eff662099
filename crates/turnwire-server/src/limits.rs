//! Shared limits that stay fair between tenants: how much runs at once, and how many bytes are buffered.
//!
//! Every limit "at once" that several tenants share goes through [`FairQueue`], so that a tenant that
//! uses up its share delays only itself. Every request body that is held in memory is counted in a
//! [`ByteBudget`].

mod byte_budget;
mod fair_queue;
mod unread_bytes;

pub(crate) use byte_budget::{ByteBudget, ReservedBytes};
pub(crate) use fair_queue::FairQueue;
pub(crate) use unread_bytes::UnreadBytes;
