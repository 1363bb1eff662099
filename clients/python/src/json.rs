//! JSON as an argument: `bytes`, `str`, or an object that `json.dumps` can write.

use pyo3::exceptions::PyUnicodeDecodeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyString};
use turnwire_core::{Error, ErrorKind};

pyo3::import_exception!(turnwire.errors, FoldError);

/// Text that is borrowed from a Python object.
pub(crate) enum Text<'py> {
    Bytes(Bound<'py, PyBytes>),
    Str(PyBackedStr),
}

impl Text<'_> {
    /// The text; bytes must be UTF-8.
    pub(crate) fn as_str(&self) -> PyResult<&str> {
        match self {
            Self::Str(text) => Ok(text),
            Self::Bytes(bytes) => std::str::from_utf8(bytes.as_bytes())
                .map_err(|_| raise(&Error::new(ErrorKind::NotUtf8, "the bytes are not UTF-8"))),
        }
    }
}

/// Takes JSON text as it is, and writes anything else with `json.dumps`.
pub(crate) fn text<'py>(value: &Bound<'py, PyAny>) -> PyResult<Text<'py>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Text::Bytes(bytes.clone()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return borrow(text.clone());
    }
    let py = value.py();
    let dumped = py.import(intern!(py, "json"))?.getattr(intern!(py, "dumps"))?.call1((value,))?;
    borrow(dumped.cast_into()?)
}

/// A string with half of a surrogate pair, as JavaScript cuts them, is not text.
fn borrow(text: Bound<'_, PyString>) -> PyResult<Text<'_>> {
    let py = text.py();
    PyBackedStr::try_from(text).map(Text::Str).map_err(|error| {
        let is_surrogate = error.is_instance_of::<PyUnicodeDecodeError>(py)
            || error.is_instance_of::<pyo3::exceptions::PyUnicodeEncodeError>(py);
        if is_surrogate {
            raise(&Error::new(ErrorKind::NotUtf8, "the text has half of a surrogate pair"))
        } else {
            error
        }
    })
}

/// The value of JSON text: `json.loads`.
pub(crate) fn loads<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "json"))?.getattr(intern!(py, "loads"))?.call1((text,))
}

/// The error as Python's `turnwire.FoldError`.
pub(crate) fn raise(error: &Error) -> PyErr {
    let text = error.to_string();
    let (kind, message) = text.split_once(": ").unwrap_or((error.kind().name(), &text));
    FoldError::new_err((kind.to_owned(), message.to_owned()))
}

/// The same as a value, for folds that report a problem and go on.
pub(crate) fn problem(py: Python<'_>, error: &Error) -> Py<PyAny> {
    raise(error).into_value(py).into_any()
}

/// The error of a body, with the line of its frame.
pub(crate) fn raise_at(py: Python<'_>, line: u64, error: &Error) -> PyErr {
    let raised = raise(error);
    // The class has a plain attribute `line`.
    let _ = raised.value(py).setattr(intern!(py, "line"), line);
    raised
}

/// The same for several, as values.
pub(crate) fn problems_at(py: Python<'_>, problems: &[(u64, Error)]) -> Vec<Py<PyAny>> {
    let value = |(line, error): &(u64, Error)| raise_at(py, *line, error).into_value(py).into_any();
    problems.iter().map(value).collect()
}
