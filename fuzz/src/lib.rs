//! Code that the fuzz targets share.
//!
//! | module | contents |
//! |---|---|
//! | [`pieces`] | splits a body into pieces |
//! | [`script`] | turns bytes into a stream of events |

use serde_json::value::RawValue;

pub mod pieces;
pub mod script;

/// Checks that a frame is one line of JSON.
///
/// # Panics
///
/// If it is not.
pub fn assert_one_line_of_json(line: &str) {
    assert!(!line.contains(['\n', '\r']), "more than one line: {line}");
    if let Err(error) = serde_json::from_str::<&RawValue>(line) {
        panic!("not JSON ({error}): {line}");
    }
}
