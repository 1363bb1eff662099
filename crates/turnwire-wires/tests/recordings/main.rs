//! Recordings of real providers. They are not part of this repository: `TURNWIRE_FIXTURES` names their folder. Without it the
//! tests record a skip.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod anthropic;
mod gemini;
mod harness;
mod openai_chat;
mod openai_responses;
