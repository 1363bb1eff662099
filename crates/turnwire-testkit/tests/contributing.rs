//! CONTRIBUTING.md is true: the paths and the tests that it names exist.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn contributing() -> String {
    fs::read_to_string(root().join("CONTRIBUTING.md")).expect("CONTRIBUTING.md")
}

/// The texts between backticks, outside of fenced blocks.
fn code_spans(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let prose = text.lines().filter(|line| {
        fenced ^= line.starts_with("```");
        !fenced && !line.starts_with("```")
    });
    prose.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Whether a text is a path from the root: into one of its folders, or a file in it, which is named in capitals or after
/// the project.
fn is_path(span: &str) -> bool {
    let folders = "crates clients console deploy docs examples fuzz packaging tests tools";
    let first = span.split_once('/').map_or(span, |(first, _)| first);
    let is_root_file = span.starts_with("turnwire.")
        || span.starts_with(|first: char| first.is_ascii_uppercase())
            && [".md", ".toml"].iter().any(|ending| span.ends_with(ending));
    folders.split(' ').any(|folder| folder == first) || is_root_file || span == "Makefile"
}

#[test]
fn every_path_that_contributing_names_exists() {
    let text = contributing();
    let paths: Vec<_> = code_spans(&text)
        .into_iter()
        .filter(|span| is_path(span))
        .filter(|span| !span.contains(['<', '*', ' ']))
        .collect();
    assert!(paths.len() > 30, "only {} paths were found", paths.len());
    let missing: Vec<_> = paths.into_iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "CONTRIBUTING.md names paths that do not exist: {missing:#?}");
}

#[test]
fn every_law_has_a_test_that_carries_its_name() {
    let text = contributing();
    let names: Vec<_> =
        code_spans(&text).into_iter().filter(|span| span.starts_with("law_")).collect();
    for law in 1..=10 {
        let prefix = format!("law_{law}_");
        assert!(
            names.iter().any(|name| name.starts_with(&prefix)),
            "CONTRIBUTING.md names no test of law {law}: expected `{prefix}…`"
        );
    }
    let mut sources = String::new();
    read_rust_files(&root().join("crates"), &mut sources);
    let missing: Vec<_> =
        names.into_iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "CONTRIBUTING.md names tests that do not exist: {missing:#?}");
}

fn read_rust_files(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            read_rust_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&fs::read_to_string(&path).expect("a readable file"));
        }
    }
}
