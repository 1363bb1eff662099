//! The state of one WebSocket connection, shared by the commands of all protocols.

use super::responses::Responses;
use super::subscriptions::Subscriptions;
use super::writer::{Outgoing, Sender};
use super::{CloseReason, blocks, code};
use crate::App;
use crate::auth::{Action, Caller, ConnectionPermit, expired_error, is_expired};
use crate::error::{ApiError, ApiResult};
use crate::limits::UnreadBytes;
use crate::listen::ClientConnection;
use crate::protocols::openai::responses::socket::SocketError;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;
use turnwire_log::Session;
use turnwire_wires::Wire;

/// One WebSocket connection.
pub(super) struct SocketConnection {
    pub app: Arc<App>,
    pub wire: &'static Wire,
    /// The caller, once it is known.
    pub caller: Option<Caller>,
    /// The TCP connection, if this server accepted it.
    pub conn: Option<Arc<ClientConnection>>,
    /// Counts for the tenant, unless the TCP connection does so already.
    pub tenant_connection: Option<ConnectionPermit>,
    pub subscriptions: Subscriptions,
    /// If this is a socket of the Responses API.
    pub responses: Option<Responses>,
    pub out: Sender,
}

/// Whether to read on; otherwise how to close. `None`: the connection is gone.
pub(super) type Flow = ControlFlow<Option<CloseReason>>;

impl SocketConnection {
    /// Called when the socket opens.
    pub async fn greet(&self) -> Flow {
        if self.speaks_blocks() {
            self.send_text(blocks::greeting()).await
        } else {
            Flow::Continue(())
        }
    }

    /// Runs the command of a text message, and answers it.
    pub async fn handle_text(&mut self, text: &str) -> Flow {
        if self.responses.is_some() {
            self.handle_response_message(text).await
        } else if self.speaks_blocks() {
            self.handle_blocks_command(text).await
        } else {
            self.handle_command(text).await
        }
    }

    /// Refuses a binary message.
    pub async fn handle_binary(&mut self) -> Flow {
        let error = ApiError::bad_request("binary messages are not supported")
            .hint("send commands as text messages");
        if self.responses.is_some() {
            self.send_text(SocketError::from(error).message()).await
        } else if self.speaks_blocks() {
            self.send_blocks_error(None, None, &error).await
        } else {
            self.send_error("", None, &error).await
        }
    }

    /// Whether a response of the Responses API is running.
    pub fn is_responding(&self) -> bool {
        self.responses.as_ref().is_some_and(Responses::is_running)
    }

    /// Whether requests wait for the response that is running.
    pub fn has_waiting_requests(&self) -> bool {
        self.responses.as_ref().is_some_and(Responses::has_waiting)
    }

    /// Waits until the running response has ended, and returns the next request, if one waits.
    pub async fn wait_request(&mut self) -> Option<String> {
        match &mut self.responses {
            Some(responses) => responses.wait_next().await,
            None => std::future::pending().await,
        }
    }

    /// Ends what it sends.
    pub async fn end(&mut self) {
        self.subscriptions.end().await;
        if let Some(responses) = &mut self.responses {
            responses.end().await;
        }
    }

    fn speaks_blocks(&self) -> bool {
        self.wire.name == blocks::WIRE
    }

    /// Accesses the byte count of the incomplete message.
    pub fn with_unread_bytes(&self, change: impl FnOnce(&mut UnreadBytes)) {
        if let Some(conn) = &self.conn {
            conn.with_unread(change);
        }
    }

    /// Takes credentials, which may differ from the current ones. Subscriptions that they do not
    /// reach end, and the client is told.
    pub async fn authenticate(&mut self, token: &str) -> ApiResult<()> {
        let caller = self.app.auth.authenticate_token(token)?;
        let tenant = &caller.0.tenant;
        let is_counted = match (&self.tenant_connection, &self.caller) {
            (Some(counted), _) => counted.belongs_to(tenant),
            // The TCP connection counts for its tenant.
            (None, Some(known)) => Arc::ptr_eq(&known.0.tenant, tenant),
            (None, None) => false,
        };
        if !is_counted {
            self.tenant_connection = Some(tenant.count_connection()?);
        }
        let is_other_tenant =
            self.caller.as_ref().is_some_and(|known| !Arc::ptr_eq(&known.0.tenant, tenant));
        let may_watch = |session: &str| {
            !is_other_tenant && caller.can(Action::Read) && caller.0.reaches(session)
        };
        let lost = self.subscriptions.retain_allowed(may_watch).await;
        self.with_unread_bytes(|unread| unread.set_tenant(caller.tenant().clone()));
        self.caller = Some(caller);
        for session in lost {
            let why = ApiError::forbidden("the new credentials do not reach this session");
            // If the client is gone, the read loop notices it.
            let _ = self.send_text(self.subscriptions.ended_message(&session, &why)).await;
        }
        Ok(())
    }

    /// Whether to read on after invalid credentials.
    pub fn after_bad_token(&self) -> Flow {
        if self.caller.is_some() {
            return Flow::Continue(());
        }
        let reason = "invalid credentials";
        Flow::Break(Some(CloseReason { code: code::UNAUTHORIZED, reason }))
    }

    /// The caller. Each command counts as a request.
    pub fn current_caller(&self) -> ApiResult<Caller> {
        let caller = self.caller.clone().ok_or_else(|| {
            ApiError::unauthorized("this socket has no credentials yet")
                .hint("send {\"type\":\"auth\",\"token\":\"…\"} first")
        })?;
        if is_expired(caller.expires_at(), tokio::time::Instant::now()) {
            return Err(expired_error());
        }
        caller.0.tenant.count_request(Instant::now())?;
        Ok(caller)
    }

    /// Opens a session that the caller may see.
    pub async fn open_session(&self, caller: &Caller, id: &str) -> ApiResult<Arc<Session>> {
        let session = self.app.log.open_session(&caller.session_key(id)?).await?;
        Ok(session.ok_or(turnwire_log::Error::NoSession)?)
    }

    /// Sends a text message.
    pub async fn send_text(&self, text: String) -> Flow {
        match self.out.send(Outgoing::Text(text)).await {
            Ok(()) => Flow::Continue(()),
            Err(_) => Flow::Break(None),
        }
    }
}
