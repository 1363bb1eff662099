//! Checks the generated types of the Python package: `TypedDict`s of messages, blocks and events.
//!
//! `TURNWIRE_WRITE=1 cargo test -p turnwire-testkit --test python` writes them.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod types;

use std::path::Path;
use turnwire_core::BlockType;

#[test]
fn the_python_types_are_up_to_date() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/python/python/turnwire/types.py");
    let expected = types::write_model();
    if std::env::var_os("TURNWIRE_WRITE").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "clients/python/python/turnwire/types.py is out of date; write it with \
         TURNWIRE_WRITE=1 cargo test -p turnwire-testkit --test python"
    );
}

#[test]
fn every_block_type_has_a_python_type() {
    let model = types::write_model();
    for block_type in BlockType::KNOWN {
        let word = format!("\"{}\"", block_type.as_str());
        let has_it =
            |line: &str| line.trim_start().starts_with("type: Literal[") && line.contains(&word);
        assert!(model.lines().any(has_it), "{word} is missing in types.rs");
    }
}

/// `Msg.get_content_blocks("text")` is a list of `TextBlock`, and so for every type.
#[test]
fn every_block_type_has_an_overload_of_get_content_blocks() {
    let path = "../../clients/python/python/turnwire/_native.pyi";
    let stub = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let overloads: Vec<&str> = stub
        .lines()
        .filter(|line| line.contains("get_content_blocks(self, type: Literal["))
        .collect();
    for block_type in BlockType::KNOWN {
        let word = format!("\"{}\"", block_type.as_str());
        assert!(overloads.iter().any(|line| line.contains(&word)), "{word} is missing in {path}");
    }
}
