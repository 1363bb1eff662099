//! Recordings of real providers. They are not part of this repository: `TURNWIRE_FIXTURES` names the
//! folder that they are in, and without it the tests say that they were skipped.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and says why it was skipped"
)]

mod anthropic;
mod gemini;
mod harness;
mod openai_chat;
mod openai_responses;
