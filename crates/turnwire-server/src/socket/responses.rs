//! The socket of the Responses API: one response at a time, each a task that writes its events.
//!
//! The connection is read while a response runs, so that pings are answered. Requests that come meanwhile wait; their bytes
//! count as bytes of an incomplete message.

use super::connection::{Flow, SocketConnection};
use super::writer::{Outgoing, Sender};
use super::{CloseReason, code};
use crate::error::ApiError;
use crate::metrics::{OpenStream, Transport};
use crate::protocols::openai::responses::socket::{ResponseMessages, ResponseSocket, SocketError};
use std::collections::VecDeque;
use tokio::task::JoinHandle;

/// How many requests may wait.
const MAX_WAITING: usize = 64;

/// The responses of one socket.
pub(super) struct Responses {
    pub socket: ResponseSocket,
    running: Option<JoinHandle<()>>,
    /// Requests that came while a response was running.
    waiting: VecDeque<String>,
}

impl Responses {
    pub fn new(socket: ResponseSocket) -> Self {
        Self { socket, running: None, waiting: VecDeque::new() }
    }

    /// Whether a response is running.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether requests wait.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Waits until the running response has ended, and returns the next request, if one waits.
    pub async fn wait_next(&mut self) -> Option<String> {
        match &mut self.running {
            Some(task) => drop(task.await),
            // The one before it was refused.
            None if !self.waiting.is_empty() => {}
            None => std::future::pending().await,
        }
        self.running = None;
        self.waiting.pop_front()
    }

    /// Stops to send. The reply continues.
    pub async fn end(&mut self) {
        if let Some(task) = self.running.take() {
            task.abort();
            drop(task.await);
        }
    }
}

impl SocketConnection {
    /// Handles a message of the Responses API, or lets it wait for the response that is running.
    pub async fn handle_response_message(&mut self, text: &str) -> Flow {
        if let Some(responses) = self.responses.as_mut().filter(|all| all.is_running()) {
            if responses.waiting.len() < MAX_WAITING {
                responses.waiting.push_back(text.to_owned());
                return Flow::Continue(());
            }
            let error = ApiError::too_many(format!("{MAX_WAITING} requests wait already"))
                .hint("wait for the responses, or open another connection");
            return self.send_text(SocketError::from(error).message()).await;
        }
        let caller = self.current_caller();
        let Some(responses) = &mut self.responses else { return Flow::Continue(()) };
        let created = match caller {
            Ok(caller) => responses.socket.handle(&self.app, &caller, text).await,
            Err(error) => Err(error.into()),
        };
        match created {
            Ok(None) => Flow::Continue(()),
            Ok(Some(messages)) => {
                let open = self.app.metrics.open_stream(self.wire.name, Transport::WebSocket);
                let task = tokio::spawn(forward_response(messages, self.out.clone(), open));
                responses.running = Some(task);
                Flow::Continue(())
            }
            Err(error) => self.send_text(error.message()).await,
        }
    }

    /// Ends a socket that was open for as long as it may be.
    pub async fn end_old_socket(&self) -> Option<CloseReason> {
        let error = ApiError::bad_request("this connection has reached its time limit")
            .kind("websocket_connection_limit_reached")
            .hint("open another one, and continue with `previous_response_id` or the whole input");
        match self.send_text(SocketError::from(error).message()).await {
            Flow::Continue(()) => {}
            Flow::Break(close) => return close,
        }
        Some(CloseReason { code: code::GOING_AWAY, reason: "time limit reached" })
    }
}

/// Sends the events of a response until it ends, or the client is gone.
async fn forward_response(mut messages: ResponseMessages, out: Sender, _open: OpenStream) {
    while let Some(next) = messages.next().await {
        let (sent, is_last) = match next {
            Ok(lines) if lines.is_empty() => continue,
            Ok(lines) => (Outgoing::Lines(lines), false),
            Err(error) => (Outgoing::Text(error.message()), true),
        };
        if out.send(sent).await.is_err() || is_last {
            return;
        }
    }
}
