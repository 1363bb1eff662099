//! Text search with FTS5 over messages and titles.
//!
//! SQLite's tokenizer takes a text without spaces, such as Chinese, for one word, and only its
//! beginning could be found. The trigram tokenizer finds any three signs but no word of two, and
//! triples the index. So texts and queries in such scripts are split sign by sign before the
//! tokenizer sees them. A word is then a sequence of signs and is found anywhere.

use super::errors::SqliteError;
use crate::search::{SearchQuery, can_be_word_prefix, is_unspaced_script};
use rusqlite::{Connection, OptionalExtension, params};

/// The condition for sessions `s` that have the words `?words`.
pub(super) const CONDITION: &str = " AND s.no IN (
    SELECT ifnull((SELECT session FROM messages WHERE no = words.rowid), -words.rowid)
    FROM words WHERE words MATCH ?words)";

/// Only this much of a text is indexed: a longer one would block the writer.
const MAX_TEXT_BYTES: usize = 256 << 10;

/// About as much text as takes 5 ms.
const STEP_BYTES: usize = 32 << 10;

/// A text as the tokenizer gets it.
fn space_signs(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 2);
    for sign in text.chars() {
        if is_unspaced_script(sign) {
            out.extend([' ', sign, ' ']);
        } else {
            out.push(sign);
        }
    }
    out
}

/// The FTS5 expression of a search: all words must match.
pub(super) fn fts_expression(search: &SearchQuery) -> String {
    // Quoted words of letters and digits contain no operator.
    let words = search.words().iter().map(|word| {
        let star = if can_be_word_prefix(word) { " *" } else { "" };
        format!("\"{}\"{star}", space_signs(word).trim())
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Marks a message for indexing, or with a negative number the title of a session.
pub(super) fn mark_unindexed(conn: &Connection, no: i64) -> rusqlite::Result<()> {
    conn.prepare_cached("INSERT OR IGNORE INTO unindexed VALUES (?1)")?.execute([no])?;
    Ok(())
}

pub(super) fn has_unindexed(conn: &Connection) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM unindexed LIMIT 1")?.exists([])
}

/// Indexes some marked texts, and returns whether there may be more.
pub(super) fn index_some(conn: &Connection) -> Result<bool, SqliteError> {
    let marked: Vec<i64> = conn
        .prepare_cached("SELECT no FROM unindexed LIMIT 256")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut bytes = 0;
    for &no in &marked {
        bytes += 64 + index_text(conn, no)?;
        if bytes >= STEP_BYTES {
            return Ok(true);
        }
    }
    Ok(marked.len() == 256)
}

/// Indexes one text, and returns its length.
fn index_text(conn: &Connection, no: i64) -> Result<usize, SqliteError> {
    let source = if no < 0 {
        "SELECT title FROM sessions WHERE no = -?1"
    } else {
        "SELECT text FROM messages WHERE no = ?1"
    };
    let text: Option<String> =
        conn.prepare_cached(source)?.query_one([no], |row| row.get(0)).optional()?;
    conn.prepare_cached("DELETE FROM words WHERE rowid = ?1")?.execute([no])?;
    let text = text.unwrap_or_default();
    let text = text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or(&text);
    if !text.is_empty() {
        conn.prepare_cached("INSERT INTO words (rowid, text) VALUES (?1, ?2)")?
            .execute(params![no, space_signs(text)])?;
    }
    conn.prepare_cached("DELETE FROM unindexed WHERE no = ?1")?.execute([no])?;
    Ok(text.len())
}

#[cfg(test)]
mod tests {
    use super::{SearchQuery, space_signs};

    fn expression(typed: &str) -> Option<String> {
        SearchQuery::new(typed).unwrap().as_ref().map(super::fts_expression)
    }

    #[test]
    fn signs_of_scripts_without_spaces_stand_apart() {
        assert_eq!(space_signs("今天 ok"), " 今  天  ok");
        assert_eq!(expression("今天ok").unwrap(), "\"今  天 ok\" *");
    }

    #[test]
    fn what_people_type_is_no_query_language() {
        assert_eq!(expression("a OR \"b\" (c* ^NEAR").unwrap(), r#""a" "OR" * "b" "c" "NEAR" *"#);
        assert_eq!(expression(" -- !"), None);
        assert_eq!(expression(""), None);
    }
}
