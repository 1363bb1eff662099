//! Separates `<think>` tags from text, for models that write their reasoning into it.

const OPEN_TAG: &str = "<think>";
const CLOSE_TAG: &str = "</think>";

/// The most white space that is held back until a tag may follow. Some models write nothing else until their token limit.
const MAX_HELD_SPACE: usize = 64;

/// A piece of text, inside or outside the tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Segment<'a> {
    Text(&'a str),
    Thinking(&'a str),
}

/// Takes text in pieces that are cut anywhere, and separates thinking from the rest.
///
/// White space before the first tag is dropped; everything else is kept. After a tag that never closes, the rest is
/// thinking. A tag after a backtick is a quotation, not a tag.
#[derive(Debug, Default)]
pub(crate) struct ThinkTagParser {
    inside: bool,
    /// A tag, or text other than white space, has come.
    begun: bool,
    /// The last character that was emitted is a backtick.
    quoted: bool,
    /// What may be the beginning of a tag, or white space before one.
    held: String,
}

impl ThinkTagParser {
    /// Takes the next piece. Emitted segments are never empty.
    pub(crate) fn feed(&mut self, piece: &str, mut each: impl FnMut(Segment<'_>)) {
        if self.held.is_empty() && self.begun && !piece.contains('<') {
            return self.emit(piece, &mut each);
        }
        let joined;
        let mut rest = if self.held.is_empty() {
            piece
        } else {
            joined = std::mem::take(&mut self.held) + piece;
            &joined
        };
        loop {
            let tag = if self.inside { CLOSE_TAG } else { OPEN_TAG };
            if let Some((before, behind)) = self.find_tag(rest, tag) {
                if self.begun || self.inside || !is_leading_space(before) {
                    self.emit(before, &mut each);
                }
                self.inside = !self.inside;
                self.begun = true;
                self.quoted = false;
                rest = behind;
                continue;
            }
            let keep = held_start(rest, tag, self.begun || self.inside);
            let (now, later) = rest.split_at(keep);
            self.emit(now, &mut each);
            self.held.push_str(later);
            return;
        }
    }

    /// Emits what was held back, because no tag can follow.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(Segment<'_>)) {
        let held = std::mem::take(&mut self.held);
        self.emit(&held, &mut each);
    }

    /// Finds the next tag that is not quoted, and returns the text before and after it.
    fn find_tag<'t>(&self, text: &'t str, tag: &str) -> Option<(&'t str, &'t str)> {
        let mut from = 0;
        loop {
            let at = from + text.get(from..)?.find(tag)?;
            let (before, behind) = (text.get(..at)?, text.get(at + tag.len()..)?);
            let quoted = match before.chars().next_back() {
                Some(last) => last == '`',
                None => self.quoted,
            };
            if self.inside || !quoted {
                return Some((before, behind));
            }
            from = at + tag.len();
        }
    }

    fn emit(&mut self, text: &str, each: &mut impl FnMut(Segment<'_>)) {
        let Some(last) = text.chars().next_back() else { return };
        self.quoted = last == '`';
        self.begun = true;
        each(if self.inside { Segment::Thinking(text) } else { Segment::Text(text) });
    }
}

/// The start of what may be the beginning of a tag, or white space before the first one.
fn held_start(text: &str, tag: &str, begun: bool) -> usize {
    if !begun && is_leading_space(text) {
        return 0;
    }
    let longest = tag.len().saturating_sub(1).min(text.len());
    let start = (1..=longest).rev().find(|&len| text.ends_with(tag.get(..len).unwrap_or(tag)));
    let at = text.len() - start.unwrap_or(0);
    let before = text.get(..at).unwrap_or_default();
    if !begun && is_leading_space(before) { 0 } else { at }
}

/// Whether a text is only white space, and short enough to hold back.
fn is_leading_space(text: &str) -> bool {
    text.len() <= MAX_HELD_SPACE && text.trim_ascii().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The segments, adjacent ones joined. They are the same for every way to cut the text in two, and into characters.
    fn parse_however_cut(text: &str) -> Vec<(bool, String)> {
        let cut = |pieces: &[&str]| {
            let mut found: Vec<(bool, String)> = Vec::new();
            let mut think = ThinkTagParser::default();
            let mut each = |segment: Segment<'_>| {
                let (inside, text) = match segment {
                    Segment::Thinking(text) => (true, text),
                    Segment::Text(text) => (false, text),
                };
                assert!(!text.is_empty());
                match found.last_mut() {
                    Some((last, sum)) if *last == inside => sum.push_str(text),
                    _ => found.push((inside, text.to_owned())),
                }
            };
            for piece in pieces {
                think.feed(piece, &mut each);
            }
            think.finish(&mut each);
            found
        };
        let whole = cut(&[text]);
        for at in (0..text.len()).filter(|&at| text.is_char_boundary(at)) {
            let (left, right) = text.split_at(at);
            assert_eq!(cut(&[left, right]), whole, "{text:?} cut at {at}");
        }
        let characters: Vec<String> = text.chars().map(String::from).collect();
        let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
        assert_eq!(cut(&characters), whole, "{text:?} cut into characters");
        whole
    }

    fn thinking(text: &str) -> (bool, String) {
        (true, text.to_owned())
    }

    fn text(text: &str) -> (bool, String) {
        (false, text.to_owned())
    }

    #[test]
    fn tags_are_found_however_the_text_is_cut() {
        assert_eq!(parse_however_cut("<think>plan</think>do"), [thinking("plan"), text("do")]);
        assert_eq!(parse_however_cut("\n <think>é</think>\n\nü"), [thinking("é"), text("\n\nü")]);
        let twice = parse_however_cut("a<think>b</think>c<think>d</think>");
        assert_eq!(twice, [text("a"), thinking("b"), text("c"), thinking("d")]);
    }

    #[test]
    fn only_so_much_white_space_is_held_back() {
        let (few, many) = (" ".repeat(MAX_HELD_SPACE), " ".repeat(MAX_HELD_SPACE + 1));
        assert_eq!(parse_however_cut(&format!("{few}<think>a")), [thinking("a")]);
        assert_eq!(parse_however_cut(&format!("{many}<think>a")), [text(&many), thinking("a")]);
        let mut think = ThinkTagParser::default();
        for _ in 0..10_000 {
            think.feed(" ", |_| {});
        }
        assert!(think.held.is_empty());
    }

    #[test]
    fn a_tag_that_never_closes_makes_the_rest_thinking() {
        assert_eq!(parse_however_cut("<think>on and on </thin"), [thinking("on and on </thin")]);
        assert_eq!(parse_however_cut("<think>"), []);
    }

    #[test]
    fn text_that_is_not_a_tag_stays_text() {
        for plain in ["a < b", "</think> x", "<thinking>", "  ", "x <think", "`<think>` is a tag"] {
            assert_eq!(parse_however_cut(plain), [text(plain)]);
        }
    }
}
