//! A disk under SQLite that forgets, tears, refuses and lies. For Turnwire's own tests.
//!
//! [`Disk`] is a file layer of SQLite (a VFS) over the system's own, for the files of one folder.
//! They are real, so whoever uses them notices nothing; but it is noted what was written since the
//! last sync. A power cut makes a folder with what a disk might hold then: what was synced, and of
//! the rest any part, in any order, torn at sectors. After that nothing works any more, so whatever
//! was acknowledged rests on what was synced before.
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
//! What it does not know: files that are made, moved or synced by other means than SQLite. What is
//! there when SQLite first opens it counts as durable. Reads and writes fail, opening and locking
//! only when the power is off.
//!
//! | module | what is in it |
//! |---|---|
//! | [`disk`] | a disk, its faults, and power cuts |
//! | `file` | what of one file is durable, and what a power cut may leave of the rest |
//! | `mounts` | which folder is on which disk |
//! | `vfs` | the table of functions that SQLite calls |

#![cfg(unix)]

pub mod disk;
mod file;
mod mounts;
mod vfs;

pub use disk::{Disk, Faults};
