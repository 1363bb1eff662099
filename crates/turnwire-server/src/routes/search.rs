//! `GET /v1/sessions/{s}/search`: the messages of a session that a search finds, with excerpts.

use super::request;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiResult;
use crate::extract::{Path, Query};
use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use turnwire_core::Seq;
use turnwire_log::SearchQuery;
use turnwire_log::store::{MessageQuery, StoredMessage};

const DEFAULT_HITS: usize = 3;
const MAX_HITS: usize = 50;
/// How many messages are searched: the latest.
const MAX_SCANNED: usize = 10_000;
const BATCH: usize = 64;
const BATCH_BYTES: usize = 1 << 20;
/// How many characters of the text an excerpt has before and after the first word found.
const BEFORE: usize = 40;
const AFTER: usize = 100;

/// The query of `GET …/search`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct SearchMessagesQuery {
    /// Words that a message must have.
    q: String,
    /// The most messages to return: by default 3, at most 50.
    limit: Option<usize>,
}

/// The messages found.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HitList {
    /// Latest first.
    hits: Vec<Hit>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Hit {
    message_id: String,
    /// The first event of the message.
    #[schemars(with = "u64")]
    seq: Seq,
    /// The text around the first word found, on one line.
    excerpt: String,
}

/// `GET /v1/sessions/{s}/search`
pub async fn search_messages(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<SearchMessagesQuery>,
) -> ApiResult<impl IntoResponse> {
    let limit = query.limit.unwrap_or(DEFAULT_HITS).clamp(1, MAX_HITS);
    let session = request::find_session(&app, &caller, &id).await?;
    let mut hits = Vec::new();
    let Some(search) = super::sessions::parse_search(&query.q)? else {
        return Ok(Json(HitList { hits }));
    };
    let _permit = app.searches.acquire(caller.tenant()).await?;
    let words = lower_case_words(&search);
    let (mut before, mut scanned) = (None, 0);
    while hits.len() < limit && scanned < MAX_SCANNED {
        let query = MessageQuery {
            before,
            limit: BATCH,
            max_bytes: Some(BATCH_BYTES),
            ..MessageQuery::default()
        };
        let read = session.list_messages(&query).await?;
        let Some(first) = read.first() else { break };
        before = Some(first.first);
        scanned += read.len();
        let found = read.iter().rev().filter(|message| !message.superseded);
        hits.extend(found.filter_map(|message| find_in(message, &words)));
    }
    hits.truncate(limit);
    Ok(Json(HitList { hits }))
}

fn lower_case_words(search: &SearchQuery) -> Vec<String> {
    search.words().iter().map(|word| word.to_lowercase()).collect()
}

/// The excerpt of a message that has all words. Letters with accents must match here.
fn find_in(message: &StoredMessage, words: &[String]) -> Option<Hit> {
    // One lower-case letter for each character, so that places are the same in both texts.
    let lower: Vec<char> =
        message.text.chars().map(|sign| sign.to_lowercase().next().unwrap_or(sign)).collect();
    let mut at = usize::MAX;
    for word in words {
        let word: Vec<char> = word.chars().collect();
        at = at.min(find_word(&lower, &word)?);
    }
    let from = at.saturating_sub(BEFORE);
    let text: String = message.text.chars().skip(from).take(at - from + AFTER).collect();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let start = if from > 0 { "…" } else { "" };
    let end = if lower.len() > at + AFTER { "…" } else { "" };
    let excerpt = format!("{start}{text}{end}");
    Some(Hit { message_id: message.id.clone(), seq: message.first, excerpt })
}

/// Where a word begins in a text; a single letter only as a word of its own.
fn find_word(text: &[char], word: &[char]) -> Option<usize> {
    let is_letter =
        |at: Option<usize>| at.and_then(|at| text.get(at)).is_some_and(|c| c.is_alphanumeric());
    let places = text.windows(word.len().max(1)).enumerate().filter(|(_, part)| *part == word);
    places.map(|(at, _)| at).find(|at| {
        let begins =
            word.first().is_some_and(|sign| turnwire_log::search::is_unspaced_script(*sign))
                || !is_letter(at.checked_sub(1));
        begins && (word.len() > 1 || !is_letter(Some(at + 1)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str, words: &[&str]) -> Option<usize> {
        let text: Vec<char> = text.chars().collect();
        let places = words.iter().map(|word| find_word(&text, &word.chars().collect::<Vec<_>>()));
        places.collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    #[test]
    fn words_match_at_their_beginning_and_a_single_letter_only_as_a_word() {
        assert_eq!(find("soup of leeks", &["leek"]), Some(8));
        assert_eq!(find("soup of leeks", &["eek"]), None);
        assert_eq!(find("a plan", &["a"]), Some(0));
        assert_eq!(find("plan as is", &["a"]), None);
        assert_eq!(find("soup of leeks", &["leeks", "soup"]), Some(0));
    }
}
