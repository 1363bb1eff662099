//! Checks the client context of messages: tools, and the JSON Schema of the answer. Everything that
//! takes a message calls this before it stores anything.

use crate::app::App;
use crate::config::Config;
use crate::error::{ApiError, ApiResult};
use crate::limits::FairQueue;
use crate::links::has_slow_links;
use crate::stream::parse_message;
use turnwire_agent::schema::{self, SchemaError};
use turnwire_agent::{ClientContext, SentHistory};
use turnwire_core::{ContentBlock, DataBlock, Msg, Role, Seq, Source};
use turnwire_log::store::MessageQuery;
use turnwire_log::{OpenReply, Session};
use turnwire_wires::model_request::ToolChoice;

/// How many schemas may wait to be compiled. A few threads compile them.
const MAX_CONCURRENT: usize = 64;

/// The queue for compiling schemas.
pub(crate) fn schema_queue(config: &Config) -> FairQueue {
    let share = if config.auth.has_credentials() { MAX_CONCURRENT / 4 } else { MAX_CONCURRENT };
    FairQueue::new(MAX_CONCURRENT, share)
}

/// Checks the client context of the last user message, which is the one that is answered.
pub(crate) async fn check_last_message(app: &App, tenant: &str, messages: &[Msg]) -> ApiResult<()> {
    match messages.iter().rev().find(|msg| msg.role() == Role::User) {
        Some(last) => check_client_context(app, tenant, &ClientContext::from_msg(last)).await,
        None => Ok(()),
    }
}

/// Checks that the agent can follow the client's options and tools, and read what the client sends. Returns the names of
/// the options, tools and kinds of content that have no effect.
pub(crate) fn check_options(
    app: &App,
    agent: &str,
    context: &ClientContext,
    messages: &[Msg],
) -> ApiResult<Vec<String>> {
    let Some(agent) = app.agents.get(agent) else { return Ok(Vec::new()) };
    let refused = |why: String| {
        ApiError::bad_request(format!("{why}; nothing was stored"))
            .kind("unsupported_option")
            .hint("docs/agents.md lists what each model protocol takes")
    };
    let mut ignored = agent.check_client(context).map_err(refused)?;
    let fetched: Option<Vec<Msg>> = messages
        .iter()
        .any(|msg| has_slow_links(&app.config, msg))
        .then(|| messages.iter().map(|msg| without_links(app, msg)).collect());
    let messages = fetched.as_deref().unwrap_or(messages);
    ignored.extend(agent.check_content(messages).map_err(refused)?);
    Ok(ignored)
}

/// A message without links that will be fetched: what the agent can read of them is not known yet.
fn without_links(app: &App, msg: &Msg) -> Msg {
    if !has_slow_links(&app.config, msg) {
        return msg.clone();
    }
    let is_link = |block: &ContentBlock| {
        matches!(block, ContentBlock::Data(DataBlock { source: Source::Url(_), .. }))
    };
    let content = msg.content().iter().filter(|block| !is_link(block)).cloned();
    msg.to_builder().content(content.collect::<Vec<_>>()).build().unwrap_or_else(|_| msg.clone())
}

/// Notes in the last user message which of its options and tools have no effect; an error if the answer would be wrong
/// without them.
pub(crate) fn note_ignored_options(app: &App, agent: &str, messages: &mut [Msg]) -> ApiResult<()> {
    let Some(at) = messages.iter().rposition(|msg| msg.role() == Role::User) else {
        return Ok(());
    };
    let Some(last) = messages.get(at) else { return Ok(()) };
    let mut context = ClientContext::from_msg(last);
    let ignored_options = check_options(app, agent, &context, messages)?;
    if context.ignored_options != ignored_options {
        context.ignored_options = ignored_options;
        if let Some(last) = messages.get_mut(at) {
            *last = context.replace_in(last.clone());
        }
    }
    Ok(())
}

/// What a request with tool results changes.
#[derive(Debug, Default)]
pub(crate) struct ContextChange {
    /// Its client context, if it differs from the one that the reply follows, or requires a tool call again.
    pub(crate) client: Option<ClientContext>,
    /// What its history has beside what the log keeps of it, if that differs.
    pub(crate) sent: Option<SentHistory>,
}

impl ContextChange {
    /// What a request changes for a reply.
    pub(crate) async fn find(
        session: &Session,
        reply: &OpenReply,
        client: &ClientContext,
        sent: &SentHistory,
    ) -> ApiResult<Self> {
        let forces_call = !matches!(
            client.options().tool_choice,
            None | Some(
                ToolChoice::Auto | ToolChoice::None | ToolChoice::Allowed { required: false, .. }
            )
        );
        let question = answered_message(session, reply.first_seq()).await?;
        let (now, _) = ClientContext::in_force(question.as_slice(), Some(reply.msg()));
        let (sent_before, _) = SentHistory::in_force(question.as_slice(), Some(reply.msg()));
        Ok(Self {
            client: (forces_call || now != *client).then(|| client.clone()),
            sent: (*sent != sent_before).then(|| sent.clone()),
        })
    }
}

/// The user's message that a reply answers. `first` is the seq of the reply's first event. Between them there may be the
/// reply that a retry replaces, and the beginning of the reply that the client gave.
pub(crate) async fn answered_message(session: &Session, first: Seq) -> ApiResult<Option<Msg>> {
    let mut before = first;
    loop {
        let query = MessageQuery { before: Some(before), limit: 1, ..MessageQuery::default() };
        let Some(stored) = session.list_messages(&query).await?.pop() else { return Ok(None) };
        let msg = parse_message(&stored.json);
        if msg.as_ref().is_some_and(|msg| msg.role() == Role::User) {
            return Ok(msg);
        }
        let is_reply = stored.event_id.is_empty();
        if is_reply && !stored.superseded {
            return Ok(None);
        }
        before = stored.first;
    }
}

/// Checks a client context.
pub(crate) async fn check_client_context(
    app: &App,
    tenant: &str,
    context: &ClientContext,
) -> ApiResult<()> {
    schema::check_tools(&context.tools).map_err(|why| {
        ApiError::unprocessable(format!("{why}; nothing was stored"))
            .kind("tools_too_large")
            .hint("send only the tools that this turn needs, with shorter schemas")
    })?;
    let Some(output_schema) = context.answer_schema() else { return Ok(()) };
    let _permit = app.schemas.acquire(tenant).await?;
    schema::check_schema(&output_schema).await.map_err(|error| {
        let kind = match &error {
            SchemaError::Invalid(_) => "invalid_schema",
            SchemaError::TooLarge(_) | SchemaError::TooSlow => "schema_too_large",
        };
        ApiError::unprocessable(format!("output schema: {error}; nothing was stored"))
            .kind(kind)
            .hint("docs/agents.md lists the limits under \"Schemas and their limits\"")
    })
}
