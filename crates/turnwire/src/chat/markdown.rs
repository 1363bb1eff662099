//! Streaming Markdown: text is printed as soon as its meaning is certain, and never rewritten.
//!
//! Ambiguous text (a star that may open bold text, three backticks) is held back until it is
//! certain, at most to the end of its line.

use super::code::{CODE, Highlighter};
use super::page::{Page, Style};

/// How many bytes are held back for a possible bold phrase or link.
const MAX_HELD: usize = 240;

/// A text that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct Markdown {
    /// Text that is not printed yet.
    pending: String,
    /// A part of this line was printed.
    is_in_line: bool,
    /// The current code block.
    code: Option<CodeBlock>,
    base: Style,
    /// The last printed character, so that `snake_case` is not italic.
    last: Option<char>,
}

/// A fenced block of code.
#[derive(Debug)]
struct CodeBlock {
    /// The fence that closes it.
    fence: String,
    highlighter: Highlighter,
}

/// Whether more text may arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MoreInput {
    Possible,
    No,
}

/// The marker at the start of a line.
enum LineStart {
    /// More text is needed to tell.
    Unclear,
    Heading {
        level: usize,
        bytes: usize,
    },
    Fence {
        ticks: usize,
        bytes: usize,
    },
    Bullet {
        indent: usize,
        bytes: usize,
    },
    Number {
        indent: usize,
        bytes: usize,
    },
    Quote {
        bytes: usize,
    },
    Rule {
        bytes: usize,
    },
    Text,
}

impl Markdown {
    /// Adds a piece.
    pub(crate) fn feed(&mut self, piece: &str, page: &mut Page) {
        self.pending.push_str(piece);
        self.render_pending(MoreInput::Possible, page);
    }

    /// The text is complete.
    pub(crate) fn finish(&mut self, page: &mut Page) {
        self.render_pending(MoreInput::No, page);
        if let Some(code) = &mut self.code {
            code.highlighter.end_line(page);
        }
        page.start_row();
        *self = Self::default();
    }

    fn render_pending(&mut self, more: MoreInput, page: &mut Page) {
        while !self.pending.is_empty() {
            let is_clear = match (&self.code, self.is_in_line) {
                (Some(_), _) => self.render_code(more, page),
                (None, false) => self.render_line_start(more, page),
                (None, true) => self.render_inline(more, page),
            };
            if !is_clear {
                return;
            }
        }
    }

    /// Drops pending bytes.
    fn drop_pending(&mut self, bytes: usize) {
        self.pending.drain(..bytes.min(self.pending.len()));
    }

    /// Continues a code block; `false` if more text is needed.
    fn render_code(&mut self, more: MoreInput, page: &mut Page) -> bool {
        let Some(code) = &mut self.code else { return false };
        let fence = &*code.fence;
        let end = self.pending.find('\n');
        let line = self.pending.get(..end.unwrap_or(self.pending.len())).unwrap_or_default();
        if !self.is_in_line {
            let trimmed = line.trim_start_matches(' ');
            let may_close = fence.starts_with(trimmed) || trimmed.starts_with(fence);
            if may_close && end.is_none() && more == MoreInput::Possible && line.len() < MAX_HELD {
                return false;
            }
            if trimmed.starts_with(fence) && trimmed.trim_matches(['`', '~', ' ']).is_empty() {
                let bytes = line.len() + usize::from(end.is_some());
                self.drop_pending(bytes);
                self.code = None;
                return true;
            }
            page.write_verbatim(Style::PLAIN, "  ");
            self.is_in_line = true;
        }
        code.highlighter.feed(line, page);
        let bytes = line.len() + usize::from(end.is_some());
        if end.is_some() {
            code.highlighter.end_line(page);
            page.end_row();
            self.is_in_line = false;
        }
        self.drop_pending(bytes);
        true
    }

