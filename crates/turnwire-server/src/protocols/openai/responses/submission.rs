//! `POST /v1/responses`: finds the session of a request, and stores what is new.

use super::request::{CreateRequest, invalid_request};
use super::response_id::{FoundResponse, ResponseId};
use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiResult;
use crate::protocols::client_turn::{ClientTurn, ReplyPart};
use crate::protocols::conversation::Conversation;
use crate::protocols::openai::conversations::find_conversation;
use crate::protocols::{require_agent, session_in_header};
use crate::routes::{fork_log, new_session_key};
use crate::stream::ReplyPosition;
use crate::turns::idempotency::read_header;
use http::{HeaderMap, Uri};
use std::sync::Arc;
use turnwire_log::store::MessageQuery;

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
    /// Stores what is new in the request, and returns its response.
    pub async fn submit(&self, asked: CreateRequest) -> ApiResult<FoundResponse> {
        let previous = find_previous(self.app, self.caller, &asked).await?;
        let name = session_in_header(self.headers)?;
        if let (Some(previous), Some(name)) = (&previous, name)
            && previous.session.id() != name
        {
            return Err(invalid_request(format!(
                "the previous response belongs to the session {}, not to {name}",
                previous.session.id()
            ))
            .hint("leave out either `previous_response_id` or the session header"));
        }
        let named = match &asked.conversation {
            Some(id) => Some(find_conversation(self.app, self.caller, id).await?),
            None => None,
        };
        if let (Some(session), Some(name)) = (&named, name)
            && session.id() != name
        {
            return Err(invalid_request(format!(
                "`conversation` is the session {}, not {name}",
                session.id()
            ))
            .hint("leave out either `conversation` or the session header"));
        }
        let Self { app, caller, uri, headers, body } = *self;
        let CreateRequest { model, context, messages, .. } = asked;
        let extra = &context.extra;
        let conversation = Conversation::new(app, caller, &model, &messages, headers, extra, body);
        let agent = model.as_str();
        let turn = ClientTurn { app, caller, uri, headers, body, agent, context, conversation };
        let part = match (previous, named) {
            (Some(previous), _) => self.submit_after(&turn, previous).await?,
            (None, Some(session)) => turn.submit_to_named(require_agent(session, agent)?).await?,
            (None, None) => turn.submit().await?,
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
    async fn find_started(&self, part: ReplyPart) -> ApiResult<FoundResponse> {
        let results = match part.begin {
            ReplyPosition::After(cursor) => Some(cursor.next()),
            ReplyPosition::Start | ReplyPosition::Snapshot | ReplyPosition::SnapshotAt(_) => None,
        };
        let id =
            ResponseId { session: part.session.id().to_owned(), reply: part.reply_id, results };
        let found = ResponseId::find(&id.to_string(), self.app, self.caller).await?;
        found.ok_or_else(|| turnwire_log::Error::NoSession.into())
    }
}

/// The response that a request continues.
pub(super) async fn find_previous(
    app: &App,
    caller: &Caller,
    asked: &CreateRequest,
) -> ApiResult<Option<FoundResponse>> {
    let Some(id) = &asked.previous else { return Ok(None) };
    let found = ResponseId::find(id, app, caller).await?;
    found.map(Some).ok_or_else(|| {
        invalid_request(format!("Previous response with id '{id}' not found."))
            .kind("previous_response_not_found")
            .hint("it, or its session, may have been deleted")
    })
}
