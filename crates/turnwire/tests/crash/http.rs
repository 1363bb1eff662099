//! A client that survives restarts of the server.

use crate::PATIENCE;
pub use crate::connection::{Answer, Connection, Request};
use crate::server_address::{RunningServer, ServerAddress};
use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// A client that keeps a connection as long as the server lives.
pub struct Client {
    server_address: Arc<ServerAddress>,
    conn: Option<(u64, Connection)>,
    /// How many requests were interrupted.
    pub broken: u64,
}

impl Client {
    pub fn new(server_address: &Arc<ServerAddress>) -> Self {
        Self { server_address: server_address.clone(), conn: None, broken: 0 }
    }

    /// Sends a request once. `None`: the server died, and the outcome is unknown.
    pub fn call_once(&mut self, request: &Request) -> Option<Answer> {
        let place = self.server_address.wait_for_server();
        let kept = self.conn.take().filter(|(of, _)| *of == place.generation);
        let conn = kept.map_or_else(|| Connection::open(&place.address), |(_, conn)| Ok(conn));
        let done = conn.and_then(|mut conn| conn.call(request).map(|answer| (answer, conn)));
        match done {
            Ok((answer, conn)) => {
                self.conn = Some((place.generation, conn));
                // A server that is shutting down accepts nothing new.
                (answer.status != 503).then_some(answer)
            }
            Err(error) => {
                self.report_failure(&error, request, &place);
                None
            }
        }
    }

    /// Sends a request until there is an answer, across server restarts.
    pub fn call_until_answered(&mut self, request: &Request) -> Answer {
        loop {
            if let Some(answer) = self.call_once(request) {
                return answer;
            }
        }
    }

    fn report_failure(&mut self, error: &Error, request: &Request, place: &RunningServer) {
        let hangs = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        assert!(!hangs, "no answer in {PATIENCE:?}: {} {}", request.method, request.path);
        if error.kind() != ErrorKind::ConnectionRefused {
            self.broken += 1;
        }
        // Do not spin until the restart is known.
        if self.server_address.wait_for_server().generation == place.generation {
            self.server_address.pause(Duration::from_millis(2));
        }
    }
}
