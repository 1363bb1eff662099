//! Parses the body of a request into events.

use crate::error::{ApiError, ApiResult};
use memchr::memchr2;
use serde_json::value::RawValue;
use std::borrow::Cow;
use turnwire_core::{Error, ErrorKind, Event, EventKind, Fields, Json, event_kinds};
use turnwire_wires::body::FrameReader;
use turnwire_wires::{Decoded, Decoder, DecoderOptions, Wire};

/// The wires whose events have ids, so that a request can be sent again.
pub(crate) const WIRES: [&str; 3] = ["turnwire", "agentscope", "agentscope-java"];

/// The events of a request.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    body: &'a str,
    pub items: Vec<BatchEvent<'a>>,
}

/// An event, and its source.
#[derive(Debug)]
pub(crate) struct BatchEvent<'a> {
    pub event: Event<'a>,
    /// The text that it was read from, if it is stored as that.
    pub text: Option<&'a str>,
    position: SourcePosition,
}

/// The position of an event in its body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SourcePosition {
    /// Bytes from the start.
    Offset(usize),
    /// The line, counted from 1.
    Line(u64),
}

impl<'a> Batch<'a> {
    /// Reads canonical events: one event a line, one event over several lines, a JSON list, or
    /// server-sent events.
    pub fn read(body: &'a str, limit: usize) -> ApiResult<Self> {
        let items = match body.trim_ascii_start().as_bytes().first() {
            Some(b'{') => read_lines(body, limit).or_else(|error| match single_object(body) {
                Some((place, text)) => Ok(vec![read_event(body, text, 0, place, limit)?]),
                None => Err(error),
            })?,
            Some(b'[') => read_list(body, limit)?,
            _ => decode_frames(
                &mut new_decoder("turnwire", None)?,
                body,
                &split_frames(body, limit)?,
            )?,
        };
        Self::new(body, items)
    }

    /// The events of a body that were decoded by another module.
    pub fn new(body: &'a str, items: Vec<BatchEvent<'a>>) -> ApiResult<Self> {
        if items.is_empty() {
            return Err(ApiError::bad_request("the body has no event")
                .hint("send one JSON object per line, or a JSON list"));
        }
        Ok(Self { body, items })
    }

    /// The ids of the replies and messages that the events belong to, without repeated neighbours.
    pub fn touched_ids(&self) -> Vec<Cow<'a, str>> {
        let mut touched: Vec<Cow<'a, str>> = Vec::new();
        for BatchEvent { event, .. } in &self.items {
            let id = match &event.kind {
                EventKind::Message(message) if !message.message.id().is_empty() => {
                    Cow::Owned(message.message.id().to_owned())
                }
                EventKind::Message(_) => event.id.clone(),
                event_kinds!(reply model_call content tool pending_call notice) => {
                    event.reply_id.clone()
                }
                event_kinds!(Custom Supersede Reset Unknown) => continue,
            };
            if touched.last() != Some(&id) && !id.is_empty() {
                touched.push(id);
            }
        }
        touched
    }

    /// Describes an event in an error message: its number, line and type.
    pub fn describe(&self, at: usize) -> String {
        let Some(item) = self.items.get(at) else { return format!("event {at}") };
        describe_event(at, item.position.line(self.body), item.event.kind.type_name())
    }
}

fn describe_event(at: usize, line: u64, word: &str) -> String {
    let word: String = word.chars().take(64).collect();
    let joint = if word.is_empty() { "" } else { ", " };
    format!("event {at} (counted from 0; line {line}{joint}{word})")
}

impl SourcePosition {
    fn line(self, body: &str) -> u64 {
        match self {
            Self::Line(line) => line,
            Self::Offset(offset) => {
                let mut before = body.as_bytes().get(..offset).unwrap_or_default();
                let mut line = 1;
                while let Some(at) = memchr2(b'\n', b'\r', before) {
                    let end = before.get(at..).unwrap_or_default();
                    let len = if end.starts_with(b"\r\n") { 2 } else { 1 };
                    before = end.get(len..).unwrap_or_default();
                    line += 1;
                }
                line
            }
        }
    }
}

