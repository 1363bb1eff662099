//! What only the owner of a session can do, and how it gets there.
//!
//! A request may reach any node. Its handler checks it, and calls [`run_at_owner`] with what has to change: that runs here if
//! this node owns the session or can have it, and otherwise at the owner. The response is then read from the log, on the node
//! that has the client.

use super::ClusterNode;
use super::peers::PeerError;
use crate::App;
use crate::error::{ApiError, ApiResult, ErrorParts};
use crate::ingest::PublishOperation;
use crate::routes::{CancelMessage, DeleteSession, PatchOperation, RevokeOperation};
use crate::turns::client_events::AcceptOperation;
use crate::turns::send::SendRequest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use turnwire_log::store::cluster::Node;
use turnwire_log::store::{SessionKey, SessionNumber};
use turnwire_log::{Error, Session};

/// How long to wait before the owner is looked for again: the first pause, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// How much longer than a lease it may take until a session has another owner.
const GRACE: Duration = Duration::from_secs(5);

/// After this time every node knows of a node that has joined.
const LEARN_TIME: Duration = Duration::from_secs(2);

/// A change that only the owner of a session can make.
pub(crate) trait OwnerOperation: Serialize + DeserializeOwned + Clone + Send + Sync {
    /// Its name between nodes.
    const NAME: &'static str;

    /// What it returns.
    type Output: Serialize + DeserializeOwned + Send;

    /// Runs it. This node owns the session, or acquires it now.
    fn run(
        self,
        app: &Arc<App>,
        session: &Arc<Session>,
    ) -> impl Future<Output = ApiResult<Self::Output>> + Send;

    /// Whether it can run twice without harm, because the second time is recognised.
    fn is_repeatable(&self) -> bool;
}

/// The session of a request between nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SessionRef {
    tenant: Arc<str>,
    id: Arc<str>,
    number: SessionNumber,
}

impl SessionRef {
    fn new(session: &Session) -> Self {
        let SessionKey { tenant, id } = session.key().clone();
        Self { tenant, id, number: session.number() }
    }

    async fn open(&self, app: &App) -> turnwire_log::Result<Arc<Session>> {
        let key = SessionKey::new(self.tenant.clone(), self.id.clone());
        let session = app.log.open_session_to_write(&key).await?;
        session.filter(|session| session.number() == self.number).ok_or(Error::NoSession)
    }
}

/// An operation on its way to another node.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Call {
    session: SessionRef,
    name: String,
    operation: Box<RawValue>,
}

/// What became of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallAnswer {
    /// It was done.
    Done(Box<RawValue>),
    /// The client gets this error.
    Refused(ErrorParts),
    /// The node does not own the session.
    NotOwner,
}

