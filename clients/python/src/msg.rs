//! One message. The fold changes it in place, so that a long reply costs only the bytes of its events.

use crate::json::{loads, problem, raise, text};
use crate::lock;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyType};
use std::sync::Mutex;
use turnwire_core::{BlockType, ContentBlock, Event, Outcome};

/// One message, with the state of its fold.
#[pyclass(frozen, module = "turnwire")]
pub(crate) struct Msg(Mutex<turnwire_core::Msg>);

impl Msg {
    pub(crate) fn wrap(msg: turnwire_core::Msg) -> Self {
        Self(Mutex::new(msg))
    }

    pub(crate) fn copy(&self, py: Python<'_>) -> turnwire_core::Msg {
        lock(py, &self.0).clone()
    }
}

/// Copies of the messages of an iterable.
pub(crate) fn copies(messages: &Bound<'_, PyAny>) -> PyResult<Vec<turnwire_core::Msg>> {
    let py = messages.py();
    messages.try_iter()?.map(|msg| Ok(msg?.cast::<Msg>()?.get().copy(py))).collect()
}

/// Reads a message, and the state of its fold if there is one.
pub(crate) fn read(
    message: &Bound<'_, PyAny>,
    cursor: Option<&Bound<'_, PyAny>>,
) -> PyResult<turnwire_core::Msg> {
    let json = text(message)?;
    let msg = turnwire_core::Msg::from_json(json.as_str()?).map_err(|error| raise(&error))?;
    let Some(cursor) = cursor else { return Ok(msg) };
    let cursor = serde_json::from_str(text(cursor)?.as_str()?).map_err(|error| {
        pyo3::exceptions::PyValueError::new_err(format!("not a cursor: {error}"))
    })?;
    Ok(msg.with_cursor(cursor))
}

/// The word of an outcome.
pub(crate) fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Applied => "applied",
        Outcome::Repeated => "repeated",
        Outcome::Ignored => "ignored",
        Outcome::Skipped => "skipped",
    }
}

#[pymethods]
impl Msg {
    #[new]
    #[pyo3(signature = (json, cursor=None))]
    fn new(json: &Bound<'_, PyAny>, cursor: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        read(json, cursor).map(Self::wrap)
    }

    /// A user's message: text, or text and data blocks.
    #[staticmethod]
    #[pyo3(signature = (content, *, name="user", id=None, metadata=None))]
    fn user(
        content: &Bound<'_, PyAny>,
        name: &str,
        id: Option<&str>,
        metadata: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        build("user", content, name, id, metadata)
    }

    /// An agent's message.
    #[staticmethod]
    #[pyo3(signature = (content, *, name="assistant", id=None, metadata=None))]
    fn assistant(
        content: &Bound<'_, PyAny>,
        name: &str,
        id: Option<&str>,
        metadata: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        build("assistant", content, name, id, metadata)
    }

    /// A system prompt.
    #[staticmethod]
    #[pyo3(signature = (content, *, name="system", id=None, metadata=None))]
    fn system(
        content: &Bound<'_, PyAny>,
        name: &str,
        id: Option<&str>,
        metadata: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        build("system", content, name, id, metadata)
    }

    /// An empty message for the events of a reply.
    #[staticmethod]
    #[pyo3(signature = (id, name=""))]
    fn reply(id: &str, name: &str) -> Self {
        Self::wrap(turnwire_core::Msg::reply(id, name))
    }

