//! The example runs, offline, and shows what it promises.

use std::process::Command;

#[test]
fn serving() {
    let mut path = std::env::current_exe().expect("a test knows where it is");
    path.pop();
    path.set_file_name("examples");
    path.push(format!("serving{}", std::env::consts::EXE_SUFFIX));
    let Ok(output) = Command::new(&path).output() else {
        panic!("{} is not there; `cargo test` builds it", path.display())
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "it fails: {errors}");
    let shown = String::from_utf8_lossy(&output.stdout);
    for expected in
        ["listening on http://127.0.0.1:", "REPLY_START", "Hello over HTTP.", "REPLY_END"]
    {
        assert!(shown.contains(expected), "{expected} is missing in:\n{shown}");
    }
}
