//! Checks the generated files of the TypeScript client: its types, and the vectors that compare its fold with
//! ours.
//!
//! `TURNWIRE_WRITE=1 cargo test -p turnwire-testkit --test typescript` writes them.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod types;
mod vectors;

use std::path::Path;

/// Compares a file of the client with its expected content, or writes it.
fn compare(name: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/typescript").join(name);
    if std::env::var_os("TURNWIRE_WRITE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "clients/typescript/{name} is out of date; write it with \
         TURNWIRE_WRITE=1 cargo test -p turnwire-testkit --test typescript"
    );
}

#[test]
fn the_typescript_types_are_up_to_date() {
    compare("src/generated/model.ts", &types::write_model());
}

#[test]
fn the_typescript_vectors_are_up_to_date() {
    for (name, text) in vectors::write_vectors() {
        compare(&format!("test/vectors/{name}.json"), &text);
    }
}
