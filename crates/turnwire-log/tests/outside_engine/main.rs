//! An engine can be written outside of this crate: this test compiles the engine in memory a second
//! time (`memory.rs` and `memory/` are links to it), where it sees only what is public, and runs the
//! conformance tests against it.

// The engine says `crate::store` and the like; here that is the public API.
use turnwire_log::{client_history, cost, error, log, search, store, visible_sessions};

mod memory;

mod conformance {
    turnwire_log::conformance!(|| async { super::memory::MemoryStore::default() });
}
