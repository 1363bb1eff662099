//! Who waits for more events of a session.

use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;

/// The ends of those sessions for which somebody waits.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<HashMap<i64, Arc<watch::Sender<u64>>>>);

/// Somebody who waits.
pub(super) struct Waiter<'a> {
    waits: &'a Waits,
    session: i64,
    end: watch::Receiver<u64>,
}

impl Waits {
    pub(super) fn enter(&self, session: i64) -> Waiter<'_> {
        let mut sessions = self.0.lock();
        let end = sessions.entry(session).or_default().subscribe();
        Waiter { waits: self, session, end }
    }

    /// Says where logs end now.
    pub(super) fn tell(&self, ends: &[(i64, u64)]) {
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

    /// Says that a session is gone.
    pub(super) fn close(&self, session: i64) {
        self.0.lock().remove(&session);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Waiter<'_> {
    /// Waits until the log goes on behind a place.
    pub(super) async fn until_behind(&mut self, place: u64) -> Result<u64> {
        let end = self.end.wait_for(|last| *last > place).await;
        end.map(|last| *last).map_err(|_| Error::NoSession)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut sessions = self.waits.0.lock();
        // The entry may be another one by now, of a session that was closed in between.
        if let Some(end) = sessions.get(&self.session)
            && end.receiver_count() <= 1
        {
            sessions.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Waits;

    #[tokio::test]
    async fn nothing_is_left_of_those_who_waited() {
        let waits = Waits::default();
        let (mut one, two) = (waits.enter(1), waits.enter(1));
        drop(two);
        waits.tell(&[(1, 5), (2, 7)]);
        assert_eq!(one.until_behind(4).await.unwrap(), 5);
        assert_eq!(waits.len(), 1);
        drop(one);
        assert_eq!(waits.len(), 0);
    }

    #[tokio::test]
    async fn a_closed_session_ends_the_wait() {
        let waits = Waits::default();
        let mut one = waits.enter(1);
        waits.close(1);
        assert!(one.until_behind(0).await.is_err());
    }
}
