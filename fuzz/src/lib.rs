//! What the fuzz targets share.
//!
//! | module | what is in it |
//! |---|---|
//! | [`cut`] | a body in pieces |
//! | [`script`] | bytes into a stream of events |

use serde_json::value::RawValue;

pub mod cut;
pub mod script;

/// A frame is one line of JSON.
///
/// # Panics
///
/// Where it is not.
pub fn assert_one_line_of_json(line: &str) {
    assert!(!line.contains(['\n', '\r']), "more than one line: {line}");
    if let Err(error) = serde_json::from_str::<&RawValue>(line) {
        panic!("not JSON ({error}): {line}");
    }
}
