//! The body of a request into events.

use crate::error::{ApiError, ApiResult};
use memchr::memchr2;
use serde_json::value::RawValue;
use std::borrow::Cow;
use turnwire_core::{Error, ErrorKind, Event, EventKind, Fields, Json};
use turnwire_wires::body::FrameReader;
use turnwire_wires::{Decoded, Decoder, DecoderOptions, Wire};

/// The wires whose events have ids, so that sending them again is harmless.
pub(crate) const WIRES: [&str; 3] = ["turnwire", "agentscope", "agentscope-java"];

/// The events of a request.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    body: &'a str,
    pub items: Vec<Item<'a>>,
}

/// An event, and where it came from.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    pub event: Event<'a>,
    /// The text that it was read from, where that is how it is stored.
    pub text: Option<&'a str>,
    place: Place,
}

/// Where an event stands in its body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// So many bytes from the start.
    Offset(usize),
    /// On this line, counted from 1.
    Line(u64),
}

impl<'a> Batch<'a> {
    /// Reads the canonical form: one event a line, one over several lines, a list, or server-sent
    /// events.
    pub fn read(body: &'a str, limit: usize) -> ApiResult<Self> {
        let items = match body.trim_ascii_start().as_bytes().first() {
            Some(b'{') => lines(body, limit).or_else(|error| match over_lines(body) {
                Some((place, text)) => Ok(vec![one(body, text, 0, place, limit)?]),
                None => Err(error),
            })?,
            Some(b'[') => list(body, limit)?,
            _ => decode(&mut decoder("turnwire", None)?, body, &frames(body, limit)?)?,
        };
        Self::new(body, items)
    }

    /// The events of a body that were decoded elsewhere.
    pub fn new(body: &'a str, items: Vec<Item<'a>>) -> ApiResult<Self> {
        if items.is_empty() {
            return Err(ApiError::bad_request("there is no event in the body")
                .hint("send one JSON object a line, or a JSON list of them"));
        }
        Ok(Self { body, items })
    }

    /// The ids of the replies and messages that the events are about, without neighbours that are
    /// the same.
    pub fn touched(&self) -> Vec<Cow<'a, str>> {
        let mut touched: Vec<Cow<'a, str>> = Vec::new();
        for Item { event, .. } in &self.items {
            let id = match &event.kind {
                EventKind::Message(message) if !message.message.id().is_empty() => {
                    Cow::Owned(message.message.id().to_owned())
                }
                EventKind::Message(_) => event.id.clone(),
                kind if kind.is_part_of_reply() => event.reply_id.clone(),
                _ => continue,
            };
            if touched.last() != Some(&id) && !id.is_empty() {
                touched.push(id);
            }
        }
        touched
    }

    /// Which event it is, for people: its number, line and type.
    pub fn name(&self, at: usize) -> String {
        let Some(item) = self.items.get(at) else { return format!("event {at}") };
        name(at, item.place.line(self.body), item.event.kind.type_name())
    }
}

fn name(at: usize, line: u64, word: &str) -> String {
    let word: String = word.chars().take(64).collect();
    let joint = if word.is_empty() { "" } else { ", " };
    format!("event {at} (counted from 0; line {line}{joint}{word})")
}

impl Place {
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

/// The text of a body.
pub(crate) fn text(bytes: &[u8]) -> ApiResult<&str> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let before = std::str::from_utf8(before).unwrap_or_default();
        let line = Place::Offset(before.len()).line(before);
        ApiError::bad_request(format!("the body is not UTF-8 on line {line}")).kind("not_utf8")
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// One event a line, which borrows from it.
fn lines(body: &str, limit: usize) -> ApiResult<Vec<Item<'_>>> {
    let mut items = Vec::new();
    let mut offset = 0;
    while let Some(rest) = body.get(offset..).filter(|rest| !rest.is_empty()) {
        let end = memchr2(b'\n', b'\r', rest.as_bytes()).unwrap_or(rest.len());
        let line = rest.get(..end).unwrap_or(rest).trim_ascii();
        if !line.is_empty() {
            items.push(one(body, line, items.len(), Place::Offset(offset), limit)?);
        }
        offset += end + 1;
    }
    Ok(items)
}

/// A JSON list of events, which borrow from it.
fn list(body: &str, limit: usize) -> ApiResult<Vec<Item<'_>>> {
    let events = split_list(body)?.into_iter().enumerate();
    events.map(|(at, (place, text))| one(body, text, at, place, limit)).collect()
}

/// The one object of a body that is written over several lines, as people and formatters do.
fn over_lines(body: &str) -> Option<(Place, &str)> {
    let text = body.trim_ascii();
    let (first, _) = text.split_once(['\n', '\r']).filter(|_| text.starts_with('{'))?;
    let is_json = |text: &str| serde_json::from_str::<&RawValue>(text).is_ok();
    (!is_json(first) && is_json(text)).then(|| (place_in(body, text), text))
}

fn split_list(body: &str) -> ApiResult<Vec<(Place, &str)>> {
    let list: Vec<&RawValue> = serde_json::from_str(body).map_err(|error| {
        ApiError::bad_request(format!("the body is not a JSON list: {error}"))
            .kind("not_json")
            .hint("send one JSON object a line, or a JSON list of them")
    })?;
    Ok(list.into_iter().map(|raw| (place_in(body, raw.get()), raw.get())).collect())
}

