//! The engine in memory passes the suite of all engines.

use turnwire_log::MemoryStore;

turnwire_log::conformance!(|| async { MemoryStore::default() });
