//! Folds a stream: interleaved replies, and whole messages between them.

use crate::json::{problem, problems_at, raise, raise_at, text};
use crate::msg::{self, Msg, outcome_word};
use crate::{lock, wire};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};
use turnwire_core::{Error, Event, Outcome};
use turnwire_wires::Decoded;

/// Folds a stream into its messages.
#[pyclass(frozen, module = "turnwire")]
pub(crate) struct Folder(Mutex<turnwire_core::Folder>);

/// How many problems one call reports at most.
const MAX_PROBLEMS: usize = 1000;

#[pymethods]
impl Folder {
    #[new]
    #[pyo3(signature = (messages=None))]
    fn new(messages: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let messages = messages.map(msg::copies).transpose()?.unwrap_or_default();
        Ok(Self(Mutex::new(messages.into_iter().collect())))
    }

    /// Loads what `dump` wrote.
    #[staticmethod]
    fn load(state: &Bound<'_, PyAny>) -> PyResult<Self> {
        let json = text(state)?;
        let folder = turnwire_core::Folder::load(json.as_str()?).map_err(|error| raise(&error))?;
        Ok(Self(Mutex::new(folder)))
    }

    fn dump(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).dump())
    }

    fn push(&self, py: Python<'_>, event: &Bound<'_, PyAny>) -> PyResult<&'static str> {
        let json = text(event)?;
        let event = Event::from_json(json.as_str()?).map_err(|error| raise(&error))?;
        lock(py, &self.0).push(&event).map(outcome_word).map_err(|error| raise(&error))
    }

    fn push_tolerant(
        &self,
        py: Python<'_>,
        event: &Bound<'_, PyAny>,
    ) -> PyResult<(&'static str, Option<Py<PyAny>>)> {
        let json = text(event)?;
        let event = match Event::from_json(json.as_str()?) {
            Ok(event) => event,
            Err(error) => return Ok(("skipped", Some(problem(py, &error)))),
        };
        let (outcome, error) = lock(py, &self.0).push_tolerant(&event);
        Ok((outcome_word(outcome), error.map(|error| problem(py, &error))))
    }

    /// Folds a whole body, with the GIL released. The first problem is raised; what came before it is folded. Returns how
    /// many events were applied.
    #[pyo3(signature = (body, *, wire="turnwire"))]
    fn feed(&self, py: Python<'_>, body: &Bound<'_, PyAny>, wire: &str) -> PyResult<usize> {
        let (applied, problems) = self.feed_body(py, body, wire, true)?;
        match problems.first() {
            Some((line, error)) => Err(raise_at(py, *line, error)),
            None => Ok(applied),
        }
    }

    /// The same, but applies what fits; returns the problems.
    #[pyo3(signature = (body, *, wire="turnwire"))]
    fn feed_tolerant(
        &self,
        py: Python<'_>,
        body: &Bound<'_, PyAny>,
        wire: &str,
    ) -> PyResult<Vec<Py<PyAny>>> {
        let (_, problems) = self.feed_body(py, body, wire, false)?;
        Ok(problems_at(py, &problems))
    }

    /// Copies of the messages, superseded ones included.
    fn messages(&self, py: Python<'_>) -> Vec<Msg> {
        lock(py, &self.0).messages().cloned().map(Msg::wrap).collect()
    }

    /// Copies of the messages that count as history.
    fn history(&self, py: Python<'_>) -> Vec<Msg> {
        lock(py, &self.0).history().cloned().map(Msg::wrap).collect()
    }

    /// The ids of all messages, without copying them.
    fn ids(&self, py: Python<'_>) -> Vec<String> {
        lock(py, &self.0).messages().map(|msg| msg.id().to_owned()).collect()
    }

    fn superseded(&self, py: Python<'_>) -> Vec<String> {
        let mut ids: Vec<String> = lock(py, &self.0).superseded().map(str::to_owned).collect();
        ids.sort_unstable();
        ids
    }

    fn get(&self, py: Python<'_>, id: &str) -> Option<Msg> {
        lock(py, &self.0).get(id).cloned().map(Msg::wrap)
    }

    /// A message with the state of its fold, as `Msg` loads it.
    fn add(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        cursor: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let msg = msg::read(message, Some(cursor))?;
        let mut folder = lock(py, &self.0);
        let known = std::mem::take(&mut *folder);
        *folder = known.into_messages().chain([msg]).collect();
        Ok(())
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        lock(py, &self.0).messages().len()
    }
}

impl Folder {
    fn feed_body(
        &self,
        py: Python<'_>,
        body: &Bound<'_, PyAny>,
        wire: &str,
        strict: bool,
    ) -> PyResult<(usize, Vec<(u64, Error)>)> {
        let body = text(body)?;
        let body = body.as_str()?.as_bytes();
        let mut decoder = wire::new_decoder(wire, &wire::options(None, None, "reply")?)?;
        Ok(py.detach(|| {
            let mut folder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let (mut applied, mut problems) = (0, Vec::new());
            let mut each = |decoded: Decoded<'_>| {
                if strict && !problems.is_empty() {
                    return;
                }
                let (outcome, error) = match decoded.event {
                    Err(error) => (Outcome::Skipped, Some(error)),
                    Ok(event) if strict => match folder.push(&event) {
                        Ok(outcome) => (outcome, None),
                        Err(error) => (Outcome::Skipped, Some(error)),
                    },
                    Ok(event) => folder.push_tolerant(&event),
                };
                applied += usize::from(outcome == Outcome::Applied);
                if let Some(error) = error.filter(|_| problems.len() < MAX_PROBLEMS) {
                    problems.push((decoded.line, error));
                }
            };
            decoder.feed(body, &mut each);
            decoder.end(&mut each);
            (applied, problems)
        }))
    }
}
