//! Counts units of work, so that the tests of law 5 (linear) need no clock. The fold calls it.
//!
//! A unit is one byte processed or one item visited. Outside of tests this does nothing.

#[cfg(test)]
thread_local! {
    static DONE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts units of work.
#[inline]
pub(crate) fn count(units: usize) {
    #[cfg(test)]
    DONE.set(DONE.get() + units);
    #[cfg(not(test))]
    let _ = units;
}

#[cfg(test)]
mod tests {
    use super::DONE;
    use crate::{Event, Folder};
    use fastrand::Rng;
    use std::fmt::Write;

    /// Folds these lines, of which `refused` are refused, and returns the units of work and the bytes.
    fn cost(lines: &[String], refused: usize) -> (usize, usize) {
        let mut folder = Folder::default();
        let before = DONE.get();
        let problems: Vec<_> = lines
            .iter()
            .filter_map(|line| folder.push(&Event::from_json(line).unwrap()).err())
            .collect();
        assert_eq!(problems.len(), refused, "{:?}", problems.first());
        (DONE.get() - before, lines.iter().map(String::len).sum())
    }

    fn line(kind: &str, fields: &str) -> String {
        format!(r#"{{"type":"{kind}","reply_id":"r",{fields}}}"#)
    }

    /// Many open text blocks with deltas for random ones, or a tool result with many data parts; then the
    /// end.
    fn stream(rng: &mut Rng, blocks: usize, deltas: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let parts = rng.bool();
        if parts {
            lines.push(line("TOOL_RESULT_START", r#""tool_call_id":"c""#));
        }
        for block in 0..blocks {
            if !parts {
                lines.push(line("TEXT_BLOCK_START", &format!(r#""block_id":"{block}""#)));
            }
        }
        for _ in 0..deltas {
            let block = rng.usize(..blocks);
            lines.push(if parts {
                let fields = format!(
                    r#""tool_call_id":"c","block_id":"{block}","media_type":"a/b","data":"aGk=""#
                );
                line("TOOL_RESULT_DATA_DELTA", &fields)
            } else {
                line("TEXT_BLOCK_DELTA", &format!(r#""block_id":"{block}","delta":"Hello""#))
            });
        }
        lines.push(line("REPLY_END", r#""finished_reason":"completed""#));
        lines
    }

    #[test]
    fn law_5_linear_in_blocks_and_deltas() {
        let given = std::env::var("TURNWIRE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| fastrand::u64(..));
        let mut report = format!("seed {seed}:");
        let mut rng = Rng::with_seed(seed);
        for blocks in [10, 100, 1_000, 5_000] {
            let (work, bytes) = cost(&stream(&mut rng, blocks, 20 * blocks), 0);
            write!(report, " {blocks} blocks {work} units {bytes} bytes;").unwrap();
            assert!(work <= bytes, "{report}");
        }
    }

    #[test]
    fn law_5_a_repeatedly_refused_event_does_not_cost_the_whole_message() {
        let block = |n: usize| format!(r#""block_id":"{n}","media_type":"a/b""#);
        let part = |n: usize, data: &str| {
            format!(r#""tool_call_id":"c","block_id":"{n}","media_type":"a/b","data":"{data}""#)
        };
        for count in [100, 1_000, 5_000] {
            let blocks = || (0..count).map(|n| line("DATA_BLOCK_START", &block(n)));
            let open = line("DATA_BLOCK_DELTA", &(block(count - 1) + r#","data":"a""#));
            let parts = |bad: usize| {
                let data = move |n| if n == bad { "a" } else { "aGk=" };
                (0..count).map(move |n| line("TOOL_RESULT_DATA_DELTA", &part(n, data(n))))
            };
            let result = || std::iter::once(line("TOOL_RESULT_START", r#""tool_call_id":"c""#));
            let again = |kind: &str, fields: &str| vec![line(kind, fields); count];
            let thinking = line("THINKING_BLOCK_START", r#""block_id":"t""#);
            let cases: [Vec<String>; 6] = [
                blocks().chain([open]).chain(again("REPLY_END", r#""x":1"#)).collect(),
                result().chain(parts(0)).chain(again("REPLY_END", r#""x":1"#)).collect(),
                result()
                    .chain(parts(0))
                    .chain(again("TOOL_RESULT_END", r#""tool_call_id":"c","state":"success""#))
                    .collect(),
                result()
                    .chain(parts(count - 1))
                    .chain(again("TOOL_RESULT_END", r#""tool_call_id":"c","state":"success""#))
                    .collect(),
                blocks()
                    .chain([thinking])
                    .chain(again("REPLY_START", r#""role":"user""#))
                    .collect(),
                blocks().chain(again("MODEL_CALL_END", r#""discard":["nowhere"]"#)).collect(),
            ];
            for (at, lines) in cases.iter().enumerate() {
                // The last case fits and removes nothing.
                let refused = if at == 5 { 0 } else { count };
                let (work, bytes) = cost(lines, refused);
                assert!(work <= bytes, "case {at}, {count}: {work} units for {bytes} bytes");
            }
        }
    }

    #[test]
    fn law_5_linear_in_the_bytes_of_a_data_block() {
        let piece = "YWJj".repeat(200) + "YQ==";
        let delta = format!(r#""block_id":"d","media_type":"a/b","data":"{piece}""#);
        for pieces in [10, 100, 1_000] {
            let mut lines = vec![line("DATA_BLOCK_START", r#""block_id":"d","media_type":"a/b""#)];
            lines.extend((0..pieces).map(|_| line("DATA_BLOCK_DELTA", &delta)));
            lines.push(line("DATA_BLOCK_END", r#""block_id":"d""#));
            let (work, bytes) = cost(&lines, 0);
            assert!(work >= pieces * piece.len(), "the bytes were counted");
            assert!(work <= 2 * bytes, "{pieces} pieces: {work} units for {bytes} bytes");
        }
    }
}
