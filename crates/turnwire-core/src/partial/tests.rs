//! Tests of the partial JSON reader.

use serde_json::error::Category;
use serde_json::json;

use super::PartialState::{Broken, Complete, Open};
use super::*;

/// Reads the text in deltas of `size` characters.
fn read_by(size: usize, text: &str) -> PartialJson {
    let mut partial = PartialJson::new();
    for delta in deltas(size, text) {
        partial.push(&delta);
    }
    partial
}

fn read(text: &str) -> PartialJson {
    let mut partial = PartialJson::new();
    partial.push(text);
    partial
}

fn deltas(size: usize, text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(size).map(String::from_iter).collect()
}

/// The shown value as text: stricter than `==`, it tells -0.0 from 0.0 and sees the order.
fn shown(partial: &PartialJson) -> Option<String> {
    partial.value().map(Value::to_string)
}

/// Checks state and value for each text, read in one delta and in deltas of one and two.
fn check(state: PartialState, table: &[(&str, Option<Value>)]) {
    for (text, value) in table {
        for partial in [read(text), read_by(1, text), read_by(2, text)] {
            assert_eq!(partial.state(), state, "{text}");
            let value = value.as_ref().map(Value::to_string);
            assert_eq!(shown(&partial), value, "{text}");
        }
    }
}

