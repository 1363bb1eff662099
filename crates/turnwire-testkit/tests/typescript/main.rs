//! What the TypeScript client takes from here: its types, and the streams on which its fold is compared
//! with ours. Both are files of the client's, and have to be what today's code gives.
//!
//! `TURNWIRE_WRITE=1 cargo test -p turnwire-testkit --test typescript` writes them anew.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod types;
mod vectors;

use std::path::Path;

/// Compares a file of the client's with what it has to be, or writes it.
fn compare(name: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/typescript").join(name);
    if std::env::var_os("TURNWIRE_WRITE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "clients/typescript/{name} is not what the Rust code gives; write it anew with \
         TURNWIRE_WRITE=1 cargo test -p turnwire-testkit --test typescript"
    );
}

#[test]
fn the_types_are_those_of_today() {
    compare("src/generated/model.ts", &types::write_model());
}

#[test]
fn the_vectors_are_what_the_fold_gives_today() {
    for (name, text) in vectors::write_vectors() {
        compare(&format!("test/vectors/{name}.json"), &text);
    }
}
