//! An HTTP client that stays with a node until that fails, and then goes to another.

use crate::PATIENCE;
use crate::connection::{Answer, Connection, Request};
use crate::harness::{ClusterTest, pause};
use std::sync::Arc;
use std::time::{Duration, Instant};
use turnwire_testkit::Rng;

/// How long some connections wait for an answer.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// Between an attempt that failed and the next.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The longest time until some node answers.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);

pub struct Client {
    pub test: Arc<ClusterTest>,
    pub rng: Rng,
    node: usize,
    connection: Option<Connection>,
}

impl Client {
    pub fn new(test: &Arc<ClusterTest>, mut rng: Rng) -> Self {
        let node = rng.usize(..test.addresses.len());
        Self { rng, ..Self::at(test, node) }
    }

    /// Begins with this node.
    pub fn at(test: &Arc<ClusterTest>, node: usize) -> Self {
        Self { test: test.clone(), rng: Rng::new(), node, connection: None }
    }

    /// Where its node is.
    pub fn address(&self) -> &str {
        &self.test.addresses[self.node]
    }

    /// Goes to a random node, with one node to the same.
    pub fn move_on(&mut self) {
        self.connection = None;
        let count = self.test.addresses.len();
        if count > 1 {
            self.node = (self.node + self.rng.usize(1..count)) % count;
        }
    }

    /// Sends a request once. `None`: the outcome is unknown, or the node accepts nothing; the next request goes
    /// elsewhere.
    pub fn call_once(&mut self, request: &Request) -> Option<Answer> {
        let connection = if let Some(connection) = self.connection.take() {
            Ok(connection)
        } else {
            // The impatient go elsewhere while a node hangs, the patient see what it answers when it wakes.
            let patience = if self.rng.bool() { PATIENCE } else { IMPATIENCE };
            Connection::open_with_patience(self.address(), patience)
        };
        let answer = connection.and_then(|mut connection| {
            let answer = connection.call(request)?;
            self.connection = Some(connection);
            Ok(answer)
        });
        match answer {
            Ok(answer) if answer.status < 500 => return Some(answer),
            Ok(answer) => self.check_failure(request, &answer),
            Err(_) => self.test.history.count("requests broken off", 1),
        }
        self.move_on();
        pause(RETRY_PAUSE);
        None
    }

    /// A node that cannot serve says when to come again.
    fn check_failure(&self, request: &Request, answer: &Answer) {
        self.test.history.count("requests refused with 503", 1);
        let says_when =
            answer.header("retry-after").is_some_and(|time| time.parse::<u32>().is_ok());
        if answer.status != 503 || !says_when {
            let (status, path, text) = (answer.status, &request.path, answer.text());
            let why = format!("{path}: {status}, retry-after: {says_when}: {text}");
            self.test.history.report(&why);
        }
    }

    /// Sends a request until it is answered.
    pub fn call(&mut self, request: &Request) -> Answer {
        let begun = Instant::now();
        loop {
            if let Some(answer) = self.call_once(request) {
                return answer;
            }
            let (time, path) = (begun.elapsed(), &request.path);
            assert!(time < ANSWER_TIMEOUT, "{path}: no node answers for {time:?}");
        }
    }
}
