//! Lists of wires outside of the registry must name the same wires: the documentation, the console
//! and the benchmark. (The fuzz targets, the command line and the server read the registry itself.)

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};
use turnwire_wires::registry::ResumeMode;
use turnwire_wires::{Loss, Wire};

fn path_in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(path_in_repository(path)).unwrap()
}

#[test]
fn docs_wires_md_lists_every_wire_and_what_it_can_do() {
    let page = read("docs/wires.md");
    let rows: Vec<[String; 5]> = page
        .lines()
        .skip_while(|line| *line != "## All wires")
        .filter(|line| line.starts_with("| `"))
        .map_while(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [name, _, messages, decode, encode, request] = cells[..] else { return None };
            Some([name.trim_matches('`'), messages, decode, encode, request].map(str::to_owned))
        })
        .collect();
    let expected: Vec<[String; 5]> = Wire::all()
        .map(|wire| {
            let yes = |can| if can { "yes".to_owned() } else { "-".to_owned() };
            let request = match wire.client_request {
                Some(request) => format!("in: {request}"),
                None if wire.can_request_model() => "out".to_owned(),
                None => "-".to_owned(),
            };
            let (decode, encode) = (yes(wire.can_decode()), yes(wire.can_encode()));
            [wire.name.to_owned(), yes(wire.has_messages()), decode, encode, request]
        })
        .collect();
    assert_eq!(rows, expected);
}

/// The rows of a table: the names in the first cell, and the second cell.
fn table_of_names<'p>(page: &'p str, heading: &str) -> Vec<(Vec<&'p str>, &'p str)> {
    let lines = page.lines().skip_while(|line| *line != heading).skip(2);
    lines
        .map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
        .map(|(names, text)| (names.split(", ").map(|name| name.trim_matches('`')).collect(), text))
        .collect()
}

#[test]
fn docs_wires_md_lists_how_clients_of_every_wire_resume() {
    let page = read("docs/wires.md");
    let mut rows = Vec::new();
    for (names, text) in table_of_names(&page, "| wire | a client that reconnects gets |") {
        let resume = match text {
            "the events after its resume token" => ResumeMode::Tail,
            _ if text.contains("a snapshot of the conversation") => ResumeMode::Snapshot,
            _ if text.contains("from its start") => ResumeMode::Replay,
            _ => panic!("which `ResumeMode` is \"{text}\"?"),
        };
        rows.extend(names.into_iter().map(|name| (name, resume)));
    }
    let encoders = Wire::all().filter(|wire| wire.can_encode());
    let mut expected: Vec<_> = encoders.map(|wire| (wire.name, wire.resume)).collect();
    rows.sort_by_key(|row| row.0);
    expected.sort_by_key(|row| row.0);
    assert_eq!(rows, expected);
}

/// The table of all losses. `TURNWIRE_WRITE=1` writes it into the page.
#[test]
fn docs_wires_md_lists_every_loss_of_every_wire() {
    const HEAD: &str = "| what is lost | in streams of | in messages of |\n|---|---|---|\n";
    let page = read("docs/wires.md");
    let (before, rest) = page.split_once(HEAD).unwrap();
    let end = rest.find("\n\n").unwrap() + 1;
    let names = |has_loss: &dyn Fn(&Wire) -> bool| {
        let names = Wire::all().filter(|wire| has_loss(wire)).map(|wire| wire.name);
        names.collect::<Vec<_>>().join(", ")
    };
    let mut expected = String::new();
    for loss in Loss::ALL {
        let streams = names(&|wire| wire.stream_losses.contains(loss));
        let messages = names(&|wire| wire.message_losses.contains(loss));
        assert!(!(streams.is_empty() && messages.is_empty()), "no wire loses: {}", loss.about());
        writeln!(expected, "| {} | {streams} | {messages} |", loss.about()).unwrap();
    }
    if env::var_os("TURNWIRE_WRITE").is_some() {
        let page = format!("{before}{HEAD}{expected}{}", &rest[end..]);
        fs::write(path_in_repository("docs/wires.md"), page).unwrap();
    } else {
        assert_eq!(&rest[..end], expected, "run this test with TURNWIRE_WRITE=1");
    }
}

#[test]
fn the_readme_of_the_crate_lists_every_wire() {
    let page = read("crates/turnwire-wires/README.md");
    let rows = table_of_names(&page, "| wire | protocol |");
    let names: Vec<&str> = rows.into_iter().flat_map(|(names, _)| names).collect();
    assert_eq!(names, Wire::all().map(|wire| wire.name).collect::<Vec<_>>());
}

#[test]
fn the_console_has_a_snippet_for_every_wire_with_a_stream_out() {
    let source = read("console/src/inspect/client-snippets.ts");
    let names: Vec<&str> = source
        .lines()
        .filter_map(|line| {
            let name = line.trim().strip_prefix("name: ")?.strip_suffix(',')?;
            Some(name.trim_matches(['"', '\'']))
        })
        .collect();
    let expected: Vec<&str> =
        Wire::all().filter(|wire| wire.can_encode()).map(|wire| wire.name).collect();
    assert_eq!(names, expected);
}

#[test]
fn the_browser_test_of_the_console_selects_every_wire_with_a_stream_out() {
    let source = read("console/e2e/inspect.test.mjs");
    for wire in Wire::all().filter(|wire| wire.can_encode()) {
        let forms = [format!("\"{}\"", wire.name), format!(" {}: \"", wire.name)];
        let is_named = forms.iter().any(|form| source.contains(form));
        assert!(is_named, "console/e2e/inspect.test.mjs does not select {}", wire.name);
    }
}

#[test]
fn the_readme_of_the_repository_says_how_many_protocols_there_are() {
    const FROM_TWELVE: [&str; 5] = ["twelve", "thirteen", "fourteen", "fifteen", "sixteen"];
    let count = FROM_TWELVE.get(Wire::all().count() - 12).unwrap();
    assert!(read("README.md").contains(&format!("{count} protocols")), "README.md: {count}");
}

/// The benchmark encodes every other wire's streams itself.
#[test]
fn the_benchmark_has_streams_of_every_model_provider() {
    let source = read("crates/turnwire-wires/benches/wires/streams.rs");
    for wire in Wire::all().filter(|wire| wire.can_decode() && wire.can_request_model()) {
        let arms = source.matches(&format!("\"{}\" =>", wire.name)).count();
        assert!(arms >= 2, "streams.rs has no deltas and no end of {}", wire.name);
    }
}
