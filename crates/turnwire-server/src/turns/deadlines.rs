//! Expires what waits too long: approvals count as denied, a reply whose client sends no tool
//! result ends, and the replies of silent producers end.
//!
//! Deadlines are computed from the log: the time of the event that asked. So a restart changes
//! nothing, nor does another node that takes over: nodes agree on one clock. A clock that goes
//! backwards makes calls wait longer, never shorter.

use super::client_events::{denial, timeout_results};
use super::end_replies::{end_all_replies, end_own_replies};
use super::journal::persist;
use super::{EXTERNAL, Turns, own_reply};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use turnwire_agent::AgentError;
use turnwire_core::{FinishedReason, Head, ToolCall, ToolCallState};
use turnwire_log::log::now_ms;
use turnwire_log::store::{SessionKey, SessionNumber, SessionStatus};
use turnwire_log::{Error, OpenReply, Session, Snapshot};

/// The clock may be changed during a sleep, so no sleep is longer.
const MAX_SLEEP: Duration = Duration::from_secs(30);

/// When pending calls of which session expire.
#[derive(Default)]
pub(super) struct Deadlines {
    due: Mutex<BTreeMap<(Timestamp, SessionNumber), SessionKey>>,
    changed: Notify,
}

impl Deadlines {
    fn insert(&self, at: Timestamp, no: SessionNumber, key: SessionKey) {
        self.due.lock().insert((at, no), key);
        self.changed.notify_one();
    }

    /// Removes the sessions that are due, and returns how long it is until the next one.
    fn take_due(&self, now: Timestamp) -> (Vec<SessionKey>, Duration) {
        let mut due = self.due.lock();
        let later = due.split_off(&(now, SessionNumber(i64::MAX)));
        let taken = std::mem::replace(&mut *due, later).into_values().collect();
        let next = due.keys().next().map(|(at, _)| at.duration_since(now));
        (taken, next.and_then(|next| next.try_into().ok()).unwrap_or(MAX_SLEEP).min(MAX_SLEEP))
    }
}

/// Parses the time of an event. Some producers omit the time zone: they mean UTC.
fn parse_time(text: &str) -> Option<Timestamp> {
    text.parse::<Timestamp>().ok().or_else(|| {
        let civil = text.parse::<DateTime>().ok()?;
        TimeZone::UTC.to_timestamp(civil).ok()
    })
}

/// How long calls may wait.
#[derive(Debug, Clone, Copy)]
pub struct WaitLimits {
    /// For an approval.
    pub approval: Duration,
    /// For the result of a call that the client executes.
    pub result: Duration,
}

/// The pending calls of a reply, with their deadlines.
fn waiting_calls(
    reply: &OpenReply,
    limits: WaitLimits,
) -> impl Iterator<Item = (&ToolCall, Timestamp)> {
    reply.waiting_calls().filter_map(move |(id, since)| {
        let call = reply.msg().blocks::<ToolCall>().find(|call| call.id == id)?;
        let limit = match call.state {
            ToolCallState::Asking => limits.approval,
            ToolCallState::Submitted => limits.result,
            ToolCallState::Pending
            | ToolCallState::Allowed
            | ToolCallState::Finished
            | ToolCallState::Other(_) => return None,
        };
        Some((call, parse_time(since)?.checked_add(limit).ok()?))
    })
}

/// The time of all nodes.
fn now() -> Timestamp {
    Timestamp::from_millisecond(now_ms()).unwrap_or(Timestamp::MAX)
}

/// The calls in this state whose deadline has passed.
fn late_calls<'r>(
    reply: &'r OpenReply,
    limits: WaitLimits,
    state: &ToolCallState,
) -> Vec<&'r ToolCall> {
    let now = now();
    let calls = waiting_calls(reply, limits).filter(|(_, until)| *until <= now);
    calls.map(|(call, _)| call).filter(|call| call.state == *state).collect()
}

/// When the first pending call of a reply expires.
pub fn first_deadline(reply: &OpenReply, limits: Option<WaitLimits>) -> Option<String> {
    let first = waiting_calls(reply, limits?).map(|(_, at)| at).min()?;
    Some(format!("{first:.3}"))
}