    /// Reads the start of a line; `false` if more text is needed.
    fn render_line_start(&mut self, more: MoreInput, page: &mut Page) -> bool {
        self.base = Style::PLAIN;
        self.last = None;
        match parse_line_start(&self.pending) {
            LineStart::Unclear if more == MoreInput::Possible && self.pending.len() < MAX_HELD => {
                return false;
            }
            LineStart::Heading { level, bytes } => {
                self.base = Style { underline: level == 1, ..Style::BOLD };
                self.drop_pending(bytes);
            }
            LineStart::Fence { ticks, bytes } => {
                let head = self.pending.get(..bytes).unwrap_or_default().trim();
                let language = head.get(ticks..).unwrap_or_default().trim().to_owned();
                self.code = head.get(..ticks).map(|fence| CodeBlock {
                    fence: fence.to_owned(),
                    highlighter: Highlighter::new(&language),
                });
                if !language.is_empty() {
                    page.write_row(Style::DIM, &format!("  {language}"));
                }
                self.drop_pending(bytes);
                return true;
            }
            LineStart::Bullet { indent, bytes } => {
                page.write_verbatim(Style::PLAIN, &" ".repeat(indent));
                page.write_verbatim(Style::DIM, "• ");
                page.set_hanging_indent(indent + 2);
                self.drop_pending(bytes);
            }
            LineStart::Number { indent, bytes } => {
                let number = self.pending.get(..bytes).unwrap_or_default().trim().to_owned();
                page.write_verbatim(Style::PLAIN, &" ".repeat(indent));
                page.write_verbatim(Style::DIM, &format!("{number} "));
                page.set_hanging_indent(indent + number.len() + 1);
                self.drop_pending(bytes);
            }
            LineStart::Quote { bytes } => {
                page.write_verbatim(Style::DIM, "▏ ");
                page.set_hanging_indent(2);
                self.base = Style { italic: true, ..Style::PLAIN };
                self.drop_pending(bytes);
            }
            LineStart::Rule { bytes } => {
                page.write_row(Style::DIM, &"─".repeat(page.width().min(40)));
                self.drop_pending(bytes);
                return true;
            }
            LineStart::Text | LineStart::Unclear => {}
        }
        self.is_in_line = true;
        true
    }

    /// Continues a line; `false` if more text is needed.
    fn render_inline(&mut self, more: MoreInput, page: &mut Page) -> bool {
        let Some(char) = self.pending.chars().next() else { return false };
        if char == '\n' {
            page.end_row();
            self.drop_pending(1);
            self.is_in_line = false;
            return true;
        }
        if !matches!(char, '*' | '_' | '`' | '[' | '\\') {
            let end = self.pending.find(['*', '_', '`', '[', '\\', '\n']);
            let text = self.pending.get(..end.unwrap_or(self.pending.len())).unwrap_or_default();
            page.write_text(self.base, text);
            self.last = text.chars().last();
            let bytes = text.len();
            self.drop_pending(bytes);
            return true;
        }
        match parse_span(&self.pending, self.last, more) {
            Span::Unclear if more == MoreInput::Possible && self.pending.len() < MAX_HELD => false,
            Span::Styled { style, text, bytes } => {
                let style = Style {
                    bold: self.base.bold || style.bold,
                    italic: self.base.italic || style.italic,
                    underline: self.base.underline || style.underline,
                    dim: style.dim,
                    colour: style.colour,
                };
                page.write_text(style, &text);
                self.last = text.chars().last();
                self.drop_pending(bytes);
                true
            }
            Span::Unclear | Span::Letter => {
                let text = char.to_string();
                page.write_text(self.base, &text);
                self.last = Some(char);
                self.drop_pending(text.len());
                true
            }
        }
    }
}

