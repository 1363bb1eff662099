//! Wakes those who wait for more events of a session.

use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;
use turnwire_core::Head;

/// The heads of sessions that someone waits for.
#[derive(Debug, Default)]
pub(super) struct EndWatchers(Mutex<HashMap<i64, Arc<watch::Sender<Head>>>>);

/// A task that waits.
pub(super) struct EndWaiter<'a> {
    watchers: &'a EndWatchers,
    session: i64,
    end: watch::Receiver<Head>,
}

impl EndWatchers {
    pub(super) fn add_waiter(&self, session: i64) -> EndWaiter<'_> {
        let mut sessions = self.0.lock();
        let end = sessions.entry(session).or_default().subscribe();
        EndWaiter { watchers: self, session, end }
    }

    /// Announces new heads.
    pub(super) fn notify(&self, ends: &[(i64, Head)]) {
        let sessions = self.0.lock();
        if sessions.is_empty() {
            return;
        }
        for (session, last) in ends {
            if let Some(end) = sessions.get(session) {
                end.send_replace(*last);
            }
        }
    }

    /// Announces that a session was deleted.
    pub(super) fn close_session(&self, session: i64) {
        self.0.lock().remove(&session);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl EndWaiter<'_> {
    /// Waits until the head is beyond a seq.
    pub(super) async fn wait_beyond(&mut self, seen: Head) -> Result<Head> {
        let end = self.end.wait_for(|last| *last > seen).await;
        end.map(|last| *last).map_err(|_| Error::NoSession)
    }
}

impl Drop for EndWaiter<'_> {
    fn drop(&mut self) {
        let mut sessions = self.watchers.0.lock();
        // The entry may belong to a later waiter, if the session was closed in between.
        if let Some(end) = sessions.get(&self.session)
            && end.receiver_count() <= 1
        {
            sessions.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::EndWatchers;
    use turnwire_core::Head;

    #[tokio::test]
    async fn nothing_is_left_of_those_who_waited() {
        let watchers = EndWatchers::default();
        let (mut one, two) = (watchers.add_waiter(1), watchers.add_waiter(1));
        drop(two);
        watchers.notify(&[(1, Head::new(5)), (2, Head::new(7))]);
        assert_eq!(one.wait_beyond(Head::new(4)).await.unwrap(), Head::new(5));
        assert_eq!(watchers.len(), 1);
        drop(one);
        assert_eq!(watchers.len(), 0);
    }

    #[tokio::test]
    async fn a_closed_session_ends_the_wait() {
        let watchers = EndWatchers::default();
        let mut one = watchers.add_waiter(1);
        watchers.close_session(1);
        assert!(one.wait_beyond(Head::EMPTY).await.is_err());
    }
}
