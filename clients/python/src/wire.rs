//! Decoders, encoders and messages of every wire.

use crate::json::{loads, problems_at, raise, text};
use crate::lock;
use crate::msg::{Msg, copies};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, PoisonError};
use turnwire_core::{ErrorKind, Event};
use turnwire_wires::openai_chat::StreamOptions;
use turnwire_wires::{DecoderOptions, Encode, EncoderOptions, Frames, StreamScope, Wire, sse};

/// A wire as JSON for Python.
#[pyfunction]
pub(crate) fn list_wires(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let wires: Vec<serde_json::Value> = Wire::all()
        .map(|wire| {
            let losses = |losses: &[turnwire_wires::Loss]| -> Vec<&str> {
                losses.iter().map(|loss| loss.about()).collect()
            };
            serde_json::json!({
                "name": wire.name,
                "about": wire.about,
                "decodes": wire.can_decode(),
                "encodes": wire.can_encode(),
                "messages": wire.has_messages(),
                "end_marker": wire.end_marker,
                "stream_losses": losses(wire.stream_losses),
                "message_losses": losses(wire.message_losses),
            })
        })
        .collect();
    loads(py, &serde_json::Value::from(wires).to_string())
}

/// Finds a wire by its name.
fn find(name: &str) -> PyResult<&'static Wire> {
    Wire::named(name).ok_or_else(|| {
        let names: Vec<&str> = Wire::all().map(|wire| wire.name).collect();
        PyValueError::new_err(format!("unknown wire {name:?}: use one of {}", names.join(", ")))
    })
}

/// What a wire cannot do is an error of the caller.
fn refused(error: &turnwire_core::Error) -> PyErr {
    match error.kind() {
        ErrorKind::Unsupported => PyValueError::new_err(error.message().to_owned()),
        _ => raise(error),
    }
}

pub(crate) fn options(
    reply_id: Option<String>,
    block_prefix: Option<String>,
    scope: &str,
) -> PyResult<DecoderOptions> {
    let scope = match scope {
        "reply" => StreamScope::Reply,
        "model_call" => StreamScope::ModelCall,
        other => {
            let message = format!("unknown scope {other:?}: use \"reply\" or \"model_call\"");
            return Err(PyValueError::new_err(message));
        }
    };
    Ok(DecoderOptions { reply_id, block_prefix, scope, ..DecoderOptions::default() })
}

pub(crate) fn new_decoder(
    wire: &str,
    options: &DecoderOptions,
) -> PyResult<turnwire_wires::stream::Decoder> {
    find(wire)?.decoder(options).map_err(|error| refused(&error))
}

/// Decodes the bytes of one stream into events.
#[pyclass(frozen, module = "turnwire._native")]
pub(crate) struct Decoder(Mutex<Option<turnwire_wires::stream::Decoder>>);

impl Decoder {
    fn run(&self, py: Python<'_>, bytes: Option<&[u8]>) -> PyResult<(Py<PyBytes>, Vec<Py<PyAny>>)> {
        let done = py.detach(|| {
            let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let (mut out, mut problems) = (Vec::new(), Vec::new());
            let mut each = |decoded: turnwire_wires::Decoded<'_>| match decoded.event {
                Ok(event) => {
                    // Maps with string keys can always be written.
                    let _ = serde_json::to_writer(&mut out, &event);
                    out.push(b'\n');
                }
                Err(error) => problems.push((decoded.line, error)),
            };
            match bytes {
                Some(bytes) => slot.as_mut()?.feed(bytes, &mut each),
                None => slot.take()?.end(&mut each),
            }
            Some((out, problems))
        });
        let Some((out, problems)) = done else {
            return Err(PyValueError::new_err("the stream has ended; use a new Decoder"));
        };
        Ok((PyBytes::new(py, &out).unbind(), problems_at(py, &problems)))
    }
}

#[pymethods]
impl Decoder {
    #[new]
    #[pyo3(signature = (wire, reply_id=None, block_prefix=None, scope="reply"))]
    fn new(
        wire: &str,
        reply_id: Option<String>,
        block_prefix: Option<String>,
        scope: &str,
    ) -> PyResult<Self> {
        let decoder = new_decoder(wire, &options(reply_id, block_prefix, scope)?)?;
        Ok(Self(Mutex::new(Some(decoder))))
    }

