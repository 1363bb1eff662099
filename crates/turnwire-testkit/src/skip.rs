//! Checks that cannot run on this machine: counted and listed by `make test`, failures in CI.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Records that a check cannot run here. Call it, then return from the test.
///
/// It adds a line to the file `TURNWIRE_SKIPS`, or to `target/skips`. `make test` empties that file when it
/// starts, and lists it when it ends.
///
/// # Panics
///
/// With `TURNWIRE_REQUIRE_ALL=1`, which CI sets: there no check may be skipped.
#[expect(clippy::print_stderr, reason = "a skipped check must be seen")]
pub fn skip(what: &str, why: &str) {
    let is_required = std::env::var_os("TURNWIRE_REQUIRE_ALL").is_some_and(|value| value == "1");
    let file = std::env::var_os("TURNWIRE_SKIPS").map_or_else(default_file, PathBuf::from);
    eprintln!("{}", record(what, why, is_required, &file));
}

/// The folder with recorded data of other programs: `TURNWIRE_FIXTURES`, or `../shared/fixtures` beside the
/// repository. `None`, and a skip of `what`, where there is no such folder.
pub fn fixtures(what: &str) -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    let folder = std::env::var_os("TURNWIRE_FIXTURES").map_or_else(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    skip(what, &format!("no folder {}; set TURNWIRE_FIXTURES", folder.display()));
    None
}

fn default_file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/skips")
}

#[expect(clippy::panic, reason = "a required check that cannot run has failed")]
fn record(what: &str, why: &str, is_required: bool, file: &Path) -> String {
    assert!(!is_required, "TURNWIRE_REQUIRE_ALL=1, but {what} cannot run: {why}");
    let line = format!("skipped: {what}: {why}\n");
    // With CARGO_TARGET_DIR there may be no folder `target`.
    let folder = file.parent().map_or(Ok(()), std::fs::create_dir_all);
    let opened = folder.and_then(|()| OpenOptions::new().create(true).append(true).open(file));
    match opened.and_then(|mut opened| opened.write_all(line.as_bytes())) {
        Ok(()) => line.trim_end().to_owned(),
        Err(error) => panic!("cannot record a skipped check in {}: {error}", file.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_adds_a_line_and_fails_where_all_is_required() {
        let folder = std::env::temp_dir().join(format!("turnwire-skips-{}", std::process::id()));
        let file = folder.join("target/skips");
        record("one", "no tmux", false, &file);
        record("two", "no disk", false, &file);
        let lines = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(lines, "skipped: one: no tmux\nskipped: two: no disk\n");
        let required = std::panic::catch_unwind(|| record("three", "no tmux", true, &file));
        assert!(required.is_err());
        let _ = std::fs::remove_dir_all(&folder);
    }
}
