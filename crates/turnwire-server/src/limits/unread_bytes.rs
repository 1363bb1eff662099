//! Counts the bytes of one message or event that has not come to its end.

use super::{ByteBudget, ReservedBytes};
use crate::error::ApiResult;
use std::sync::Arc;

/// What is held without being counted: most messages are short, and there at once.
const SHORT: usize = 16 * 1024;

/// The bytes that a client has sent of something that is not complete.
#[derive(Debug)]
pub(crate) struct UnreadBytes {
    budget: ByteBudget,
    tenant: Arc<str>,
    bytes: usize,
    reserved: Option<ReservedBytes>,
}

impl UnreadBytes {
    /// Counts in this budget, for this tenant.
    pub(crate) fn new(budget: ByteBudget, tenant: Arc<str>) -> Self {
        Self { budget, tenant, bytes: 0, reserved: None }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.bytes
    }

    /// More came.
    pub(crate) fn add(&mut self, bytes: usize) -> ApiResult<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        match &mut self.reserved {
            Some(reserved) => reserved.grow(bytes)?,
            None if self.bytes <= SHORT => {}
            None => self.reserved = Some(self.budget.reserve(&self.tenant, self.bytes)?),
        }
        Ok(())
    }

    /// Some were no part of it after all. What is reserved stays until it is complete.
    pub(crate) fn subtract(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// It is complete.
    pub(crate) fn clear(&mut self) {
        self.bytes = 0;
        self.reserved = None;
    }

    /// Counts for another tenant from the next message on.
    pub(crate) fn set_tenant(&mut self, tenant: Arc<str>) {
        self.tenant = tenant;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_counted_until_they_are_complete() {
        let budget = ByteBudget::new(1 << 20, 2 * SHORT);
        let mut unread = UnreadBytes::new(budget.clone(), "t".into());
        unread.add(SHORT).unwrap();
        assert_eq!(budget.used(), 0);
        unread.add(1).unwrap();
        assert_eq!(budget.used(), SHORT + 1);
        assert_eq!(unread.add(SHORT).unwrap_err().status(), 429);
        unread.clear();
        assert_eq!((budget.used(), unread.count()), (0, 0));
    }
}