/// The body as text.
pub(crate) fn read_text(bytes: &[u8]) -> ApiResult<&str> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let before = std::str::from_utf8(before).unwrap_or_default();
        let line = SourcePosition::Offset(before.len()).line(before);
        ApiError::bad_request(format!("the body is not UTF-8 on line {line}")).kind("not_utf8")
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// One event a line. The events borrow from the body.
fn read_lines(body: &str, limit: usize) -> ApiResult<Vec<BatchEvent<'_>>> {
    let mut items = Vec::new();
    let mut offset = 0;
    while let Some(rest) = body.get(offset..).filter(|rest| !rest.is_empty()) {
        let end = memchr2(b'\n', b'\r', rest.as_bytes()).unwrap_or(rest.len());
        let line = rest.get(..end).unwrap_or(rest).trim_ascii();
        if !line.is_empty() {
            items.push(read_event(body, line, items.len(), SourcePosition::Offset(offset), limit)?);
        }
        offset += end + 1;
    }
    Ok(items)
}

/// A JSON list of events, which borrow from the body.
fn read_list(body: &str, limit: usize) -> ApiResult<Vec<BatchEvent<'_>>> {
    let events = split_list(body)?.into_iter().enumerate();
    events.map(|(at, (place, text))| read_event(body, text, at, place, limit)).collect()
}

/// The single object of a body that is written over several lines.
fn single_object(body: &str) -> Option<(SourcePosition, &str)> {
    let text = body.trim_ascii();
    let (first, _) = text.split_once(['\n', '\r']).filter(|_| text.starts_with('{'))?;
    let is_json = |text: &str| serde_json::from_str::<&RawValue>(text).is_ok();
    (!is_json(first) && is_json(text)).then(|| (position_in(body, text), text))
}

fn split_list(body: &str) -> ApiResult<Vec<(SourcePosition, &str)>> {
    let list: Vec<&RawValue> = serde_json::from_str(body).map_err(|error| {
        ApiError::bad_request(format!("the body is not a JSON list: {error}"))
            .kind("not_json")
            .hint("send one JSON object per line, or a JSON list")
    })?;
    Ok(list.into_iter().map(|raw| (position_in(body, raw.get()), raw.get())).collect())
}

/// The position of a part of a body.
fn position_in(body: &str, part: &str) -> SourcePosition {
    SourcePosition::Offset(part.as_ptr().addr().saturating_sub(body.as_ptr().addr()))
}

#[inline]
fn read_event<'a>(
    body: &'a str,
    text: &'a str,
    at: usize,
    place: SourcePosition,
    limit: usize,
) -> ApiResult<BatchEvent<'a>> {
    if text.len() > limit {
        return Err(too_long(at, place.line(body), limit));
    }
    match Event::from_json(text) {
        Ok(event) if event.kind.is_known() => {
            Ok(BatchEvent { event, text: Some(text), position: place })
        }
        read => match read_legacy_event(text) {
            Some(event) => Ok(BatchEvent { event, text: None, position: place }),
            None => match read {
                Ok(event) => Ok(BatchEvent { event, text: Some(text), position: place }),
                Err(error) => match read_partial_hint(text) {
                    Some(event) => Ok(BatchEvent { event, text: None, position: place }),
                    None => Err(not_an_event(at, place.line(body), &error)),
                },
            },
        },
    }
}

/// An event with a type name of older recordings.
#[cold]
fn read_legacy_event(text: &str) -> Option<Event<'static>> {
    let events =
        new_decoder("turnwire", None).ok()?.decode_all(join_lines(text).as_bytes()).ok()?;
    events.into_iter().next().filter(|event| event.kind.is_known())
}

/// A hint without a reply or block id: its sender need not know them.
#[cold]
fn read_partial_hint(text: &str) -> Option<Event<'static>> {
    const NONE: &str = "none";
    let mut fields: Fields = Json::parse(text).ok()?.parse_as().ok()?;
    if fields.get::<String>("type").ok()?? != "HINT_BLOCK" {
        return None;
    }
    let mut is_empty = |key: &str| {
        let is_empty = fields.raw(key).is_none_or(|value| matches!(value.text(), "null" | "\"\""));
        if is_empty {
            fields.insert(key, NONE);
        }
        is_empty
    };
    let (no_reply, no_block) = (is_empty("reply_id"), is_empty("block_id"));
    let mut event = Event::from_json(Json::from_value(&fields).ok()?.text()).ok()?.into_owned();
    if no_reply {
        event.reply_id = Cow::default();
    }
    if let EventKind::Hint(hint) = &mut event.kind
        && no_block
    {
        hint.block_id.clear();
    }
    Some(event)
}

