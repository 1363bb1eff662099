//! What was requested of a session, and what must be there.

use fastrand::Rng;
use turnwire_log::store::{IdempotencyRecord, QueuedMessage, SessionKey};

/// One change of a session. All of it happens, or nothing.
#[derive(Debug, Clone)]
pub enum Step {
    Create,
    /// Events, as lines.
    Publish(Vec<String>),
    /// A queued message, and the response to its request.
    Enqueue(QueuedMessage, IdempotencyRecord),
    Dequeue(String),
    Rename(String),
    Delete,
}

/// The history of one session. Only its last step may be without a response.
#[derive(Debug)]
pub struct SessionHistory {
    pub key: SessionKey,
    pub steps: Vec<Step>,
    /// How many steps were acknowledged.
    pub acknowledged: usize,
    /// The epoch after each acknowledged `Create`, by its step.
    pub epochs: Vec<(usize, String)>,
    /// The open reply, and how many events it has.
    open: Option<(String, usize)>,
    count: usize,
}

/// What must be there after some steps.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ExpectedState {
    pub exists: bool,
    pub lines: Vec<String>,
    pub queue: Vec<QueuedMessage>,
    pub keys: Vec<IdempotencyRecord>,
    pub title: String,
}

impl SessionHistory {
    pub fn new(id: usize) -> Self {
        Self {
            key: SessionKey::new("t", format!("s{id}")),
            steps: Vec::new(),
            acknowledged: 0,
            epochs: Vec::new(),
            open: None,
            count: 0,
        }
    }

    /// The expected state after so many steps.
    pub fn state(&self, steps: usize) -> ExpectedState {
        let mut state = ExpectedState::default();
        for step in &self.steps[..steps] {
            match step {
                Step::Create => state = ExpectedState { exists: true, ..ExpectedState::default() },
                Step::Publish(lines) => state.lines.extend(lines.iter().cloned()),
                Step::Enqueue(queued, key) => {
                    state.queue.push(queued.clone());
                    state.keys.push(key.clone());
                }
                Step::Dequeue(id) => state.queue.retain(|queued| queued.id != *id),
                Step::Rename(title) => state.title.clone_from(title),
                Step::Delete => state = ExpectedState::default(),
            }
        }
        state
    }

    /// The idempotency records of all steps since the session was last created, in order.
    pub fn keys(&self) -> impl Iterator<Item = &IdempotencyRecord> {
        let made = self.steps.iter().rposition(|step| matches!(step, Step::Create));
        self.steps[made.unwrap_or(0)..].iter().filter_map(|step| match step {
            Step::Enqueue(_, key) => Some(key),
            _ => None,
        })
    }

    /// The epoch of a session after so many steps, if it is known.
    pub fn epoch(&self, steps: usize) -> Option<&str> {
        let made = self.steps[..steps].iter().rposition(|step| matches!(step, Step::Create))?;
        self.epochs.iter().find(|(at, _)| *at == made).map(|(_, epoch)| &**epoch)
    }

    /// Keeps so many steps, and drops the others: they did not happen.
    pub fn keep_steps(&mut self, steps: usize) {
        self.steps.truncate(steps);
        self.acknowledged = steps;
        self.epochs.retain(|(at, _)| *at < steps);
        // A reply that was open stays open.
        self.open = None;
    }

    /// Chooses the next step, and adds it to the history.
    pub fn next_step(&mut self, rng: &mut Rng) -> Step {
        let state = self.state(self.steps.len());
        self.count += 1;
        let step = if state.exists {
            match rng.u8(..40) {
                0 => Step::Delete,
                1 => Step::Rename(format!("title {}", self.count)),
                2..6 => self.enqueue(),
                6..9 if !state.queue.is_empty() => Step::Dequeue(state.queue[0].id.clone()),
                9..13 => Step::Publish(vec![self.user_message(rng)]),
                _ => Step::Publish(self.events(rng)),
            }
        } else {
            self.open = None;
            Step::Create
        };
        self.steps.push(step.clone());
        step
    }

    fn enqueue(&self) -> Step {
        let id = format!("q-{}-{}", self.key.id, self.count);
        let key = IdempotencyRecord {
            tenant: self.key.tenant.clone(),
            key: format!("key of {id}"),
            fingerprint: [7; 32],
            response: format!("answer to {id}"),
        };
        let json = format!("{{\"id\":\"{id}\"}}").into();
        Step::Enqueue(QueuedMessage { reply_id: format!("of {id}"), json, id }, key)
    }

    fn user_message(&self, rng: &mut Rng) -> String {
        let (id, text) = (format!("m-{}-{}", self.key.id, self.count), filler(rng));
        format!(
            r#"{{"id":"e-{id}","type":"MESSAGE","message":{{"id":"{id}","name":"alice","role":"user","content":"{text}"}}}}"#
        )
    }

    /// Some events of replies.
    fn events(&mut self, rng: &mut Rng) -> Vec<String> {
        let mut lines = Vec::new();
        let most = if rng.u8(..4) == 0 { 40 } else { 4 };
        for _ in 0..rng.usize(1..=most) {
            let (reply, at) = match self.open.take() {
                Some(open) => open,
                None => (format!("r-{}-{}-{}", self.key.id, self.count, lines.len()), 0),
            };
            let ends = at > 2 && rng.u8(..5) == 0;
            let rest = match at {
                0 => r#""type":"REPLY_START","name":"friday""#.to_owned(),
                1 => r#""type":"TEXT_BLOCK_START","block_id":"b""#.to_owned(),
                _ if ends => r#""type":"REPLY_END""#.to_owned(),
                _ => {
                    let delta = filler(rng);
                    format!(r#""type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"{delta}""#)
                }
            };
            lines.push(format!(r#"{{"id":"{reply}-{at}","reply_id":"{reply}",{rest}}}"#));
            self.open = (!ends).then_some((reply, at + 1));
        }
        lines
    }
}

fn filler(rng: &mut Rng) -> String {
    let len = match rng.u8(..20) {
        0 => rng.usize(..6000),
        1..4 => rng.usize(..600),
        _ => rng.usize(..30),
    };
    (0..len).map(|_| rng.alphanumeric()).collect()
}