/// Where a part of a body begins.
fn place_in(body: &str, part: &str) -> Place {
    Place::Offset(part.as_ptr().addr().saturating_sub(body.as_ptr().addr()))
}

#[inline]
fn one<'a>(
    body: &'a str,
    text: &'a str,
    at: usize,
    place: Place,
    limit: usize,
) -> ApiResult<Item<'a>> {
    if text.len() > limit {
        return Err(too_long(at, place.line(body), limit));
    }
    match Event::from_json(text) {
        Ok(event) if event.kind.is_known() => Ok(Item { event, text: Some(text), place }),
        read => match older(text) {
            Some(event) => Ok(Item { event, text: None, place }),
            None => match read {
                Ok(event) => Ok(Item { event, text: Some(text), place }),
                Err(error) => match hint(text) {
                    Some(event) => Ok(Item { event, text: None, place }),
                    None => Err(no_event(at, place.line(body), &error)),
                },
            },
        },
    }
}

/// An event under a name that it had in older recordings.
#[cold]
fn older(text: &str) -> Option<Event<'static>> {
    let events = decoder("turnwire", None).ok()?.decode_all(on_one_line(text).as_bytes()).ok()?;
    events.into_iter().next().filter(|event| event.kind.is_known())
}

/// A hint that names no reply, or no block. Whoever sends one need not know what there is.
#[cold]
fn hint(text: &str) -> Option<Event<'static>> {
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

/// Line ends stand between the tokens of a JSON text only, where a space does as well.
fn on_one_line(text: &str) -> Cow<'_, str> {
    match memchr2(b'\n', b'\r', text.as_bytes()) {
        Some(_) => Cow::Owned(text.replace(['\n', '\r'], " ")),
        None => Cow::Borrowed(text),
    }
}

/// What a body is made of, each with its line.
pub(crate) type Frames<'a> = Vec<(Place, Cow<'a, str>)>;

/// Cuts a body in any of its forms.
pub(crate) fn frames(body: &str, limit: usize) -> ApiResult<Frames<'_>> {
    let is_list =
        body.trim_ascii_start().starts_with('[') && !body.trim_ascii().starts_with("[DONE]");
    let whole = if is_list { split_list(body)? } else { over_lines(body).into_iter().collect() };
    if is_list || !whole.is_empty() {
        return whole
            .into_iter()
            .enumerate()
            .map(|(at, (place, text))| {
                let fits = text.len() <= limit;
                fits.then(|| (place, on_one_line(text)))
                    .ok_or_else(|| too_long(at, place.line(body), limit))
            })
            .collect();
    }
    let mut frames: Frames<'_> = Vec::new();
    let mut problem = None;
    let mut reader = FrameReader::with_limit(limit);
    let mut each = |frame: turnwire_wires::body::Frame<'_>| match frame.text {
        Ok(text) => {
            frames.push((Place::Line(frame.line), Cow::Owned(on_one_line(text).into_owned())));
        }
        // It was checked to be text, so it is too long.
        Err(_) => problem = problem.take().or(Some(too_long(frames.len(), frame.line, limit))),
    };
    reader.feed(body.as_bytes(), &mut each);
    reader.end(&mut each);
    problem.map_or(Ok(frames), Err)
}

/// A decoder of one of [`WIRES`], in the middle of a reply where one is given.
pub(crate) fn decoder(wire: &str, reply_id: Option<String>) -> ApiResult<Decoder> {
    let wire = Wire::named(wire).ok_or_else(|| ApiError::internal("a wire is gone"))?;
    let decoding = DecoderOptions { reply_id, ..DecoderOptions::default() };
    wire.decoder(&decoding).map_err(ApiError::internal)
}

/// Decodes the frames of a body. What cannot be decoded is named.
pub(crate) fn decode(
    decoder: &mut Decoder,
    body: &str,
    frames: &Frames<'_>,
) -> ApiResult<Vec<Item<'static>>> {
    let mut items = Vec::with_capacity(frames.len());
    let mut problem = None;
    for (place, frame) in frames {
        let mut each = |decoded: Decoded<'_>| match decoded.event {
            Ok(event) => {
                items.push(Item { event: event.into_owned(), text: None, place: *place });
            }
            Err(error) if problem.is_none() => {
                problem = Some(no_event(items.len(), place.line(body), &error));
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
    ApiError::too_large(format!("{} has more than {limit} bytes", name(at, line, "")))
        .hint("send what is large as a blob (POST /v1/blobs), or in several deltas")
}

#[cold]
fn no_event(at: usize, line: u64, error: &Error) -> ApiError {
    let name = name(at, line, "");
    match error.kind() {
        ErrorKind::NotJson => ApiError::bad_request(format!("{name} is not JSON: {error}"))
            .kind("not_json")
            .hint("send one JSON object a line, or a JSON list of them; nothing was stored"),
        _ => ApiError::unprocessable(format!("{name} is no event: {error}"))
            .kind("not_an_event")
            .hint("nothing of this request was stored"),
    }
}
