//! The engine in memory passes the conformance tests.

use turnwire_log::MemoryStore;

turnwire_log::conformance!(|| async { MemoryStore::default() });
