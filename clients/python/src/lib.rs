//! `turnwire._native`: the part of the Python package that is Rust. Everything here takes JSON and returns JSON; the
//! Python modules around it (`_native.pyi`, `wires.py`) give it types.
//!
//! | module | contents |
//! |---|---|
//! | `json` | reads an argument: bytes, a string, or an object that `json.dumps` can write |
//! | `msg` | one message and its fold |
//! | `folder` | a stream with many replies |
//! | `wire` | decoders, encoders, and the list of wires |

use pyo3::prelude::*;

mod folder;
mod json;
mod msg;
mod wire;

/// The native part of the package.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::folder::Folder;
    #[pymodule_export]
    use crate::msg::Msg;
    #[pymodule_export]
    use crate::wire::{
        Decoder, Encoder, decode, encode, list_wires, read_messages, write_messages,
    };
}

/// Locks for the duration of one call. The thread gives up the GIL while it waits, so that two threads can share an
/// object.
fn lock<'m, T>(py: Python<'_>, mutex: &'m std::sync::Mutex<T>) -> std::sync::MutexGuard<'m, T> {
    use pyo3::sync::MutexExt;
    mutex.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner)
}
