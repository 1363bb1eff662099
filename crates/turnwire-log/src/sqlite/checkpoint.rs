//! Copies the write-ahead log into the file, in a thread of its own, because a checkpoint within a
//! commit would delay everybody who waits for it.

use super::file::{self, Access};
use super::shared::SharedState;
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How much is copied at a time.
const STEP_BYTES: u64 = 8 << 20;

/// When the log reaches `RESTART_BYTES`, the writer pauses so that the log can restart: once less
/// than `PAUSE_BYTES` are left to copy, or, if the log grows faster than that, at `MAX_WAL_BYTES`.
const RESTART_BYTES: u64 = 32 << 20;
const PAUSE_BYTES: u64 = 1 << 20;
const MAX_WAL_BYTES: u64 = 256 << 20;

/// After so long without a write, everything is copied.
const IDLE: Duration = Duration::from_secs(1);

/// After a failure, such as a full disk.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The size of the log, and how much of it is not in the file yet.
struct WalState {
    bytes: u64,
    left: u64,
}

/// Runs until the writer has ended.
pub(super) fn run(shared: &Arc<SharedState>, written: &Receiver<()>) {
    let mut conn = None;
    // How long to wait for the writer; forever when everything is in the file.
    let mut wait = None;
    loop {
        let woken = match wait {
            None => written.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait) => written.recv_timeout(wait),
        };
        let quiet = match woken {
            Ok(()) => false,
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        wait = match checkpoint_due(shared, &mut conn, quiet) {
            Ok(0) => None,
            Ok(_) => Some(IDLE),
            Err(error) => {
                tracing::warn!(file = %shared.file.display(), %error, "checkpoint failed; will retry");
                conn = None;
                if let Err(RecvTimeoutError::Disconnected) = pause(written) {
                    return;
                }
                Some(IDLE)
            }
        };
    }
}

/// Waits, even if something is written meanwhile.
fn pause(written: &Receiver<()>) -> Result<(), RecvTimeoutError> {
    let end = Instant::now() + RETRY_DELAY;
    loop {
        written.recv_timeout(end.saturating_duration_since(Instant::now()))?;
    }
}

/// Copies what is due, and returns how much is left.
fn checkpoint_due(
    shared: &SharedState,
    conn: &mut Option<Connection>,
    quiet: bool,
) -> rusqlite::Result<u64> {
    let conn = match conn {
        Some(conn) => conn,
        None => conn.insert(file::connect(&shared.file, Access::Write)?),
    };
    let page: u64 = conn.pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0))?.into();
    let mut log = checkpoint(conn, page, "NOOP")?;
    if log.left == 0 {
        return Ok(0);
    }
    if quiet || log.left >= STEP_BYTES {
        log = checkpoint(conn, page, "PASSIVE")?;
    }
    if log.bytes >= RESTART_BYTES {
        // Each pass leaves less, because the one before took less time.
        for _ in 0..3 {
            if log.left > PAUSE_BYTES {
                log = checkpoint(conn, page, "PASSIVE")?;
            }
        }
        if log.left <= PAUSE_BYTES || log.bytes >= MAX_WAL_BYTES {
            let _turn = shared.write_turn.lock();
            log = checkpoint(conn, page, "PASSIVE")?;
        }
    }
    Ok(log.left)
}

fn checkpoint(conn: &Connection, page: u64, mode: &str) -> rusqlite::Result<WalState> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    conn.prepare_cached(&sql)?.query_one([], |row| {
        let (all, done): (i64, i64) = (row.get(1)?, row.get(2)?);
        let bytes = |frames: i64| u64::try_from(frames).unwrap_or(0) * page;
        Ok(WalState { bytes: bytes(all), left: bytes(all - done) })
    })
}
