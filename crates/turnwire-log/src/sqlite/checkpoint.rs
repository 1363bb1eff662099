//! Brings what is in the write-ahead log back into the file, beside the writer instead of within
//! its commits: there it would make everybody wait.

use super::file::{self, Access};
use super::shared::SharedState;
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// What is brought back at a time.
const STEP_BYTES: u64 = 8 << 20;

/// When the log is as long as this, the writer waits a moment, so that the log can begin anew: while
/// so little is brought back, or, when it grows too fast for that, whatever is left.
const RESTART_BYTES: u64 = 32 << 20;
const PAUSE_BYTES: u64 = 1 << 20;
const MAX_WAL_BYTES: u64 = 256 << 20;

/// When nobody has written for so long, all is brought back.
const IDLE: Duration = Duration::from_secs(1);

/// After a failure, such as a full disk.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// How much is in the log, and how much of that is in the file too.
struct WalState {
    bytes: u64,
    left: u64,
}

/// Runs until the writer has ended.
pub(super) fn run(shared: &Arc<SharedState>, written: &Receiver<()>) {
    let mut conn = None;
    // How long to wait for the writer; forever when all is in the file.
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
                tracing::warn!(file = %shared.file.display(), %error, "the checkpoint has to wait");
                conn = None;
                if let Err(RecvTimeoutError::Disconnected) = pause(written) {
                    return;
                }
                Some(IDLE)
            }
        };
    }
}

/// Waits, whatever is written in the meantime.
fn pause(written: &Receiver<()>) -> Result<(), RecvTimeoutError> {
    let end = Instant::now() + RETRY_DELAY;
    loop {
        written.recv_timeout(end.saturating_duration_since(Instant::now()))?;
    }
}

/// Brings back what is due, and says how much is left.
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
        // Each time there is less left, because the one before took less time.
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