fn parse_line_start(line: &str) -> LineStart {
    let rest = line.trim_start_matches(' ');
    let indent = line.len() - rest.len();
    let Some(first) = rest.chars().next() else { return LineStart::Unclear };
    let run = rest.len() - rest.trim_start_matches(first).len();
    let behind = rest.get(run..).and_then(|rest| rest.chars().next());
    let end = rest.find('\n');
    match first {
        '#' => match behind {
            None => LineStart::Unclear,
            Some(' ') if run <= 6 => LineStart::Heading { level: run, bytes: indent + run + 1 },
            Some(_) => LineStart::Text,
        },
        '`' | '~' => match (run, behind, end) {
            (0..=2, Some(_), _) => LineStart::Text,
            (0..=2, None, _) | (_, _, None) => LineStart::Unclear,
            (ticks, _, Some(end)) => {
                let has_more = rest.get(run..end).is_some_and(|rest| rest.contains('`'));
                if has_more {
                    LineStart::Text
                } else {
                    LineStart::Fence { ticks, bytes: indent + end + 1 }
                }
            }
        },
        '-' | '*' | '+' | '_' => match (run, behind) {
            (1, Some(' ')) if first != '_' => LineStart::Bullet { indent, bytes: indent + 2 },
            (_, None) => LineStart::Unclear,
            (3.., Some('\n')) if first != '+' => LineStart::Rule { bytes: indent + run + 1 },
            _ => LineStart::Text,
        },
        '>' => match rest.chars().nth(1) {
            None => LineStart::Unclear,
            Some(' ') => LineStart::Quote { bytes: indent + 2 },
            Some(_) => LineStart::Quote { bytes: indent + 1 },
        },
        '0'..='9' => {
            let digits =
                rest.len() - rest.trim_start_matches(|char: char| char.is_ascii_digit()).len();
            let mut behind = rest.chars().skip(digits);
            match (behind.next(), behind.next()) {
                (None, _) | (Some('.' | ')'), None) if digits < 4 => LineStart::Unclear,
                (Some('.' | ')'), Some(' ')) if digits < 4 => {
                    LineStart::Number { indent, bytes: indent + digits + 2 }
                }
                _ => LineStart::Text,
            }
        }
        _ => LineStart::Text,
    }
}

/// The inline element at the start of a text.
enum Span {
    Unclear,
    Styled {
        style: Style,
        text: String,
        bytes: usize,
    },
    /// A plain character.
    Letter,
}

fn parse_span(text: &str, last: Option<char>, more: MoreInput) -> Span {
    // Inline elements end at the latest with their line.
    let (line, is_whole) = match text.find('\n') {
        Some(end) => (text.get(..end).unwrap_or_default(), true),
        None => (text, more == MoreInput::No),
    };
    let open = if is_whole { Span::Letter } else { Span::Unclear };
    let Some(first) = line.chars().next() else { return Span::Letter };
    let run = line.len() - line.trim_start_matches(first).len();
    let rest = line.get(run..).unwrap_or_default();
    match first {
        '\\' => match line.chars().nth(1) {
            None => open,
            Some(char) if char.is_ascii_punctuation() => {
                Span::Styled { style: Style::PLAIN, text: char.to_string(), bytes: 2 }
            }
            Some(_) => Span::Letter,
        },
        '`' => match find_closing_run(rest, '`', run) {
            // A run of backticks may still grow.
            Some(at) if rest.len() == at + run && !is_whole => open,
            Some(at) => {
                let code = rest.get(..at).unwrap_or_default();
                let inner = code.strip_prefix(' ').and_then(|code| code.strip_suffix(' '));
                let code = inner.filter(|inner| !inner.trim().is_empty()).unwrap_or(code);
                Span::Styled { style: CODE, text: code.to_owned(), bytes: 2 * run + at }
            }
            None => open,
        },
        '[' => parse_link(line).unwrap_or(open),
        // One or two stars; more are printed as they are.
        _ => {
            let is_word = |char: Option<char>| char.is_some_and(char::is_alphanumeric);
            let Some(behind) = rest.chars().next() else { return open };
            if run > 2 {
                let text = first.to_string().repeat(run);
                return Span::Styled { style: Style::PLAIN, text, bytes: run };
            }
            if behind.is_whitespace() || (first == '_' && is_word(last)) {
                return Span::Letter;
            }
            let style = match run {
                1 => Style { italic: true, ..Style::PLAIN },
                _ => Style::BOLD,
            };
            let Some(at) = find_closing_run(rest, first, run) else { return open };
            let after = rest.get(at + run..).and_then(|rest| rest.chars().next());
            if after.is_none() && !is_whole {
                return open;
            }
            let text = rest.get(..at).unwrap_or_default();
            if text.ends_with(char::is_whitespace) || (first == '_' && is_word(after)) {
                return Span::Letter;
            }
            // A code span inside: its backticks are dropped, and the phrase keeps one style.
            let text = text.replace('`', "");
            Span::Styled { style, text, bytes: 2 * run + at }
        }
    }
}

