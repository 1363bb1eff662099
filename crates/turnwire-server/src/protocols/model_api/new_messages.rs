//! A request with a new user message.

use super::{ModelRequest, ReplyPart, request_id, with_session_hint};
use crate::error::{ApiError, ApiResult};
use crate::links;
use crate::protocols::{open_or_create_session, require_known_agent, session_in_header};
use crate::stream::ReplyPosition;
use crate::turns::client_context;
use crate::turns::idempotency::{IdempotencyKey, read_header};
use crate::turns::send::{Accepted, SendOutcome, SendRequest, send_all as send};
use std::sync::Arc;
use turnwire_agent::{ClientContext, ClientTool};
use turnwire_core::Msg;
use turnwire_log::Session;
use turnwire_wires::client_request::ClientRequest;

/// Sends what is new, in the session that the client names or in a new one. An idempotency key without a session
/// selects a session, so that a repeated request finds its reply.
pub(super) async fn send_new_messages(
    request: &ModelRequest,
    asked: &ClientRequest,
) -> ApiResult<ReplyPart> {
    let ModelRequest { app, caller, uri, headers, body } = request;
    let of_key = read_header(headers)?.map(|key| format!("once-{}", request_id(request, key)));
    let id = session_in_header(headers)?.or(of_key.as_deref());
    client_context::check_client_context(app, caller.tenant(), &client_context(asked)).await?;
    let mut said = asked.user_messages.clone();
    if id.is_none() {
        // A session with a random id is created only after its message is known to be valid.
        require_known_agent(app, &asked.model)?;
        said = links::fetch_links(app, caller.tenant(), said).await?;
    }
    let session = open_or_create_session(app, caller, id, &asked.model).await?;
    let once = IdempotencyKey::from_request(&session, caller, headers, uri, body)?;
    if let Some(once) = &once
        && let Some(accepted) = once.find_response(&app.log).await?
    {
        return reply_part(session, &SendOutcome::Replayed(accepted));
    }
    let messages = unsent_messages(&client_context(asked), asked, &said, &session)?;
    let asked_by = Some(&*caller.0.holder);
    let say = SendRequest {
        messages,
        idempotency_key: once.as_ref(),
        requester: asked_by,
        ..SendRequest::default()
    };
    let sent = send(app, &session, say).await.map_err(with_session_hint)?;
    reply_part(session, &sent)
}

fn reply_part(session: Arc<Session>, sent: &SendOutcome) -> ApiResult<ReplyPart> {
    let replayed = matches!(sent, SendOutcome::Replayed(_));
    let Accepted { reply_id, .. } = sent.accepted().clone();
    let reply_id = reply_id.ok_or_else(|| ApiError::internal("the message has no reply"))?;
    Ok(ReplyPart { session, reply_id, begin: ReplyPosition::Start, replayed })
}

/// The messages that the session does not have; for a new session all of `said`.
fn unsent_messages(
    offer: &ClientContext,
    asked: &ClientRequest,
    said: &[Msg],
    session: &Session,
) -> ApiResult<Vec<Msg>> {
    let is_fresh = session.head_state().head == 0;
    let new = if is_fresh { said } else { asked.new_messages() };
    let Some((last, earlier)) = new.split_last() else {
        return Err(ApiError::bad_request(
            "the request has nothing new: no user message follows the last assistant message; \
             nothing was stored",
        )
        .kind("nothing_new")
        .hint("end `messages` with a user message"));
    };
    let mut messages = earlier.to_vec();
    messages.push(offer.attach_to(last.clone()));
    Ok(messages)
}

fn client_context(asked: &ClientRequest) -> ClientContext {
    let tools = asked.tools.iter().map(|tool| ClientTool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input: tool.input_schema.clone(),
    });
    ClientContext {
        tools: tools.collect(),
        output_schema: asked.output_schema.clone(),
        instructions: asked.instructions.clone(),
        unattended: true,
        asked_by: None,
        extra: asked.extra.clone(),
    }
}
