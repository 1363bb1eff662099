//! Which answers have arrived at their clients, to tell a request that is sent again from one that asks again.
//!
//! Clients of model APIs repeat a request whose connection broke, without an idempotency key. Then they want the same
//! answer. If the answer has arrived, the same request wants another one.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use turnwire_core::Head;
use turnwire_log::store::{HistoryState, SessionKey};

/// How many answers are remembered.
const MAX_REMEMBERED: usize = 16 * 1024;

/// The answer to one request: the session, the reply, and the position in it.
type AnswerKey = (SessionKey, String, Head);

/// What is known of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeliveryState {
    /// A client is receiving it.
    Running,
    /// The client left before the end.
    Broken,
    /// All of it was sent.
    Complete,
}

/// Which answers of this process have arrived.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deliveries(Arc<Mutex<Answers>>);

#[derive(Debug, Default)]
struct Answers {
    states: HashMap<AnswerKey, DeliveryState>,
    order: VecDeque<AnswerKey>,
    /// How many requests are being stored in each session.
    prepared: HashMap<SessionKey, usize>,
}

/// A request that is being stored. Others see it in the log before its answer has begun: until then its answer is not
/// lost.
#[derive(Debug)]
pub(crate) struct PreparedDelivery {
    answers: Deliveries,
    session: SessionKey,
}

/// An answer that is being sent. If it is dropped before [`complete`](Self::complete), the client has left.
#[derive(Debug)]
pub(crate) struct Delivery {
    answers: Deliveries,
    key: AnswerKey,
}

impl Deliveries {
    /// Notes that a request is about to be stored in a session, whose answer will be sent.
    pub(crate) fn prepare(&self, session: &SessionKey) -> PreparedDelivery {
        *self.0.lock().prepared.entry(session.clone()).or_default() += 1;
        PreparedDelivery { answers: self.clone(), session: session.clone() }
    }

    /// Begins to send an answer.
    pub(crate) fn begin(&self, session: &SessionKey, reply: &str, after: Head) -> Delivery {
        let key = (session.clone(), reply.to_owned(), after);
        self.set(&key, DeliveryState::Running);
        Delivery { answers: self.clone(), key }
    }

    /// Whether the answer to this input did not arrive; `None` if this process does not know, because an earlier
    /// process sent it.
    pub(crate) fn is_lost(&self, session: &SessionKey, state: &HistoryState) -> Option<bool> {
        let after = state.results_after.unwrap_or_default();
        let key = (session.clone(), state.reply_id.clone(), after);
        let answers = self.0.lock();
        match answers.states.get(&key) {
            Some(state) => Some(*state == DeliveryState::Broken),
            None => answers.prepared.contains_key(session).then_some(false),
        }
    }

    fn set(&self, key: &AnswerKey, state: DeliveryState) {
        let mut answers = self.0.lock();
        if answers.states.insert(key.clone(), state).is_none() {
            answers.order.push_back(key.clone());
            if answers.order.len() > MAX_REMEMBERED
                && let Some(oldest) = answers.order.pop_front()
            {
                answers.states.remove(&oldest);
            }
        }
    }
}

impl PreparedDelivery {
    /// Begins to send the answer.
    pub(crate) fn begin(self, reply: &str, after: Head) -> Delivery {
        self.answers.begin(&self.session, reply, after)
    }
}

impl Drop for PreparedDelivery {
    fn drop(&mut self) {
        let mut answers = self.answers.0.lock();
        if let Some(count) = answers.prepared.get_mut(&self.session) {
            *count -= 1;
            if *count == 0 {
                answers.prepared.remove(&self.session);
            }
        }
    }
}

impl Delivery {
    /// All of the answer was sent.
    pub(crate) fn complete(self) {
        self.answers.set(&self.key, DeliveryState::Complete);
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let is_running = {
            let answers = self.answers.0.lock();
            answers.states.get(&self.key) == Some(&DeliveryState::Running)
        };
        if is_running {
            self.answers.set(&self.key, DeliveryState::Broken);
        }
    }
}