/// Runs an operation where the session's owner is.
pub(crate) async fn run_at_owner<O: OwnerOperation>(
    app: &Arc<App>,
    session: &Arc<Session>,
    operation: O,
) -> ApiResult<O::Output> {
    let Some(cluster) = &app.cluster else { return operation.run(app, session).await };
    let deadline = Instant::now() + cluster.membership.ttl() + GRACE;
    let mut pause = PAUSES.0;
    loop {
        let why = match session.acquire_ownership().await {
            Ok(()) => match operation.clone().run(app, session).await {
                Err(error) if error.is_owned_elsewhere() => error.message().to_owned(),
                result => return result,
            },
            Err(Error::Owned(owner)) => match cluster.call(&owner, session, &operation).await {
                Ok(CallAnswer::Done(output)) => {
                    return serde_json::from_str(output.get()).map_err(ApiError::internal);
                }
                Ok(CallAnswer::Refused(error)) => return Err(error.into()),
                Ok(CallAnswer::NotOwner) => "the session moves to another node".to_owned(),
                Err(PeerError::Unreachable(why)) => why,
                Err(PeerError::NoAnswer(why)) if operation.is_repeatable() => why,
                Err(PeerError::NoAnswer(why)) => return Err(unknown_outcome(&owner, &why)),
            },
            Err(error) => return Err(error.into()),
        };
        if Instant::now() + pause >= deadline {
            return Err(ApiError::unavailable(
                "the node that owns this session does not answer; nothing was stored",
            )
            .hint("try again: when its lease has ended, another node takes over")
            .detail(why)
            .retry_after(1));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

#[cold]
fn unknown_outcome(owner: &Node, why: &str) -> ApiError {
    ApiError::unavailable(
        "the node that owns this session broke off; it may have stored the request, or not",
    )
    .kind("unknown_outcome")
    .hint("look at the session, or repeat the request with an Idempotency-Key")
    .detail(format!("node {}: {why}", owner.id))
    .retry_after(1)
}

impl ClusterNode {
    async fn call<O: OwnerOperation>(
        &self,
        owner: &Node,
        session: &Session,
        operation: &O,
    ) -> Result<CallAnswer, PeerError> {
        let unsendable = |error: serde_json::Error| PeerError::Unreachable(error.to_string());
        let operation = serde_json::value::to_raw_value(operation).map_err(unsendable)?;
        let call = Call { session: SessionRef::new(session), name: O::NAME.to_owned(), operation };
        // A node that hangs does not answer, and is declared dead when its lease has ended.
        let mut peers = self.membership.peers();
        let died = async {
            // The owner may have joined a moment ago, and this node knows of it with its next renewal.
            tokio::time::sleep(LEARN_TIME).await;
            let _ = peers.wait_for(|peers| peers.iter().all(|peer| peer.id != owner.id)).await;
        };
        tokio::select! {
            biased;
            answer = self.peers.post(owner, "/call", &call) => answer,
            () = died => Err(PeerError::NoAnswer("it was declared dead".to_owned())),
        }
    }
}

/// Runs an operation for another node.
pub(super) async fn answer_call(app: &Arc<App>, call: Call) -> CallAnswer {
    match call.name.as_str() {
        SendRequest::NAME => answer::<SendRequest>(app, &call).await,
        AcceptOperation::NAME => answer::<AcceptOperation>(app, &call).await,
        PublishOperation::NAME => answer::<PublishOperation>(app, &call).await,
        CancelMessage::NAME => answer::<CancelMessage>(app, &call).await,
        PatchOperation::NAME => answer::<PatchOperation>(app, &call).await,
        RevokeOperation::NAME => answer::<RevokeOperation>(app, &call).await,
        DeleteSession::NAME => answer::<DeleteSession>(app, &call).await,
        name => CallAnswer::Refused(
            ApiError::unavailable(format!(
                "the node that owns this session does not know `{name}`"
            ))
            .hint("it runs an older version of Turnwire; upgrade all nodes")
            .retry_after(5)
            .into(),
        ),
    }
}

async fn answer<O: OwnerOperation>(app: &Arc<App>, call: &Call) -> CallAnswer {
    match run_here::<O>(app, call).await {
        Ok(output) => match serde_json::value::to_raw_value(&output) {
            Ok(output) => CallAnswer::Done(output),
            Err(error) => CallAnswer::Refused(ApiError::internal(error).into()),
        },
        Err(error) if error.is_owned_elsewhere() => CallAnswer::NotOwner,
        Err(error) => CallAnswer::Refused(error.into()),
    }
}

async fn run_here<O: OwnerOperation>(app: &Arc<App>, call: &Call) -> ApiResult<O::Output> {
    let operation: O = serde_json::from_str(call.operation.get()).map_err(ApiError::internal)?;
    let session = call.session.open(app).await?;
    session.acquire_ownership().await?;
    operation.run(app, &session).await
}

/// Makes this node the owner of a session, for a change that is too rare for an operation of its own. Another owner gives
/// it up, unless its agent works in the session.
pub(crate) async fn take_ownership(app: &App, session: &Arc<Session>) -> ApiResult<()> {
    let Some(cluster) = &app.cluster else { return Ok(()) };
    let deadline = Instant::now() + cluster.membership.ttl() + GRACE;
    let mut pause = PAUSES.0;
    loop {
        let owner = match session.acquire_ownership().await {
            Ok(()) => return Ok(()),
            Err(Error::Owned(owner)) => owner,
            Err(error) => return Err(error.into()),
        };
        let released = cluster.peers.post(&owner, "/release", &SessionRef::new(session)).await;
        if matches!(released, Ok(false)) || Instant::now() + pause >= deadline {
            return Err(Error::Owned(owner).into());
        }
        if !matches!(released, Ok(true)) {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}

/// Gives up a session for another node. Returns whether it is free.
pub(super) async fn release_session(app: &App, session: &SessionRef) -> bool {
    let Ok(session) = session.open(app).await else { return true };
    !app.turns.works_on(&session) && session.release().await.is_ok()
}