#[test]
fn an_open_string_shows_what_arrived_and_holds_back_a_cut_escape() {
    check(
        Open,
        &[
            (r#"""#, Some(json!(""))),
            (r#""ab"#, Some(json!("ab"))),
            ("\"a\u{e9}\u{1f600}\u{7f}", Some(json!("aé😀\u{7f}"))),
            (r#""ab\"#, Some(json!("ab"))),
            (r#""\"\\\/\b\f\n\r\t"#, Some(json!("\"\\/\x08\x0c\n\r\t"))),
            (r#""ab\u"#, Some(json!("ab"))),
            (r#""ab\u00e"#, Some(json!("ab"))),
            (r#""ab\u00E9"#, Some(json!("abé"))),
            (r#""\u0000"#, Some(json!("\0"))),
            (r#""ab\ud83d"#, Some(json!("ab"))),
            (r#""ab\ud83d\"#, Some(json!("ab"))),
            (r#""ab\ud83d\u"#, Some(json!("ab"))),
            (r#""ab\ud83d\ude0"#, Some(json!("ab"))),
            (r#""ab\ud83d\ude00"#, Some(json!("ab😀"))),
            (r#""\ud7ff\ue000\uffff"#, Some(json!("\u{d7ff}\u{e000}\u{ffff}"))),
        ],
    );
}

#[test]
fn a_wrong_escape_or_a_lone_surrogate_breaks_as_soon_as_it_is_certain() {
    check(
        Broken,
        &[
            (r#""ab\x"#, Some(json!("ab"))),
            (r#""ab\ug"#, Some(json!("ab"))),
            (r#""ab\u+1"#, Some(json!("ab"))),
            (r#""ab\udc"#, Some(json!("ab"))),
            (r#""ab\ud83dx"#, Some(json!("ab"))),
            (r#""ab\ud83d""#, Some(json!("ab"))),
            (r#""ab\ud83d\n"#, Some(json!("ab"))),
            (r#""ab\ud83d\u0"#, Some(json!("ab"))),
            (r#""ab\ud83d\ue"#, Some(json!("ab"))),
            (r#""ab\ud83d\ud8"#, Some(json!("ab"))),
            ("\"ab\n", Some(json!("ab"))),
            ("\"ab\u{1f}", Some(json!("ab"))),
        ],
    );
}

#[test]
fn an_open_number_shows_its_longest_valid_prefix() {
    check(
        Open,
        &[
            ("-", None),
            ("0", Some(json!(0))),
            ("-0", Some(json!(-0.0))),
            ("12", Some(json!(12))),
            ("1.", Some(json!(1))),
            ("1.0", Some(json!(1.0))),
            ("1.50", Some(json!(1.5))),
            ("1e", Some(json!(1))),
            ("1e+", Some(json!(1))),
            ("1.5E-", Some(json!(1.5))),
            ("1.5E-1", Some(json!(0.15))),
            ("1e0", Some(json!(1.0))),
            ("0e999999999999", Some(json!(0.0))),
            ("1e-999999999999", Some(json!(0.0))),
            ("18446744073709551615", Some(json!(u64::MAX))),
            ("18446744073709551616", Some(json!(18_446_744_073_709_551_616.0))),
            ("[1, -", Some(json!([1]))),
            (r#"{"a": -"#, Some(json!({}))),
        ],
    );
}

#[test]
fn a_number_that_json_does_not_know_breaks() {
    check(
        Broken,
        &[
            ("01", Some(json!(0))),
            ("-01", Some(json!(-0.0))),
            ("+1", None),
            (".5", None),
            ("--", None),
            ("-]", None),
            ("1.e", Some(json!(1))),
            ("[1.]", Some(json!([1]))),
            ("[1e]", Some(json!([1]))),
            ("1x", Some(json!(1))),
            ("NaN", None),
            ("-Infinity", None),
        ],
    );
}

#[test]
fn a_number_out_of_range_breaks() {
    for text in ["1e309", "-1e400", "[1e999", "[0.1e310", "1e99999999999"] {
        for partial in [read(text), read_by(1, text)] {
            assert_eq!(partial.state(), Broken, "{text}");
        }
    }
    // A longer number stays open: an exponent may bring it back into range.
    let long = format!("[1{}", "0".repeat(400));
    assert_eq!(read(&long).state(), Open);
    assert_eq!(read(&format!("{long}]")).state(), Broken);
    let back = format!("{long}e-400]");
    assert_eq!(read(&back).value(), serde_json::from_str(&back).ok().as_ref());
}

#[test]
fn a_literal_shows_when_it_is_complete() {
    check(
        Open,
        &[
            ("t", None),
            ("fals", None),
            ("[nul", Some(json!([]))),
            ("[null", Some(json!([null]))),
            ("[true,fals", Some(json!([true]))),
            ("[true,false", Some(json!([true, false]))),
            (r#"{"a":tru"#, Some(json!({}))),
        ],
    );
    check(
        Complete,
        &[
            ("true", Some(json!(true))),
            (" false\n", Some(json!(false))),
            ("null", Some(json!(null))),
        ],
    );
    check(Broken, &[("trux", None), ("True", None), ("truee", Some(json!(true)))]);
}

#[test]
fn an_open_container_shows_its_children() {
    check(
        Open,
        &[
            ("", None),
            (" \t\r\n", None),
            ("[", Some(json!([]))),
            ("[[", Some(json!([[]]))),
            ("[1,", Some(json!([1]))),
            ("[1 ,{", Some(json!([1, {}]))),
            ("[1,\"a\" ", Some(json!([1, "a"]))),
            ("{", Some(json!({}))),
            (r#"{"ke"#, Some(json!({}))),
            (r#"{"key""#, Some(json!({}))),
            (r#"{"key": "#, Some(json!({}))),
            (r#"{"key": ""#, Some(json!({"key": ""}))),
            (r#"{"key": {"#, Some(json!({"key": {}}))),
            (r#"{"k\u0065y": [{"a": 1}, "x"#, Some(json!({"key": [{"a": 1}, "x"]}))),
            (r#"{"a": 1, "b"#, Some(json!({"a": 1}))),
            (r#"{"": {"": 1}, "b": tr"#, Some(json!({"": {"": 1}}))),
        ],
    );
}

#[test]
fn a_repeated_key_has_its_last_value_at_its_first_position() {
    check(
        Open,
        &[
            (r#"{"a":1,"b":2,"a":"#, Some(json!({"a": 1, "b": 2}))),
            (r#"{"a":1,"b":2,"a":-"#, Some(json!({"a": 1, "b": 2}))),
            (r#"{"a":1,"b":2,"a":"x"#, Some(json!({"a": "x", "b": 2}))),
            (r#"{"a":1,"b":2,"a":{"a":[3"#, Some(json!({"a": {"a": [3]}, "b": 2}))),
            (r#"{"a":1,"b":2,"a":[3],"b":4,"c""#, Some(json!({"a": [3], "b": 4}))),
        ],
    );
}

#[test]
fn text_that_is_not_json_breaks_and_shows_what_was_there() {
    check(
        Broken,
        &[
            ("x", None),
            ("\u{feff}1", None),
            ("\u{a0}1", None),
            ("]", None),
            (",", None),
            ("[,", Some(json!([]))),
            ("[1,]", Some(json!([1]))),
            ("[1}", Some(json!([1]))),
            ("[1 2", Some(json!([1]))),
            ("[\"a\":", Some(json!(["a"]))),
            ("{1", Some(json!({}))),
            ("{,", Some(json!({}))),
            ("{]", Some(json!({}))),
            (r#"{"a"}"#, Some(json!({}))),
            (r#"{"a",1"#, Some(json!({}))),
            (r#"{"a":}"#, Some(json!({}))),
            (r#"{"a":1]"#, Some(json!({"a": 1}))),
            (r#"{"a":1,}"#, Some(json!({"a": 1}))),
            (r#"{"a":1,2"#, Some(json!({"a": 1}))),
            ("[1] x", Some(json!([1]))),
            ("{}{", Some(json!({}))),
            ("1 2", Some(json!(1))),
            (r#""a"""#, Some(json!("a"))),
        ],
    );
}

#[test]
fn once_broken_it_stays_so() {
    let mut partial = read(r#"{"a": [1, "b"x"#);
    let before = shown(&partial);
    for delta in ["", "\"", "]}", " "] {
        assert_eq!(partial.push(delta).state(), Broken);
        assert_eq!(shown(&partial), before);
    }
}

#[test]
fn after_a_whole_value_only_whitespace_may_follow() {
    let mut partial = read("[1]");
    for delta in ["", " ", "\n\t\r"] {
        assert_eq!(partial.push(delta).state(), Complete);
        assert_eq!(partial.value(), Some(&json!([1])));
    }
    assert_eq!(partial.push("]").state(), Broken);
    assert_eq!(partial.value(), Some(&json!([1])));
}

#[test]
fn a_root_number_is_complete_when_whitespace_follows() {
    let mut partial = read("12");
    assert_eq!(partial.state(), Open);
    assert_eq!(partial.push("3").value(), Some(&json!(123)));
    assert_eq!(partial.push("\n").state(), Complete);
    assert_eq!(partial.value(), Some(&json!(123)));
}

#[test]
fn the_depth_limit_is_that_of_serde_json() {
    for (begin, end) in [("[", "]"), (r#"{"a":"#, "}")] {
        for depth in [1, 126, 127, 128, 129, 100_000] {
            let text = begin.repeat(depth) + "1" + &end.repeat(depth);
            let expected = serde_json::from_str::<Value>(&text);
            for partial in [read(&text), read_by(3, &text)] {
                match &expected {
                    Ok(value) => assert_eq!(partial.value(), Some(value)),
                    Err(_) => assert_eq!(partial.state(), Broken),
                }
            }
        }
    }
}

#[test]
fn the_key_of_raw_values_is_a_key_like_any_other() {
    let text = r#"{"$serde_json::private::RawValue": "[1]"}"#;
    let value = json!({"$serde_json::private::RawValue": "[1]"});
    check(Complete, &[(text, Some(value))]);
}

const DOCUMENTS: &[&str] = &[
    "[]",
    "{}",
    r#""""#,
    "null",
    " [ ] ",
    r#"{"path": "src/lib.rs", "edits": [{"line": 12, "text": "a\n\tb"}, {"line": 3}]}"#,
    r#"{"\u00e9\ud83d\ude00": "\ud83d\ude00\u00E9\"\\\/\b\f\n\r\t", "日本": "é😀"}"#,
    "[0, -0, 1.0, -1.5e3, 1E-7, 12345678901234567890, 123456789012345678901, 0.1e+2, -9]",
    "[true, false, null, [true], {\"a\": null}]",
    "\n[\r\n\t[[ ] , [ [ 1 ] , { } ] ]\t,\"\" , { \"\" : \"\" } ] \n",
    r#"{"a": 1, "b": {"a": [], "a": {"c": 1}, "a": "x"}, "a": {"b": "yes"}, "b": -1}"#,
    "[3.141592653589793238462643383279502884197169399375105820974944592307816406286e-1]",
    "[[[[[[[[[[[[[[[[[\"deep\", {\"a\": {\"b\": {\"c\": {\"d\": 0.5}}}}]]]]]]]]]]]]]]]]]",
];

#[test]
fn wherever_documents_are_cut_they_end_as_serde_json_reads_them() {
    for text in DOCUMENTS {
        let expected: Value = serde_json::from_str(text).unwrap();
        for size in 1..=3 {
            let mut partial = PartialJson::new();
            let mut so_far = String::new();
            for delta in deltas(size, text) {
                partial.push(&delta);
                so_far += &delta;
                if so_far.trim_end().len() < text.trim_end().len() {
                    assert_eq!(partial.state(), Open, "{so_far}");
                }
                // The value does not depend on the cuts.
                assert_eq!(shown(&partial), shown(&read(&so_far)), "{so_far}");
            }
            assert_eq!(partial.state(), Complete, "{text}");
            assert_eq!(shown(&partial), Some(expected.to_string()));
        }
    }
}

/// Whether `early` can be shown on the way to `late`, if no key is repeated.
fn leads_to(early: &Value, late: &Value) -> bool {
    match (early, late) {
        (Value::String(early), Value::String(late)) => late.starts_with(early.as_str()),
        (Value::Number(_), Value::Number(_)) => true,
        (Value::Array(early), Value::Array(late)) => {
            let mut pairs = early.iter().zip(late).rev();
            early.len() <= late.len()
                && pairs.next().is_none_or(|(early, late)| leads_to(early, late))
                && pairs.all(|(early, late)| early == late)
        }
        (Value::Object(early), Value::Object(late)) => {
            let mut pairs = early.iter().zip(late).rev();
            early.len() <= late.len()
                && pairs
                    .next()
                    .is_none_or(|((key, early), (same, late))| key == same && leads_to(early, late))
                && pairs.all(|(early, late)| early == late)
        }
        _ => early == late,
    }
}

#[test]
fn the_shown_value_only_grows() {
    for text in DOCUMENTS {
        if text.starts_with(r#"{"a""#) {
            continue; // has repeated keys
        }
        let mut partial = PartialJson::new();
        let mut before: Option<Value> = None;
        for delta in deltas(1, text) {
            let now = partial.push(&delta).value();
            match (&before, now) {
                (Some(before), Some(now)) => assert!(leads_to(before, now), "{before} {now}"),
                (Some(before), None) => panic!("{before} is gone"),
                (None, _) => {}
            }
            before = now.cloned();
        }
    }
}

/// Xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn space(&mut self, out: &mut String) {
        out.push_str(self.pick(&["", "", "", " ", "\n", "\t\r"]));
    }

    fn string(&mut self, out: &mut String) {
        const PIECES: &[&str] =
            &["a", "b", "é", "😀", r"\n", r#"\""#, r"\\", r"\/", r"\u0041", r"\uD83D\uDE00", "{"];
        out.push('"');
        for _ in 0..self.below(4) {
            out.push_str(self.pick(PIECES));
        }
        out.push('"');
    }

    fn number(&mut self, out: &mut String) {
        out.push_str(self.pick(&["", "-"]));
        out.push_str(self.pick(&["0", "7", "10", "42", "18446744073709551616"]));
        out.push_str(self.pick(&["", "", ".0", ".25", ".125000000000000000001"]));
        out.push_str(self.pick(&["", "", "e0", "E2", "e+10", "e-3", "e308", "e-400"]));
    }

    fn document(&mut self, depth: usize, out: &mut String) {
        self.space(out);
        match self.below(if depth == 0 { 4 } else { 8 }) {
            0 => out.push_str(self.pick(&["true", "false", "null"])),
            1 | 2 => self.string(out),
            3 => self.number(out),
            4 | 5 => {
                out.push('[');
                for i in 0..self.below(4) {
                    out.push_str(if i == 0 { "" } else { "," });
                    self.document(depth - 1, out);
                }
                self.space(out);
                out.push(']');
            }
            _ => {
                out.push('{');
                for i in 0..self.below(4) {
                    out.push_str(if i == 0 { "" } else { "," });
                    self.space(out);
                    self.string(out);
                    self.space(out);
                    out.push(':');
                    self.document(depth - 1, out);
                }
                self.space(out);
                out.push('}');
            }
        }
        self.space(out);
    }

    fn mutate(&mut self, text: &mut Vec<char>) {
        const CHARS: &[char] = &[
            '{', '}', '[', ']', ',', ':', '"', '\\', 'u', 'd', '8', '0', '1', '9', '-', '+', '.',
            'e', 'E', 't', 'n', 'x', ' ', '\n', '\0', 'é',
        ];
        let at = self.below(text.len() + 1);
        match self.below(5) {
            0 => text.truncate(at),
            1 => text.insert(at, self.pick(CHARS)),
            2 if at < text.len() => text[at] = self.pick(CHARS),
            3 if at < text.len() => drop(text.remove(at)),
            _ => {
                let end = (at + self.below(6)).min(text.len());
                let again = text[at..end].to_vec();
                text.splice(at..at, again);
            }
        }
    }
}

/// Compares the state and value with what `serde_json` says about the whole text.
fn compare(text: &str, partial: &PartialJson) {
    let state = partial.state();
    match serde_json::from_str::<Value>(text) {
        Ok(value) => {
            let root_number = value.is_number() && text.ends_with(|c: char| c.is_ascii_digit());
            assert_eq!(state, if root_number { Open } else { Complete }, "{text:?}");
            assert_eq!(shown(partial), Some(value.to_string()), "{text:?}");
        }
        Err(error) if error.classify() != Category::Eof => {
            assert_eq!(state, Broken, "{text:?}: {error}");
        }
        Err(_) if state == Broken => {
            // serde_json checks the digits of `\u` when there are four, we check each. So it must agree
            // after some more digits.
            let error = serde_json::from_str::<Value>(&format!("{text}0000")).unwrap_err();
            assert_eq!(error.classify(), Category::Syntax, "{text:?}: {error}");
        }
        Err(_) => assert_eq!(state, Open, "{text:?}"),
    }
}

#[test]
fn random_documents_and_mutations_agree_with_serde_json() {
    let seed = 0x7475_726e_7769_7265;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let mut counts = [0; 3];
    for _ in 0..20_000 {
        let mut text = String::new();
        random.document(4, &mut text);
        let mut chars: Vec<char> = text.chars().collect();
        for _ in 0..random.below(4) {
            random.mutate(&mut chars);
        }
        let text = String::from_iter(&chars);

        let mut partial = PartialJson::new();
        let mut rest = chars.as_slice();
        while !rest.is_empty() {
            let (delta, after) = rest.split_at(1 + random.below(rest.len().min(9)));
            partial.push(&String::from_iter(delta));
            rest = after;
        }
        compare(&text, &partial);
        let whole = read(&text);
        compare(&text, &whole);
        if whole.state() != Broken {
            assert_eq!(shown(&partial), shown(&whole), "the cuts show in {text:?}");
        }
        counts[partial.state() as usize] += 1;
    }
    println!("open, complete, broken: {counts:?}");
    assert!(counts.iter().all(|&count| count > 1_000), "{counts:?}");
}

#[test]
fn a_string_and_its_containers_grow_in_place() {
    let mut partial = read(r#"{"a": [[1, 2, 3], {"b": ""#);
    let place = |partial: &PartialJson| {
        let list = partial.value().unwrap()["a"].as_array().unwrap();
        let text = list[1]["b"].as_str().unwrap();
        (list.as_ptr() as usize, text.as_ptr() as usize)
    };
    let (list, mut text) = place(&partial);
    let mut moves = 0;
    for _ in 0..100_000 {
        partial.push("x");
        let now = place(&partial);
        assert_eq!(now.0, list, "the list was copied");
        moves += usize::from(now.1 != text);
        text = now.1;
    }
    // A string that doubles its capacity moves at most this often.
    assert!(moves <= 17, "the string was copied {moves} times");
}

#[test]
fn a_long_number_is_read_at_its_64th_character_and_at_its_end() {
    // If it were parsed again on every push, this would take hours.
    let text = format!("[0.{}", "123456789".repeat(100_000));
    let mut partial = PartialJson::new();
    let prefix: Value = serde_json::from_str(&format!("{}]", &text[..65])).unwrap();
    for (i, c) in text.chars().enumerate() {
        partial.push(c.encode_utf8(&mut [0; 4]));
        if i >= 65 {
            assert_eq!(partial.value(), Some(&prefix));
        }
    }
    assert_eq!(partial.state(), Open);
    assert_eq!(shown(&read(&text)), shown(&partial), "one delta shows the same");

    let text = text + "e5]";
    partial.push("e5]");
    assert_eq!(partial.state(), Complete);
    assert_eq!(partial.value(), serde_json::from_str(&text).ok().as_ref());
}
