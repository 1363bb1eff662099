//! `turnwire chat` and `turnwire replay`, from outside: the real program, against the demo agent.
//!
//! | module | what is in it |
//! |---|---|
//! | `pipe` | what is printed, and the exit status, where nobody sits at a terminal |
//! | `restart` | a server that is killed in the middle of an answer |
//! | `terminal` | a person at a terminal (tmux) |
//! | `replay` | a session again, and its state at a point |
//! | `world`, `tmux` | folders, programs, servers; a terminal |

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod harness;
mod pipe;
mod replay;
mod restart;
mod terminal;
mod tmux;