    /// The events that these bytes complete, one a line, and what could not be read.
    fn feed(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<(Py<PyBytes>, Vec<Py<PyAny>>)> {
        self.run(py, Some(bytes))
    }

    /// Ends the stream.
    fn end(&self, py: Python<'_>) -> PyResult<(Py<PyBytes>, Vec<Py<PyAny>>)> {
        self.run(py, None)
    }
}

/// Decodes a whole body into events, one a line. The first problem is raised.
#[pyfunction]
#[pyo3(signature = (wire, body, reply_id=None, block_prefix=None, scope="reply"))]
pub(crate) fn decode(
    py: Python<'_>,
    wire: &str,
    body: &Bound<'_, PyAny>,
    reply_id: Option<String>,
    block_prefix: Option<String>,
    scope: &str,
) -> PyResult<Py<PyBytes>> {
    let body = text(body)?;
    let body = body.as_str()?.as_bytes();
    let decoder = new_decoder(wire, &options(reply_id, block_prefix, scope)?)?;
    let events = py.detach(|| decoder.decode_all(body)).map_err(|error| raise(&error))?;
    let lines: Vec<String> = events.iter().map(|event| event.to_json() + "\n").collect();
    Ok(PyBytes::new(py, lines.concat().as_bytes()).unbind())
}

/// With the tokens that a reply took, as `turnwire convert` writes them.
fn encoder_options(
    session_id: Option<String>,
    model: Option<String>,
    id: Option<String>,
) -> EncoderOptions {
    let options = EncoderOptions { session_id, model, id, ..EncoderOptions::default() };
    options.with(StreamOptions { include_usage: true })
}

/// Encodes events as the frames of a wire.
#[pyclass(frozen, module = "turnwire._native")]
pub(crate) struct Encoder(Mutex<EncoderState>);

struct EncoderState {
    encoder: Box<dyn Encode>,
    frames: Frames,
}

impl EncoderState {
    /// The frames so far, and room for new ones.
    fn take(&mut self) -> Vec<(&'static str, String)> {
        let frames = self.frames.iter().map(|(name, text)| (name, text.to_owned())).collect();
        self.frames.clear();
        frames
    }
}

#[pymethods]
impl Encoder {
    #[new]
    #[pyo3(signature = (wire, session_id=None, model=None, id=None))]
    fn new(
        wire: &str,
        session_id: Option<String>,
        model: Option<String>,
        id: Option<String>,
    ) -> PyResult<Self> {
        let options = encoder_options(session_id, model, id);
        let encoder = find(wire)?.encoder(&options).map_err(|error| refused(&error))?;
        Ok(Self(Mutex::new(EncoderState { encoder, frames: Frames::default() })))
    }

    /// The frames of an event: name and data.
    fn encode(
        &self,
        py: Python<'_>,
        event: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<(&'static str, String)>> {
        let json = text(event)?;
        let event = Event::from_json(json.as_str()?).map_err(|error| raise(&error))?;
        let mut state = lock(py, &self.0);
        let EncoderState { encoder, frames } = &mut *state;
        encoder.encode(&event, frames);
        Ok(state.take())
    }

    /// The frames that end the stream.
    fn end(&self, py: Python<'_>) -> Vec<(&'static str, String)> {
        let mut state = lock(py, &self.0);
        let EncoderState { encoder, frames } = &mut *state;
        encoder.end(frames);
        state.take()
    }
}

/// A whole stream of events as the body of another wire.
#[pyfunction]
#[pyo3(signature = (wire, events, session_id=None, model=None, id=None))]
pub(crate) fn encode(
    py: Python<'_>,
    wire: &str,
    events: &Bound<'_, PyAny>,
    session_id: Option<String>,
    model: Option<String>,
    id: Option<String>,
) -> PyResult<Py<PyBytes>> {
    let body = text(events)?;
    let body = body.as_str()?.as_bytes();
    let wire = find(wire)?;
    let options = encoder_options(session_id, model, id);
    let mut encoder = wire.encoder(&options).map_err(|error| refused(&error))?;
    let decoder = new_decoder("turnwire", &DecoderOptions::default())?;
    let out = py.detach(|| -> turnwire_core::Result<String> {
        let (mut frames, mut out) = (Frames::default(), String::new());
        for event in decoder.decode_all(body)? {
            encoder.encode(&event, &mut frames);
            sse::write(&frames, None, &mut out);
            frames.clear();
        }
        encoder.end(&mut frames);
        if let Some(marker) = wire.end_marker {
            frames.push_text("", marker);
        }
        sse::write(&frames, None, &mut out);
        Ok(out)
    });
    Ok(PyBytes::new(py, out.map_err(|error| raise(&error))?.as_bytes()).unbind())
}

/// Reads messages in the form of a wire.
#[pyfunction]
pub(crate) fn read_messages(wire: &str, messages: &Bound<'_, PyAny>) -> PyResult<Vec<Msg>> {
    let json = text(messages)?;
    let read = find(wire)?.decode_messages(json.as_str()?).map_err(|error| refused(&error))?;
    Ok(read.into_iter().map(Msg::wrap).collect())
}

/// Writes messages in the form of a wire.
#[pyfunction]
pub(crate) fn write_messages<'py>(
    py: Python<'py>,
    wire: &str,
    messages: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let messages = copies(messages)?;
    let written = find(wire)?.encode_messages(&messages).map_err(|error| refused(&error))?;
    loads(py, &serde_json::to_string(&written).unwrap_or_default())
}