    fn append_event(&self, py: Python<'_>, event: &Bound<'_, PyAny>) -> PyResult<&'static str> {
        let json = text(event)?;
        let event = Event::from_json(json.as_str()?).map_err(|error| raise(&error))?;
        lock(py, &self.0).append_event(&event).map(outcome_word).map_err(|error| raise(&error))
    }

    fn append_event_tolerant(
        &self,
        py: Python<'_>,
        event: &Bound<'_, PyAny>,
    ) -> PyResult<(&'static str, Option<Py<PyAny>>)> {
        let json = text(event)?;
        let event = match Event::from_json(json.as_str()?) {
            Ok(event) => event,
            Err(error) => return Ok(("skipped", Some(problem(py, &error)))),
        };
        let (outcome, error) = lock(py, &self.0).append_event_tolerant(&event);
        Ok((outcome_word(outcome), error.map(|error| problem(py, &error))))
    }

    #[getter]
    fn id(&self, py: Python<'_>) -> String {
        lock(py, &self.0).id().to_owned()
    }

    #[getter]
    fn name(&self, py: Python<'_>) -> String {
        lock(py, &self.0).name().to_owned()
    }

    #[getter]
    fn role(&self, py: Python<'_>) -> &'static str {
        lock(py, &self.0).role().as_str()
    }

    #[getter]
    fn created_at(&self, py: Python<'_>) -> String {
        lock(py, &self.0).created_at().to_owned()
    }

    #[getter]
    fn finished_at(&self, py: Python<'_>) -> Option<String> {
        lock(py, &self.0).finished_at().map(str::to_owned)
    }

    #[getter]
    fn finished_reason(&self, py: Python<'_>) -> Option<String> {
        lock(py, &self.0).finished_reason().map(|reason| reason.as_str().to_owned())
    }

    #[getter]
    fn content<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.get_content_blocks(py, None)
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let json = dump(lock(py, &self.0).metadata());
        loads(py, &json)
    }

    #[getter]
    fn usage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let json = dump(&lock(py, &self.0).usage());
        loads(py, &json)
    }

    #[getter]
    fn error<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let json = dump(&lock(py, &self.0).error());
        loads(py, &json)
    }

    #[getter]
    fn structured_output<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let json = dump(&lock(py, &self.0).structured_output());
        loads(py, &json)
    }

    #[pyo3(signature = (separator="\n"))]
    fn get_text_content(&self, py: Python<'_>, separator: &str) -> Option<String> {
        lock(py, &self.0).text(separator)
    }

    /// The blocks of one type, or all.
    #[pyo3(signature = (r#type=None))]
    fn get_content_blocks<'py>(
        &self,
        py: Python<'py>,
        r#type: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let json = {
            let msg = lock(py, &self.0);
            let blocks: Vec<&ContentBlock> =
                msg.content().iter().filter(|block| is_of_type(block, r#type)).collect();
            dump(&blocks)
        };
        loads(py, &json)
    }

    #[pyo3(signature = (r#type=None))]
    fn has_content_blocks(&self, py: Python<'_>, r#type: Option<&str>) -> bool {
        lock(py, &self.0).content().iter().any(|block| is_of_type(block, r#type))
    }

    fn to_json(&self, py: Python<'_>) -> String {
        lock(py, &self.0).to_json()
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        loads(py, &self.to_json(py))
    }

    /// The state of the fold.
    fn cursor<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        loads(py, &self.cursor_json(py))
    }

    fn __eq__(&self, py: Python<'_>, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.to_json(py) == other.to_json(py)
    }

    fn __copy__(&self, py: Python<'_>) -> Self {
        Self::wrap(self.copy(py))
    }

    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> Self {
        self.__copy__(py)
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> (Bound<'py, PyType>, (Bound<'py, PyBytes>, String)) {
        let json = PyBytes::new(py, self.to_json(py).as_bytes());
        (py.get_type::<Self>(), (json, self.cursor_json(py)))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let msg = lock(py, &self.0);
        let (role, name, id) = (msg.role(), msg.name(), msg.id());
        let text: String = msg.text(" ").unwrap_or_default().chars().take(40).collect();
        let blocks = msg.content().len();
        format!("<Msg {role} {name:?} id={id:?} blocks={blocks} {text:?}>")
    }
}

impl Msg {
    fn cursor_json(&self, py: Python<'_>) -> String {
        dump(&lock(py, &self.0).cursor())
    }
}

/// Writes a value of the core, which never fails: every key is a string and every value is plain.
fn dump<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A new message. Without an id it has none: the server gives it one.
fn build(
    role: &str,
    content: &Bound<'_, PyAny>,
    name: &str,
    id: Option<&str>,
    metadata: Option<&Bound<'_, PyAny>>,
) -> PyResult<Msg> {
    let fields = PyDict::new(content.py());
    fields.set_item("role", role)?;
    fields.set_item("name", name)?;
    fields.set_item("content", content)?;
    if let Some(id) = id {
        fields.set_item("id", id)?;
    }
    if let Some(metadata) = metadata {
        fields.set_item("metadata", metadata)?;
    }
    read(fields.as_any(), None).map(Msg::wrap)
}

/// Whether a block is of this type, which Turnwire may not know; `None` is any.
fn is_of_type(block: &ContentBlock, word: Option<&str>) -> bool {
    match (word, block.block_type()) {
        (None, _) => true,
        (Some(word), BlockType::Other) => {
            let json = serde_json::to_value(block).unwrap_or_default();
            json.get("type").and_then(|found| found.as_str()) == Some(word)
        }
        (Some(word), known) => known.as_str() == word,
    }
}
