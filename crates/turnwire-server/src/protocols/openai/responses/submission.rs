//! `POST /v1/responses`: finds the session of a request, and stores what is new.

use super::item_reference::resolve_references;
use super::request::{CreateRequest, invalid_request};
use super::response_id::{FoundResponse, ResponseId};
use crate::app::App;
use crate::auth::Caller;
use crate::deliveries::Delivery;
use crate::error::{ApiError, ApiResult};
use crate::protocols::client_turn::{ClientTurn, ReplyPart};
use crate::protocols::conversation::Conversation;
use crate::protocols::openai::conversations::find_conversation;
use crate::protocols::{require_agent, session_in_header};
use crate::routes::{fork_log, new_session_key};
use crate::stream::ReplyPosition;
use crate::turns::idempotency::read_header;
use http::{HeaderMap, Uri};
use std::sync::Arc;
use turnwire_agent::{ClientContext, SystemMessage};
use turnwire_core::{ContentBlock, Msg, ToolCall};
use turnwire_log::Session;
use turnwire_log::store::MessageQuery;
use turnwire_wires::openai_responses::{is_client_call, refer_by_call_id};

/// How many messages back the last one of a session is searched.
const LOOK_BACK: usize = 32;

/// A request that is being handled.
pub(super) struct Submission<'r> {
    pub app: &'r Arc<App>,
    pub caller: &'r Caller,
    pub uri: &'r Uri,
    pub headers: &'r HeaderMap,
    pub body: &'r [u8],
}

impl Submission<'_> {
    /// Stores what is new in the request, and returns its response and the delivery of it.
    pub async fn submit(&self, request: CreateRequest) -> ApiResult<(FoundResponse, Delivery)> {
        let Self { app, caller, uri, headers, body } = *self;
        let named = NamedSession::find(app, caller, headers, &request).await?;
        let CreateRequest { model, context, input, .. } = request;
        let messages = resolve_references(app, caller, &model, named.session(), input).await?;
        let messages = refer_by_call_ids(messages);
        let context = ClientContext { system: SystemMessage::collect(&messages), ..context };
        let extra = &context.extra;
        let conversation = Conversation::new(app, caller, &model, messages, headers, extra, body);
        let conversation = conversation.with_joined_calls(app, caller).await?;
        let agent = model.as_str();
        let turn = ClientTurn { app, caller, uri, headers, body, agent, context, conversation };
        let part = match named {
            NamedSession::OfResponse(previous) => self.submit_after(&turn, previous).await?,
            NamedSession::OfConversation(session) => {
                turn.submit_to_named(require_agent(session, agent)?).await?
            }
            NamedSession::InHeader(_) | NamedSession::None => turn.submit().await?,
        };
        self.find_started(part).await
    }

    /// Continues from a response; from an earlier one in a fork of its session.
    async fn submit_after(
        &self,
        turn: &ClientTurn<'_>,
        previous: FoundResponse,
    ) -> ApiResult<ReplyPart> {
        let session = require_agent(previous.session, turn.agent)?;
        let reply = &previous.id.reply;
        let query = MessageQuery { limit: LOOK_BACK, ..MessageQuery::default() };
        let stored = session.list_messages(&query).await?;
        let last = stored.iter().rev().find(|stored| !stored.superseded);
        let is_open = session.find_message(reply).await?.is_none();
        if is_open || last.is_some_and(|last| last.id == *reply) {
            return turn.submit_to_named(session).await;
        }
        let Some(stored) = session.find_message(reply).await? else {
            return Err(turnwire_log::Error::NoSession.into());
        };
        let id = read_header(self.headers)?.map(|key| format!("once-{}", turn.request_id(key)));
        if let Some(id) = &id
            && let Some(fork) = self.app.log.open_session(&self.caller.session_key(id)?).await?
        {
            return turn.submit_to_named(fork).await;
        }
        let key = new_session_key(self.caller, id)?;
        let fork = fork_log(self.app, session, stored.last.into(), key, None).await?;
        turn.submit_to_named(fork).await
    }

    /// A response that was just started.
    async fn find_started(&self, part: ReplyPart) -> ApiResult<(FoundResponse, Delivery)> {
        let results = match part.begin {
            ReplyPosition::After(cursor) => Some(cursor.next()),
            ReplyPosition::Start | ReplyPosition::Snapshot | ReplyPosition::SnapshotAt(_) => None,
        };
        let id =
            ResponseId { session: part.session.id().to_owned(), reply: part.reply_id, results };
        let found = ResponseId::find(&id.to_string(), self.app, self.caller).await?;
        let found = found.ok_or(turnwire_log::Error::NoSession)?;
        Ok((found, part.delivery))
    }
}