/// Between the tokens of a JSON text a line end is the same as a space.
fn join_lines(text: &str) -> Cow<'_, str> {
    match memchr2(b'\n', b'\r', text.as_bytes()) {
        Some(_) => Cow::Owned(text.replace(['\n', '\r'], " ")),
        None => Cow::Borrowed(text),
    }
}

/// The frames of a body, each with its position.
pub(crate) type BodyFrames<'a> = Vec<(SourcePosition, Cow<'a, str>)>;

/// Splits a body, in any of its forms, into frames.
pub(crate) fn split_frames(body: &str, limit: usize) -> ApiResult<BodyFrames<'_>> {
    let is_list =
        body.trim_ascii_start().starts_with('[') && !body.trim_ascii().starts_with("[DONE]");
    let whole = if is_list { split_list(body)? } else { single_object(body).into_iter().collect() };
    if is_list || !whole.is_empty() {
        return whole
            .into_iter()
            .enumerate()
            .map(|(at, (place, text))| {
                let fits = text.len() <= limit;
                fits.then(|| (place, join_lines(text)))
                    .ok_or_else(|| too_long(at, place.line(body), limit))
            })
            .collect();
    }
    let mut frames: BodyFrames<'_> = Vec::new();
    let mut problem = None;
    let mut reader = FrameReader::with_limit(limit);
    let mut each = |frame: turnwire_wires::body::Frame<'_>| match frame.text {
        Ok(text) => {
            frames.push((
                SourcePosition::Line(frame.line),
                Cow::Owned(join_lines(text).into_owned()),
            ));
        }
        // It was checked to be text, so it is too long.
        Err(_) => problem = problem.take().or(Some(too_long(frames.len(), frame.line, limit))),
    };
    reader.feed(body.as_bytes(), &mut each);
    reader.end(&mut each);
    problem.map_or(Ok(frames), Err)
}

/// A decoder of one of [`WIRES`]; in the middle of a reply if a reply id is given.
pub(crate) fn new_decoder(wire: &str, reply_id: Option<String>) -> ApiResult<Decoder> {
    let wire = Wire::named(wire).ok_or_else(|| ApiError::internal("a wire is missing"))?;
    let decoding = DecoderOptions { reply_id, ..DecoderOptions::default() };
    wire.decoder(&decoding).map_err(ApiError::internal)
}

/// Decodes the frames of a body. The first one that cannot be decoded is an error.
pub(crate) fn decode_frames(
    decoder: &mut Decoder,
    body: &str,
    frames: &BodyFrames<'_>,
) -> ApiResult<Vec<BatchEvent<'static>>> {
    let mut items = Vec::with_capacity(frames.len());
    let mut problem = None;
    for (place, frame) in frames {
        let mut each = |decoded: Decoded<'_>| match decoded.event {
            Ok(event) => {
                items.push(BatchEvent { event: event.into_owned(), text: None, position: *place });
            }
            Err(error) if problem.is_none() => {
                problem = Some(not_an_event(items.len(), place.line(body), &error));
            }
            Err(_) => {}
        };
        decoder.feed(frame.as_bytes(), &mut each);
        decoder.feed(b"\n", &mut each);
    }
    problem.map_or(Ok(items), Err)
}

#[cold]
fn too_long(at: usize, line: u64, limit: usize) -> ApiError {
    ApiError::too_large(format!("{} is larger than {limit} bytes", describe_event(at, line, "")))
        .hint("send large data as a blob (POST /v1/blobs), or in several deltas")
}

#[cold]
fn not_an_event(at: usize, line: u64, error: &Error) -> ApiError {
    let name = describe_event(at, line, "");
    if error.kind() == ErrorKind::NotJson {
        ApiError::bad_request(format!("{name} is not JSON: {error}"))
            .kind("not_json")
            .hint("send one JSON object per line, or a JSON list; nothing was stored")
    } else {
        ApiError::unprocessable(format!("{name} is not an event: {error}"))
            .kind("not_an_event")
            .hint("nothing of this request was stored")
    }
}
