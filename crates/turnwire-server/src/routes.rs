//! The handlers of Turnwire's own API, called through the table in `api`. One file per resource.

mod agents;
mod approvals;
mod blobs;
mod decisions;
pub(crate) mod events_in;
mod events_out;
mod fork;
mod history;
mod me;
mod messages;
mod replies;
mod request;
mod retry;
mod search;
mod sessions;
mod view;
mod ws;

pub(crate) use agents::{AgentList, list_agents};
pub(crate) use approvals::{ApprovalList, list_approvals};
pub(crate) use blobs::{BlobView, delete_blob, get_blob, put_blob};
pub(crate) use decisions::{DecisionList, RevokeOperation, list_decisions, revoke_rule};
pub(crate) use events_in::publish_events;
pub(crate) use events_out::watch_events;
pub(crate) use fork::{fork_log, fork_session};
pub(crate) use history::{MessagePage, get_message, list_messages};
pub(crate) use me::{MeView, get_me};
pub(crate) use messages::{CancelMessage, cancel_message, read_message, send_message};
pub(crate) use replies::{PipedReply, pipe_reply};
pub(crate) use retry::retry_message;
pub(crate) use search::{HitList, search_messages};
pub(crate) use sessions::{
    DeleteSession, PatchOperation, SessionPage, check_title_and_metadata, create_session,
    delete_session, get_session, list_sessions, new_session_key, patch_session,
};
pub(crate) use view::{SessionResponse, SessionView};
pub(crate) use ws::open_socket;