/// Lets the results of an input refer to its calls by their call ids.
fn refer_by_call_ids(messages: Vec<Msg>) -> Vec<Msg> {
    let calls = messages.iter().flat_map(Msg::blocks::<ToolCall>);
    let calls: Vec<_> = calls.filter(|call| is_client_call(call)).cloned().collect();
    if calls.is_empty() {
        return messages;
    }
    let refer = |msg: Msg| {
        let mut content = msg.content().to_vec();
        for block in &mut content {
            if let ContentBlock::ToolResult(result) = block {
                refer_by_call_id(result, calls.iter());
            }
        }
        if content == msg.content() {
            return msg;
        }
        msg.to_builder().content(content).build().unwrap_or(msg)
    };
    messages.into_iter().map(refer).collect()
}

/// The session that a request names.
pub(super) enum NamedSession {
    /// By the response that it continues.
    OfResponse(FoundResponse),
    OfConversation(Arc<Session>),
    InHeader(Arc<Session>),
    /// It names none, or one that does not exist yet.
    None,
}

impl NamedSession {
    /// The session that a request names. It may name it twice, but not two of them.
    pub(super) async fn find(
        app: &App,
        caller: &Caller,
        headers: &HeaderMap,
        request: &CreateRequest,
    ) -> ApiResult<Self> {
        let named = if let Some(id) = &request.previous {
            Self::OfResponse(find_previous(app, caller, id).await?)
        } else if let Some(id) = &request.conversation {
            Self::OfConversation(find_conversation(app, caller, id).await?)
        } else {
            Self::None
        };
        let Some(name) = session_in_header(headers)? else { return Ok(named) };
        let (what, field) = match &named {
            Self::OfResponse(_) => ("the previous response belongs to", "previous_response_id"),
            Self::OfConversation(_) => ("`conversation` is", "conversation"),
            Self::InHeader(_) | Self::None => {
                let session = app.log.open_session(&caller.session_key(name)?).await?;
                return Ok(session.map_or(Self::None, Self::InHeader));
            }
        };
        match named.session() {
            Some(session) if session.id() != name => {
                Err(invalid_request(format!("{what} the session {}, not {name}", session.id()))
                    .hint(format!("leave out either `{field}` or the session header")))
            }
            _ => Ok(named),
        }
    }

    /// The session.
    pub(super) fn session(&self) -> Option<&Arc<Session>> {
        match self {
            Self::OfResponse(previous) => Some(&previous.session),
            Self::OfConversation(session) | Self::InHeader(session) => Some(session),
            Self::None => None,
        }
    }
}

/// The response that a request continues.
async fn find_previous(app: &App, caller: &Caller, id: &str) -> ApiResult<FoundResponse> {
    ResponseId::find(id, app, caller).await?.ok_or_else(|| previous_not_found(id))
}

/// 400: there is no such response to continue from.
pub(super) fn previous_not_found(id: &str) -> ApiError {
    invalid_request(format!("Previous response with id '{id}' not found."))
        .kind("previous_response_not_found")
        .hint("send the whole input without `previous_response_id`")
}