/// Finds a run of exactly this length.
fn find_closing_run(text: &str, letter: char, run: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = text.get(at..)?.find(letter) {
        let begin = at + found;
        let rest = text.get(begin..)?;
        let length = rest.len() - rest.trim_start_matches(letter).len();
        if length == run {
            return Some(begin);
        }
        at = begin + length;
    }
    None
}

/// A link, followed by its URL.
fn parse_link(line: &str) -> Option<Span> {
    let close = line.find(']')?;
    let text = line.get(1..close)?;
    match line.get(close + 1..)?.chars().next() {
        None => None,
        Some('(') => {
            let address = line.get(close + 2..)?;
            let end = address.find(')')?;
            let (address, bytes) = (address.get(..end)?, close + 2 + end + 1);
            let text = if text.is_empty() || text == address {
                address.to_owned()
            } else {
                format!("{text} ({address})")
            };
            let style = Style { underline: true, ..Style::PLAIN };
            Some(Span::Styled { style, text, bytes })
        }
        Some(_) => Some(Span::Letter),
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::DisplayOptions;
    use super::*;

    fn render(pieces: &[&str], colour: bool) -> String {
        let mut page = Page::new(DisplayOptions { width: 40, colour });
        let mut markdown = Markdown::default();
        for piece in pieces {
            markdown.feed(piece, &mut page);
        }
        markdown.finish(&mut page);
        page.take_output()
    }

    const ALL: &str = "# Title\n\nSome **bold words**, *leaning* ones, `code`, 2 ** 3, snake_case_name \
                       and [a link](https://x.example).\n\n- one\n  - two **b**\n1. first\n10) tenth\n> a quote\n\n\
                       ```rust\nlet a = b * c; // `x`\n``\n```\n---\n\\*plain\\* ***both*** 3. x\n#no heading\n**open\nend *";

    #[test]
    fn each_markdown_element_is_rendered() {
        assert_eq!(
            render(&[ALL], false),
            "Title\n\nSome bold words, leaning ones, code, 2\n** 3, snake_case_name and a link\n\
             (https://x.example).\n\n• one\n  • two b\n1. first\n10) tenth\n▏ a quote\n\n  rust\n  \
             let a = b * c; // `x`\n  ``\n────────────────────────────────────────\n*plain* ***both*** 3. x\n#no heading\n**open\nend *\n"
        );
    }

    #[test]
    fn a_text_cut_anywhere_looks_the_same() {
        let whole = render(&[ALL], true);
        let mut letters: Vec<String> = ALL.chars().map(String::from).collect();
        let pieces: Vec<&str> = letters.iter_mut().map(|letter| &**letter).collect();
        // Styles may be written again at a cut; the result looks the same.
        assert_eq!(render(&pieces, true), whole);
        for (at, _) in ALL.char_indices() {
            let (a, b) = ALL.split_at(at);
            assert_eq!(render(&[a, b], true), whole, "cut at {at}");
        }
    }

    #[test]
    fn bold_code_and_headings_have_their_styles() {
        assert_eq!(render(&["## A *b*"], true), "\u{1b}[0;1mA \u{1b}[0;1;3mb\u{1b}[0m\n");
        assert_eq!(render(&["**b** `c`"], true), "\u{1b}[0;1mb \u{1b}[0;36mc\u{1b}[0m\n");
    }

    #[test]
    fn code_has_the_colours_of_its_language() {
        assert_eq!(
            render(&["```rust\nlet x\n```\nlet"], true),
            "  \u{1b}[0;2mrust\u{1b}[0m\n  \u{1b}[0;35mlet\u{1b}[0m x\nlet\n"
        );
        // The end of a block that is never closed.
        assert_eq!(render(&["```js\nlet"], true).matches("let").count(), 1);
    }

    #[test]
    fn unambiguous_text_is_printed_at_once() {
        let mut page = Page::new(DisplayOptions { width: 40, colour: false });
        let mut markdown = Markdown::default();
        markdown.feed("Now **this", &mut page);
        page.end_word();
        assert_eq!(page.take_output(), "Now");
        markdown.feed(" is** it ", &mut page);
        assert_eq!(page.take_output(), " this is it");
        markdown.feed("**never closed", &mut page);
        markdown.feed("\n", &mut page);
        assert_eq!(page.take_output(), " **never closed\n");
    }
}
