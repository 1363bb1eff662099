//! Writes the arguments of a call that stream as partial values: each is a path into the arguments, and a value.
//!
//! A model writes its arguments in order, so the JSON can be written as it comes, and only the path to the current position
//! is kept. If a path leads back into a closed object, its key is written again, and the last one counts.

use crate::json::escape;
use std::fmt::Write as _;

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// The value at a path.
#[derive(Debug, Clone, Copy)]
pub(super) enum Piece<'a> {
    /// Text, which the next piece with the same path continues.
    Text(&'a str),
    /// Any other value, as JSON.
    Whole(&'a str),
}

/// Writes the JSON of arguments.
#[derive(Debug, Default)]
pub(super) struct ArgsWriter {
    /// The objects and lists that are open, from the outermost.
    open: Vec<OpenContainer>,
    /// A string is open at the end.
    in_text: bool,
}

#[derive(Debug)]
struct OpenContainer {
    is_list: bool,
    count: usize,
    /// The current key or index.
    current: Step,
}

/// The most items of a list that a path may skip.
const MAX_SKIPPED: usize = 1024;

impl ArgsWriter {
    /// Whether nothing was written yet.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Writes the next piece.
    pub(super) fn write_piece(&mut self, path: &[Step], piece: Piece<'_>, out: &mut String) {
        let Some((first, deeper)) = path.split_first() else { return };
        if let Piece::Text(text) = piece
            && self.in_text
            && self.open.iter().map(|open| &open.current).eq(path)
        {
            return escape(text, out);
        }
        self.end_text(out);
        if self.open.is_empty() {
            self.enter(false, first, out);
        } else {
            let same = self.open.iter().zip(path).take_while(|(open, step)| open.current == **step);
            // The last step is the value itself.
            let stay = same.count().min(path.len() - 1).min(self.open.len() - 1);
            self.leave(stay + 1, out);
            if let (Some(open), Some(step)) = (self.open.last_mut(), path.get(stay)) {
                open.move_to(step, out);
            }
        }
        let begun = self.open.len() - 1;
        for step in deeper.get(begun..).unwrap_or_default() {
            self.enter(matches!(step, Step::Index(_)), step, out);
        }
        match piece {
            Piece::Whole(json) => out.push_str(json),
            Piece::Text(text) => {
                out.push('"');
                escape(text, out);
                self.in_text = true;
            }
        }
    }

    /// Closes everything.
    pub(super) fn finish(mut self, out: &mut String) {
        self.end_text(out);
        if self.open.is_empty() {
            out.push_str("{}");
        }
        self.leave(0, out);
    }

    fn end_text(&mut self, out: &mut String) {
        if std::mem::take(&mut self.in_text) {
            out.push('"');
        }
    }

    fn enter(&mut self, is_list: bool, step: &Step, out: &mut String) {
        out.push(if is_list { '[' } else { '{' });
        let mut open = OpenContainer { is_list, count: 0, current: step.clone() };
        open.move_to(step, out);
        self.open.push(open);
    }

    fn leave(&mut self, depth: usize, out: &mut String) {
        while self.open.len() > depth
            && let Some(open) = self.open.pop()
        {
            out.push(if open.is_list { ']' } else { '}' });
        }
    }
}

impl OpenContainer {
    /// Moves to this key or index.
    fn move_to(&mut self, step: &Step, out: &mut String) {
        let index = match step {
            Step::Index(index) if self.is_list => *index,
            Step::Index(_) | Step::Key(_) => 0,
        };
        if index.saturating_sub(self.count) <= MAX_SKIPPED {
            while self.count < index {
                self.write_comma(out);
                out.push_str("null");
            }
        }
        self.write_comma(out);
        if !self.is_list {
            out.push('"');
            match step {
                Step::Key(key) => escape(key, out),
                Step::Index(index) => drop(write!(out, "{index}")),
            }
            out.push_str("\":");
        }
        self.current = step.clone();
    }

    fn write_comma(&mut self, out: &mut String) {
        if self.count > 0 {
            out.push(',');
        }
        self.count += 1;
    }
}

/// The steps of a JSON path such as `$.recipe.steps[0]['a b']`.
pub(super) fn parse_path(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = text.strip_prefix('$').unwrap_or(text);
    while !rest.is_empty() {
        let (step, behind) = if let Some(inside) = rest.strip_prefix('[') {
            parse_bracket(inside)
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let (name, behind) = name.split_at(name.find(['.', '[']).unwrap_or(name.len()));
            (Step::Key(name.to_owned()), behind)
        };
        steps.push(step);
        rest = behind;
    }
    steps
}

/// Parses a step in brackets; returns it and the rest.
fn parse_bracket(inside: &str) -> (Step, &str) {
    let quote = inside.chars().next().filter(|first| matches!(first, '\'' | '"'));
    let Some(quote) = quote else {
        let (number, behind) = inside.split_once(']').unwrap_or((inside, ""));
        let step = number.trim().parse().map_or_else(|_| Step::Key(number.into()), Step::Index);
        return (step, behind);
    };
    let mut key = String::new();
    let mut characters = inside.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => key.extend(characters.next().map(|(_, escaped)| escaped)),
            _ if character == quote => {
                let behind = inside.get(at + 1..).unwrap_or_default();
                return (Step::Key(key), behind.strip_prefix(']').unwrap_or(behind));
            }
            _ => key.push(character),
        }
    }
    (Step::Key(key), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pieces: &[(&str, Piece<'_>)]) -> String {
        let mut args = ArgsWriter::default();
        let mut out = String::new();
        for (at, piece) in pieces {
            args.write_piece(&parse_path(at), *piece, &mut out);
        }
        args.finish(&mut out);
        out
    }

    #[test]
    fn text_continues_until_another_path_comes() {
        let pieces = [
            ("$.a", Piece::Text("x\"")),
            ("$.a", Piece::Text("é\n")),
            ("$.a", Piece::Text("")),
            ("$.b", Piece::Whole("1.50")),
        ];
        assert_eq!(written(&pieces), r#"{"a":"x\"é\n","b":1.50}"#);
    }

    #[test]
    fn objects_and_lists_nest() {
        let pieces = [
            ("$.r.i[0].n", Piece::Text("egg")),
            ("$.r.i[0].w", Piece::Whole("2")),
            ("$.r.i[1].n", Piece::Text("oil")),
            ("$.r.s[0]", Piece::Text("mix")),
            ("$.r.s[1]", Piece::Whole("null")),
            ("$.m[0][0]", Piece::Whole("true")),
            ("$.m[0][1]", Piece::Whole("false")),
            ("$.m[1][0]", Piece::Whole("3")),
            ("$.z", Piece::Text("")),
        ];
        let expected = r#"{"r":{"i":[{"n":"egg","w":2},{"n":"oil"}],"s":["mix",null]},"m":[[true,false],[3]],"z":""}"#;
        assert_eq!(written(&pieces), expected);
    }

    #[test]
    fn no_pieces_are_an_empty_object() {
        assert_eq!(written(&[]), "{}");
        assert_eq!(written(&[("$", Piece::Whole("1"))]), "{}");
    }

    #[test]
    fn a_path_may_have_quoted_keys() {
        let expected = [Step::Key("a.b".into()), Step::Index(2), Step::Key("it's".into())];
        assert_eq!(parse_path(r"$['a.b'][2]['it\'s']"), expected);
        assert_eq!(parse_path(r#"$["a.b"][2]["it's"]"#), expected);
    }

    #[test]
    fn whatever_the_paths_the_result_is_json() {
        let odd = [
            ("$.a.b", Piece::Text("1")),
            ("$.c", Piece::Whole("2")),
            ("$.a.d", Piece::Text("3")),
            ("$.a", Piece::Text("4")),
            ("$.l[3]", Piece::Whole("5")),
            ("$.l[0]", Piece::Whole("6")),
            ("$.l.k", Piece::Whole("7")),
            ("$[0]", Piece::Whole("8")),
            ("$.l[99999999999]", Piece::Whole("9")),
            ("$..x[", Piece::Whole("10")),
        ];
        let text = written(&odd);
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
    }
}