impl Turns {
    /// Remembers when the pending calls of a session have to be checked.
    pub(super) fn note_deadline(&self, session: &Session, snapshot: &Snapshot) {
        let Some(limits) = self.wait_limits(session.agent()) else { return };
        let open = snapshot.open.iter().filter(|_| !snapshot.state.is_produced);
        let first = open.flat_map(|reply| waiting_calls(reply, limits)).map(|(_, at)| at).min();
        if let Some(at) = first {
            self.deadlines.insert(at, session.number(), session.key().clone());
        }
    }

    /// Starts the tasks that watch deadlines, until the server stops.
    pub(super) fn start_deadline_tasks(self: &Arc<Self>) {
        let over = self.shutdown.clone();
        let (questions, producers) = (self.clone(), self.clone());
        tokio::spawn(over.clone().run_until_cancelled_owned(async move {
            questions.watch_pending_calls().await;
        }));
        tokio::spawn(over.run_until_cancelled_owned(async move {
            producers.watch_producers().await;
        }));
    }

    async fn watch_pending_calls(self: Arc<Self>) {
        loop {
            let (due, pause) = self.deadlines.take_due(now());
            for key in due {
                let error = match self.expire_calls(&key).await {
                    // The node that owns the session does it.
                    Ok(()) | Err(Error::Owned(_)) => continue,
                    Err(error) => error,
                };
                tracing::warn!(session = &*key.id, %error, "an expired call could not be closed; will retry");
                let later = now().checked_add(Duration::from_secs(5));
                if let (Ok(later), Ok(Some(session))) = (later, self.log.open_session(&key).await) {
                    self.deadlines.insert(later, session.number(), key);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.deadlines.changed.notified() => {}
            }
        }
    }

    /// Denies calls that nobody approved in time, and ends a reply whose client sent no result in
    /// time.
    async fn expire_calls(self: &Arc<Self>, key: &SessionKey) -> turnwire_log::Result<()> {
        let Some(session) = self.log.open_session(key).await? else { return Ok(()) };
        let Some(limits) = self.wait_limits(session.agent()) else { return Ok(()) };
        session.acquire_ownership().await?;
        self.end_abandoned(&session, limits).await?;
        self.deny_calls(&session, "timeout", |reply| {
            late_calls(reply, limits, &ToolCallState::Asking)
        })
        .await
    }

    /// Ends the reply of a session if one of its calls waited too long for the client. The model is
    /// not called again: no client is there, and it could call the same tool without end.
    async fn end_abandoned(
        self: &Arc<Self>,
        session: &Arc<Session>,
        limits: WaitLimits,
    ) -> turnwire_log::Result<()> {
        let interrupted = FinishedReason::Interrupted;
        let ended = persist(session, &self.shutdown, &[], |tx| {
            if tx.is_produced() || session.agent() == EXTERNAL {
                return Ok(None);
            }
            let replies = tx.replies().iter();
            let events: Vec<_> = replies
                .filter_map(|reply| {
                    let late = late_calls(reply, limits, &ToolCallState::Submitted);
                    timeout_results(reply, &late, limits.result)
                })
                .collect();
            if events.is_empty() {
                return Ok(None);
            }
            for mut event in events {
                let pushed = tx.push(&mut event, None);
                pushed
                    .map_err(|why| AgentError::Failed(format!("a call cannot be closed: {why}")))?;
            }
            let own = own_reply(session, tx).map(|own| own.msg().id().to_owned());
            end_own_replies(tx, session, &interrupted, None)?;
            self.wake(session);
            Ok(own)
        });
        match ended.await {
            Ok((Some(reply), _)) => {
                tracing::info!(
                    session = session.id(),
                    reply,
                    "a reply ended because the client sent no tool result in time"
                );
                self.count_stopped(session, 1);
                self.cancel_reply(session, Some(&reply));
                Ok(())
            }
            Ok((None, _)) | Err(AgentError::Stopped) => Ok(()),
            // It was deleted a moment ago.
            Err(_) if session.head_state().is_deleted => Ok(()),
            Err(error) => Err(Error::Store(error.to_string())),
        }
    }

    /// Denies all calls that wait for approval, because the client said that nobody can be asked.
    pub(super) async fn deny_pending_approvals(
        self: &Arc<Self>,
        session: &Arc<Session>,
    ) -> turnwire_log::Result<()> {
        self.deny_calls(session, "unattended", |reply| {
            let calls = reply.msg().blocks::<ToolCall>();
            calls.filter(|call| call.state == ToolCallState::Asking).collect()
        })
        .await
    }

    async fn deny_calls(
        self: &Arc<Self>,
        session: &Arc<Session>,
        reason: &str,
        of: impl Fn(&OpenReply) -> Vec<&ToolCall>,
    ) -> turnwire_log::Result<()> {
        let denied = session
            .transact(&[], |tx| {
                if tx.is_produced() {
                    return Ok(());
                }
                let denied: Vec<_> = tx
                    .replies()
                    .iter()
                    .filter_map(|reply| denial(reply, of(reply).into_iter(), reason))
                    .collect();
                for mut event in denied {
                    tx.push(&mut event, None).map_err(|why| Error::Refused { at: 0, why })?;
                    self.store_answer_for_agent(session, tx, event);
                }
                // Whether the reply continues or still waits: a worker has to look.
                self.wake(session);
                Ok::<_, Error>(())
            })
            .await;
        match denied {
            Err(Error::NoSession) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Ends the replies of producers that are silent for too long. A producer whose reply waits for
    /// an answer is not silent.
    async fn watch_producers(self: Arc<Self>) {
        let silence = self.config.producers.silence.0;
        let pause = (silence / 8).clamp(Duration::from_millis(20), MAX_SLEEP);
        // The head of each producer's log, and since when it stands there.
        let mut last_heads: HashMap<SessionNumber, (Head, Instant)> = HashMap::new();
        loop {
            tokio::time::sleep(pause).await;
            let open = match self.log.store().list_open_sessions().await {
                Ok(open) => open,
                Err(error) => {
                    tracing::warn!(%error, "listing open sessions failed; will retry");
                    continue;
                }
            };
            let before = std::mem::take(&mut last_heads);
            for record in open {
                let is_elsewhere = record.state.is_produced || record.agent == EXTERNAL;
                if !is_elsewhere || record.state.status != SessionStatus::Running {
                    continue;
                }
                let same = before.get(&record.number).filter(|(last, _)| *last == record.head);
                let since = same.map_or_else(Instant::now, |(_, since)| *since);
                if since.elapsed() < silence {
                    last_heads.insert(record.number, (record.head, since));
                } else {
                    self.close_silent_producer(&record.key, record.head).await;
                }
            }
        }
    }

    async fn close_silent_producer(self: &Arc<Self>, key: &SessionKey, last: Head) {
        let Ok(Some(session)) = self.log.open_session(key).await else { return };
        match session.acquire_ownership().await {
            Ok(()) => {}
            // The node that owns the session does it.
            Err(Error::Owned(_)) => return,
            Err(error) => {
                tracing::warn!(session = session.id(), %error, "the reply of a silent producer could not be ended");
                return;
            }
        }
        let interrupted = FinishedReason::Interrupted;
        let closed = persist(&session, &self.shutdown, &[], |tx| {
            let is_elsewhere = tx.is_produced() || session.agent() == EXTERNAL;
            if tx.head() != last || !is_elsewhere {
                return Ok(false);
            }
            end_all_replies(tx, &session, &interrupted, None)
        });
        match closed.await {
            Ok((true, _)) => {
                tracing::warn!(session = session.id(), "ended the reply of a silent producer");
            }
            Ok((false, _)) => {}
            Err(error) => {
                tracing::warn!(session = session.id(), error = %error, "the reply of a silent producer could not be ended");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_in_order_and_once() {
        let deadlines = Deadlines::default();
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        let key = |id: &str| SessionKey::new("t", id);
        deadlines.insert(at(30), SessionNumber(1), key("late"));
        deadlines.insert(at(10), SessionNumber(2), key("early"));
        deadlines.insert(at(20), SessionNumber(3), key("now"));
        let (due, next) = deadlines.take_due(at(20));
        assert_eq!((due, next), (vec![key("early"), key("now")], Duration::from_millis(10)));
        assert_eq!(deadlines.take_due(at(30)).0, [key("late")]);
        assert_eq!(deadlines.take_due(at(99)), (Vec::new(), MAX_SLEEP));
    }

    #[test]
    fn a_time_without_a_zone_means_utc() {
        let same = ["2026-01-01T00:00:00Z", "2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00.000"];
        assert!(
            same.iter()
                .all(|text| parse_time(text) == parse_time(same[0]) && parse_time(text).is_some())
        );
        assert_eq!(parse_time("soon"), None);
    }
}
