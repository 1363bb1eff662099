//! Converts values between our types and the protocol's.

use crate::provider::has_failed;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::hash::{DefaultHasher, Hasher};
use turnwire_core::block::DataKind;
use turnwire_core::{
    DataBlock, ErrorType, Fields, FinishedReason, Json, Source, ToolResultState, Usage,
};

/// How much of an agent's work is shown. Also an option of the encoder, for
/// [`EncoderOptions::with`](crate::EncoderOptions::with).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DisplayMode {
    /// The answer, thinking and hints.
    #[default]
    Agent,
    /// Only the answer.
    Chat,
}

/// The text of a stopped turn.
pub const USER_STOPPED: &str = "The conversation was stopped. Send a new message to continue.";
/// The text of a failed turn that may succeed when retried.
pub const FAILED_FOR_NOW: &str = "Something went wrong. Please try again.";
/// The text of a failed turn that would fail again.
pub const FAILED: &str = "Something went wrong.";
/// The key of a tool input that is not a JSON object: its text.
pub const RAW_INPUT: &str = "raw_input";
/// The maximum length of a result's text in the stream, in characters.
pub const RESULT_CHARACTERS: usize = 500;
/// The default time to answer an approval request.
pub const APPROVAL_SECONDS: u64 = 300;

pub(super) const fn mode_name(mode: DisplayMode) -> &'static str {
    match mode {
        DisplayMode::Agent => "agent",
        DisplayMode::Chat => "chat",
    }
}

pub(super) fn parse_mode(word: &str) -> Option<DisplayMode> {
    match word {
        "agent" => Some(DisplayMode::Agent),
        "chat" => Some(DisplayMode::Chat),
        _ => None,
    }
}

/// The protocol's error codes and our error types.
const ERROR_CODES: &[(&str, ErrorType)] = &[
    ("AUTHENTICATION", ErrorType::Authentication),
    ("PERMISSION", ErrorType::Permission),
    ("RATE_LIMIT", ErrorType::RateLimit),
    ("INVALID_REQUEST", ErrorType::InvalidRequest),
    ("LLM_ERROR", ErrorType::Upstream),
    ("CONNECTION", ErrorType::Connection),
    ("INTERNAL", ErrorType::Internal),
    ("SETUP", ErrorType::Setup),
    ("UNKNOWN", ErrorType::Unknown),
];

pub(super) fn error_code(kind: &ErrorType) -> &str {
    match ERROR_CODES.iter().find(|(_, known)| known == kind) {
        Some((code, _)) => code,
        None => kind.as_str(),
    }
}

pub(super) fn error_type(code: &str) -> ErrorType {
    match ERROR_CODES.iter().find(|(known, _)| *known == code) {
        Some((_, kind)) => kind.clone(),
        None => ErrorType::from(code),
    }
}

/// Whether the same request may succeed when retried.
pub(super) fn can_retry(kind: &ErrorType) -> bool {
    matches!(kind, ErrorType::RateLimit | ErrorType::Upstream | ErrorType::Connection)
}

pub(super) fn stop_reason(reason: &FinishedReason) -> &str {
    if *reason == FinishedReason::Completed {
        "end_turn"
    } else if *reason == FinishedReason::Interrupted {
        "user_stopped"
    } else {
        reason.as_str()
    }
}

pub(super) fn finished_reason(word: &str) -> FinishedReason {
    match word {
        "" | "end_turn" => FinishedReason::Completed,
        "user_stopped" => FinishedReason::Interrupted,
        other => FinishedReason::from(other),
    }
}

/// The protocol has only these two: interrupted and denied are errors, a background task is a
/// success.
pub(super) fn result_status(state: &ToolResultState) -> &'static str {
    if has_failed(state) { "error" } else { "success" }
}

/// A tool's input as a JSON object: no input is an empty object, and other text is under
/// [`RAW_INPUT`].
pub(super) fn input_object(input: &str) -> Json {
    if input.trim().is_empty() {
        return Json::from(serde_json::Map::new());
    }
    if let Ok(fields) = serde_json::from_str::<Fields>(input)
        && raw_input(&fields).is_none()
        && let Ok(json) = Json::parse(input)
    {
        return json;
    }
    let mut raw = serde_json::Map::new();
    raw.insert(RAW_INPUT.to_owned(), input.into());
    Json::from(raw)
}

/// The text of a tool's input that [`input_object`] wrote.
pub(super) fn input_text(input: &Json) -> String {
    let raw = input.parse_as::<Fields>().ok().as_ref().and_then(raw_input);
    raw.unwrap_or_else(|| input.text().to_owned())
}

fn raw_input(fields: &Fields) -> Option<String> {
    if fields.len() == 1 { fields.get(RAW_INPUT).ok().flatten() } else { None }
}

/// A hash of an input, to detect whether it was edited.
pub(super) fn fingerprint(input: &Json) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(input.text().as_bytes());
    hasher.finish()
}

