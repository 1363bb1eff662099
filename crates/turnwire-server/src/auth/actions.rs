//! What callers can do, and the scopes that each action needs. The table of routes and the commands of
//! sockets refer to these actions, so that a scope means the same on every route and in every protocol.

use super::{Caller, Scope, Scopes};
use crate::error::{ApiError, ApiResult};

/// Something that a caller can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Read sessions, messages, events, blobs, approvals, agents.
    Read,
    /// Create, change and delete sessions, send messages and tool results, stop replies. The caller may see
    /// the reply to its own message, from there on, and nothing else of the session.
    Chat,
    /// Act as an agent: publish events, pipe replies in, send hints.
    Publish,
    /// Approve or deny pending tool calls.
    Confirm,
    /// Retry or edit a message.
    Regenerate,
    /// Copy a session up to an event.
    Fork,
    /// Cancel a response of the Responses API, which returns the response.
    CancelResponse,
    /// Delete an item of a conversation, which returns the conversation.
    DeleteItem,
    /// Send a hint that starts a reply.
    StartWithHint,
    /// Upload a blob.
    StoreBlob,
    /// List the agents as models: clients do that before they chat.
    ListModels,
    /// Read what concerns the whole server, such as metrics.
    Administer,
}

/// The scopes that an action needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequiredScopes {
    /// All of these.
    All(&'static [Scope]),
    /// One of these.
    Any(&'static [Scope]),
}

impl Action {
    /// The scopes that it needs.
    pub(crate) const fn required_scopes(self) -> RequiredScopes {
        match self {
            Self::Read => RequiredScopes::All(&[Scope::Read]),
            Self::Chat => RequiredScopes::All(&[Scope::Chat]),
            Self::Publish => RequiredScopes::All(&[Scope::Publish]),
            Self::Confirm => RequiredScopes::All(&[Scope::Approve]),
            Self::Regenerate | Self::Fork | Self::CancelResponse | Self::DeleteItem => {
                RequiredScopes::All(&[Scope::Chat, Scope::Read])
            }
            Self::StartWithHint => RequiredScopes::All(&[Scope::Publish, Scope::Chat]),
            Self::StoreBlob => RequiredScopes::Any(&[Scope::Chat, Scope::Publish]),
            Self::ListModels => RequiredScopes::Any(&[Scope::Chat, Scope::Read]),
            Self::Administer => RequiredScopes::All(&[Scope::Admin]),
        }
    }

    /// What it does, as a verb, for error messages and `/openapi.json`.
    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Chat => "write to a session",
            Self::Publish => "publish as an agent",
            Self::Confirm => "approve or deny a tool call",
            Self::Regenerate => "retry or edit a message",
            Self::Fork => "copy a session",
            Self::CancelResponse => "cancel a response",
            Self::DeleteItem => "delete an item of a conversation",
            Self::StartWithHint => "start a reply with a hint",
            Self::StoreBlob => "upload a blob",
            Self::ListModels => "list the models",
            Self::Administer => "read what concerns the whole server",
        }
    }
}

impl RequiredScopes {
    fn are_met_by(self, scopes: Scopes) -> bool {
        match self {
            Self::All(needed) => needed.iter().all(|scope| scopes.allow(*scope)),
            Self::Any(needed) => needed.iter().any(|scope| scopes.allow(*scope)),
        }
    }

    /// The names: `chat and read`, or `chat or publish`.
    pub(crate) fn names(self) -> String {
        let (needed, joint) = match self {
            Self::All(needed) => (needed, " and "),
            Self::Any(needed) => (needed, " or "),
        };
        needed.iter().map(|scope| scope.name()).collect::<Vec<_>>().join(joint)
    }
}

impl Caller {
    /// Whether the caller may do this.
    pub(crate) fn can(&self, action: Action) -> bool {
        action.required_scopes().are_met_by(self.0.scopes)
    }

    /// An error unless the caller may do this.
    pub(crate) fn require(&self, action: Action) -> ApiResult<()> {
        if self.can(action) {
            return Ok(());
        }
        let names = match action.required_scopes() {
            RequiredScopes::All(needed) => {
                let lacking = needed.iter().find(|scope| !self.0.scopes.allow(**scope));
                lacking.map_or("", |scope| scope.name()).to_owned()
            }
            needs @ RequiredScopes::Any(_) => needs.names(),
        };
        Err(ApiError::forbidden(format!(
            "these credentials lack the scope \"{names}\", which is needed to {}",
            action.description()
        ))
        .hint("use a token with this scope; `turnwire token new --scopes` creates one"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_takes_all_or_one_of_its_scopes() {
        let holds = |scopes: &[Scope]| scopes.iter().copied().collect::<Scopes>();
        let can = |action: Action, scopes| action.required_scopes().are_met_by(holds(scopes));
        assert!(can(Action::Regenerate, &[Scope::Chat, Scope::Read]));
        assert!(!can(Action::Regenerate, &[Scope::Chat]));
        assert!(!can(Action::Regenerate, &[Scope::Read]));
        assert!(
            can(Action::StoreBlob, &[Scope::Chat]) && can(Action::StoreBlob, &[Scope::Publish])
        );
        assert!(!can(Action::StoreBlob, &[Scope::Read, Scope::Approve]));
        assert!(
            can(Action::Regenerate, &[Scope::Admin]) && can(Action::Administer, &[Scope::Admin])
        );
        assert_eq!(Action::Fork.required_scopes().names(), "chat and read");
        assert_eq!(Action::StoreBlob.required_scopes().names(), "chat or publish");
    }
}
