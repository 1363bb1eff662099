//! Checks the generated files of the TypeScript client: its types, and the vectors that compare its fold with
//! ours.
//!
//! `TURNWIRE_WRITE=1 cargo test -p turnwire-testkit --test typescript` writes them.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod types;
mod vectors;

use std::collections::HashSet;
use std::path::Path;
use turnwire_core::{BlockType, ContentBlock, EventKind, Msg, Role};
use turnwire_testkit::{Rng, random_reply, values};

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

#[test]
fn every_block_type_has_a_typescript_type() {
    let model = types::write_model();
    for block_type in BlockType::KNOWN {
        let word = format!("\"{}\"", block_type.as_str());
        let has_it = |line: &str| line.trim_start().starts_with("type: ") && line.contains(&word);
        assert!(model.lines().any(has_it), "{word} is missing in types.rs");
    }
}

#[test]
fn random_values_cover_every_block_type_and_event_type() {
    let mut rng = Rng::with_seed(1);
    let replies = (0..2000).flat_map(|_| random_reply(&mut rng, "r").events);
    let whole_blocks: HashSet<BlockType> = replies
        .filter_map(|event| match event.kind {
            EventKind::Block(event) => Some(event.block.block_type()),
            _ => None,
        })
        .collect();
    for block_type in BlockType::KNOWN.iter().chain([&BlockType::Other]) {
        assert!(whole_blocks.contains(block_type), "values.rs generates no {block_type:?}");
    }
    let events: HashSet<String> =
        (0..5000).map(|_| values::event_kind(&mut rng).type_name().to_owned()).collect();
    let missing: Vec<_> = EventKind::TYPES.iter().filter(|word| !events.contains(**word)).collect();
    assert!(missing.is_empty(), "values.rs generates no {missing:?}");
}

/// The vectors are made of such messages, so the clients have the same rules for roles as the core.
#[test]
fn random_messages_of_each_role_hold_every_block_type_that_the_role_may_hold() {
    let mut rng = Rng::with_seed(1);
    let blocks: Vec<ContentBlock> = (0..500).map(|_| values::block(&mut rng)).collect();
    let messages: Vec<Msg> = (0..5000).map(|_| values::message(&mut rng)).collect();
    for role in Role::ALL {
        let of_role = messages.iter().filter(|msg| msg.role() == role);
        let found: HashSet<BlockType> =
            of_role.flat_map(Msg::content).map(ContentBlock::block_type).collect();
        for block in blocks.iter().filter(|block| block.block_type() != BlockType::Other) {
            let word = block.block_type();
            let is_allowed = Msg::builder(role).block(block.clone()).build().is_ok();
            assert_eq!(found.contains(&word), is_allowed, "values.rs: {word:?} of a {role}");
        }
    }
}