/// A time as milliseconds since 1970; UTC if it has no zone.
pub(super) fn unix_ms(text: &str) -> Option<i64> {
    if let Ok(stamp) = text.parse::<Timestamp>() {
        return Some(stamp.as_millisecond());
    }
    let civil: DateTime = text.parse().ok()?;
    Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

/// The protocol's `timestamp`: seconds since 1970, 0 if unknown.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of any real date fit")]
pub(super) fn to_seconds(ms: Option<i64>) -> f64 {
    ms.unwrap_or_default() as f64 / 1000.0
}

#[expect(clippy::cast_possible_truncation, reason = "a date that does not fit is none")]
pub(super) fn to_ms(seconds: f64) -> Option<i64> {
    let ms = (seconds * 1000.0).round();
    (ms.is_finite() && ms > 0.0).then_some(ms as i64)
}

/// A time in our format; empty if unknown.
pub(super) fn to_timestamp(ms: Option<i64>) -> String {
    let stamp = ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    stamp.map(|stamp| format!("{stamp:.3}")).unwrap_or_default()
}

pub(super) fn usage_json(usage: &Usage) -> Json {
    let known = Usage { rest: Fields::default(), ..usage.clone() };
    Json::from_value(&known).unwrap_or_else(|_| Json::from(serde_json::Map::new()))
}

/// A data block as an `attachment`.
pub(super) fn attachment(block: &DataBlock) -> Fields {
    let mut fields = Fields::default();
    fields.insert("type", "attachment");
    fields.insert_unless_empty("id", &block.id);
    let (url, media_type) = match &block.source {
        Source::Base64(source) => {
            let media_type = source.media_type.as_deref();
            let url = format!("data:{};base64,{}", media_type.unwrap_or_default(), source.data);
            (Some(url), media_type)
        }
        Source::Url(source) => (Some(source.url.clone()), source.media_type.as_deref()),
        Source::Other(_) => (None, None),
    };
    fields.insert("url", url);
    fields.insert("name", block.name.clone());
    fields.insert("mime_type", media_type.map(str::to_owned));
    match block.kind {
        DataKind::Data => {}
        DataKind::Image => fields.insert("kind", "image"),
        DataKind::Audio => fields.insert("kind", "audio"),
        DataKind::Video => fields.insert("kind", "video"),
    }
    if let Source::Other(source) = &block.source
        && let Ok(source) = Json::from_value(source)
    {
        fields.insert("source", source);
    }
    fields
}

/// The data block of an `attachment`.
pub(super) fn data_block(fields: &Fields) -> DataBlock {
    let word = |key: &str| fields.get::<String>(key).ok().flatten();
    let url = word("url").unwrap_or_default();
    let media_type = word("mime_type");
    let other = fields.get::<Source>("source").ok().flatten();
    let source = other.unwrap_or_else(|| source(&url, media_type));
    DataBlock {
        kind: match word("kind").as_deref() {
            Some("image") => DataKind::Image,
            Some("audio") => DataKind::Audio,
            Some("video") => DataKind::Video,
            _ => DataKind::Data,
        },
        id: word("id").unwrap_or_default(),
        name: word("name"),
        ..DataBlock::from_source(source)
    }
}

/// The source of a URL: the bytes of a `data:` URL, otherwise the URL.
pub(super) fn source(url: &str, media_type: Option<String>) -> Source {
    match data_url_base64(url, media_type.as_deref()) {
        Some((found, data)) => Source::base64(data, media_type.or(found)),
        None => Source::url(url, media_type),
    }
}

/// The media type and the base64 inside a `data:` URL.
fn data_url_base64<'u>(
    url: &'u str,
    media_type: Option<&str>,
) -> Option<(Option<String>, &'u str)> {
    let rest = url.strip_prefix("data:")?;
    let declared = media_type.and_then(|word| rest.strip_prefix(word)?.strip_prefix(";base64,"));
    if let Some(data) = declared {
        return Some((None, data));
    }
    let (found, data) = rest.split_once(";base64,")?;
    Some((Some(found.to_owned()).filter(|word| !word.is_empty()), data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_code_is_one_error_type() {
        for (code_word, kind) in ERROR_CODES {
            assert_eq!((error_code(kind), &error_type(code_word)), (*code_word, kind));
        }
        assert_eq!(error_type("TOOL_LIMIT"), ErrorType::Other("TOOL_LIMIT".into()));
        assert_eq!(error_code(&ErrorType::Other("TOOL_LIMIT".into())), "TOOL_LIMIT");
    }

    #[test]
    fn an_input_that_is_not_an_object_survives() {
        for input in ["[1]", "\"x\"", "{\"a\":", "7", r#"{"raw_input":"x"}"#, r#"{"a":1}"#] {
            let object = input_object(input);
            assert!(object.text().starts_with('{'), "{object:?}");
            assert_eq!(input_text(&object), input);
        }
        assert_eq!(input_object(" ").text(), "{}");
        assert_eq!(input_object("{ \"a\" : 1.10 }").text(), r#"{"a":1.10}"#);
    }

    #[test]
    fn times_are_read_with_and_without_a_zone() {
        let ms = Some(1_710_000_000_123);
        assert_eq!(unix_ms("2024-03-09T16:00:00.123Z"), ms);
        assert_eq!(unix_ms("2024-03-09T16:00:00.123456"), ms);
        assert_eq!(unix_ms("2024-03-09 16:00:00.123"), ms);
        assert_eq!(unix_ms("yesterday"), None);
        assert_eq!(to_timestamp(ms), "2024-03-09T16:00:00.123Z");
        assert_eq!(to_ms(to_seconds(ms)), ms);
        assert_eq!(to_ms(to_seconds(None)), None);
    }
}
