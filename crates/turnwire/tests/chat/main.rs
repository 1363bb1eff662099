//! `turnwire chat` and `turnwire replay`, from outside: the real program, against the demo agent.
//!
//! | module | what is in it |
//! |---|---|
//! | `found_server` | the server that has the store open |
//! | `pipe` | output and exit status in a pipe |
//! | `restart` | a server that is killed during a reply |
//! | `terminal` | a user at a terminal (tmux) |
//! | `replay` | a session again, and its messages at an event |
//! | `harness`, `tmux` | folders, programs, servers; a terminal |

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod found_server;
mod harness;
mod pipe;
mod replay;
mod restart;
mod terminal;
mod tmux;
