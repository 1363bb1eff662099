//! A simulated disk for SQLite with power cuts, torn writes, I/O errors and ignored syncs. For Turnwire's own
//! tests of the log.
//!
//! [`Disk`] is a SQLite VFS over the system's own, for the files of one folder. The files are real; the disk
//! also records what was written since the last sync. A power cut creates a folder with what a real disk might
//! contain then: everything that was synced, and of the rest any part, in any order, torn at sectors. After the
//! cut every operation fails.
//!
//! ```
//! use rusqlite::Connection;
//! use turnwire_faults::Disk;
//! # let folder = tempfile::tempdir().unwrap();
//! # let (before, after) = (folder.path().join("before"), folder.path().join("after"));
//! # std::fs::create_dir(&before).unwrap();
//!
//! let disk = Disk::new(7, &before)?;
//! let conn = Connection::open(before.join("a.db"))?;
//! conn.execute_batch("CREATE TABLE a (x); INSERT INTO a VALUES (1)")?;
//! disk.cut_power(&after)?;
//! assert!(conn.execute_batch("INSERT INTO a VALUES (2)").is_err());
//!
//! let conn = Connection::open(after.join("a.db"))?;
//! assert_eq!(conn.query_one("SELECT sum(x) FROM a", [], |row| row.get::<_, i64>(0))?, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Limits: it does not see files that are created, moved or synced without SQLite. The content of a file when
//! SQLite first opens it counts as durable. Faults hit reads, writes and syncs; opening and locking fail only
//! when the power is off.
//!
//! | module | contents |
//! |---|---|
//! | [`disk`] | the disk, its faults, and power cuts |
//! | `file` | the durable and the unsynced content of one file |
//! | `mounts` | which folder is on which disk |
//! | `vfs` | the functions that SQLite calls |

#![cfg(unix)]

pub mod disk;
mod file;
mod mounts;
mod vfs;

pub use disk::{Disk, Faults};
