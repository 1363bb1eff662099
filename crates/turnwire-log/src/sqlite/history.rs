//! Rows of conversation states, by which clients that send their history find their session.

use super::errors::SqliteError;
use super::sessions;
use crate::client_history::HistoryDigest;
use crate::sql_integers;
use crate::store::{HistoryMark, HistoryMatch, MAX_HISTORY_MATCHES, SessionKey};
use rusqlite::{Connection, params};

pub(super) fn insert(
    conn: &Connection,
    session: i64,
    mark: &HistoryMark,
) -> Result<(), SqliteError> {
    conn.prepare_cached(
        "INSERT INTO history (session, seq, no, client, digest) VALUES (?1, ?2,
            (SELECT count(*) FROM history WHERE session = ?1 AND seq = ?2), ?3, ?4)",
    )?
    .execute(params![
        session,
        sql_integers::position_to_sql(mark.seq),
        mark.client,
        mark.digest.0
    ])?;
    Ok(())
}

/// The sessions that have the first of these states that any session has.
pub(super) fn find(
    conn: &Connection,
    digests: &[HistoryDigest],
) -> Result<Vec<HistoryMatch>, SqliteError> {
    let mut query = conn.prepare_cached(&format!(
        "SELECT tenant, id, seq, client, updated_ms, state, sessions.history
             FROM history JOIN sessions ON sessions.no = history.session
             WHERE substr(digest, 1, 6) = substr(?1, 1, 6) AND digest = ?1
             ORDER BY history.session DESC, seq DESC LIMIT {MAX_HISTORY_MATCHES}"
    ))?;
    for &digest in digests {
        let rows = query.query_map(params![digest.0], |row| {
            let session = SessionKey::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?);
            let seq = sql_integers::seq_from_sql(row.get(2)?);
            let mark = HistoryMark { digest, seq, client: row.get(3)? };
            Ok(HistoryMatch {
                session,
                mark,
                updated_ms: row.get(4)?,
                now: sessions::read_state(row, 5)?,
            })
        })?;
        let found = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}
