//! An agent as an OpenAI-style model.

pub(crate) mod chat;
pub(crate) mod conversation_items;
pub(crate) mod conversations;
pub(crate) mod models;
pub(crate) mod responses;
