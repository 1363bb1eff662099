//! `docs/events.md` has a row for every type of block and of event.

use std::collections::HashSet;
use std::path::Path;
use turnwire_core::{BlockType, EventKind};

/// The types in the first cells of the tables. In "`A_START` / `_END`" the second one is `A_END`.
fn listed_types(page: &str) -> HashSet<String> {
    let mut types = HashSet::new();
    for cell in page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next()) {
        let mut stem = "";
        for span in cell.split('`').step_by(2) {
            if span.starts_with('_') {
                types.insert(format!("{stem}{span}"));
            } else {
                stem = span.rsplit_once('_').map_or(span, |(stem, _)| stem);
                types.insert(span.to_owned());
            }
        }
    }
    types
}

#[test]
fn docs_events_md_has_a_row_for_every_type_of_block_and_event() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/events.md");
    let listed = listed_types(&std::fs::read_to_string(path).unwrap());
    let blocks = BlockType::KNOWN.iter().map(|block| block.as_str());
    let missing: Vec<&str> = blocks
        .chain(EventKind::TYPES.iter().copied())
        .filter(|word| !listed.contains(*word))
        .collect();
    assert!(missing.is_empty(), "docs/events.md has no row for {missing:?}");
}
