//! Text layout for a terminal: wraps words, adds margins, and writes style codes. Output is only
//! appended. Used by `render`.

use std::fmt::Write as _;
use unicode_width::UnicodeWidthChar;

/// The style of a piece of text.
#[expect(clippy::struct_excessive_bools, reason = "each is on or off, whatever the others are")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) bold: bool,
    pub(crate) dim: bool,
    pub(crate) italic: bool,
    pub(crate) underline: bool,
    pub(crate) colour: Option<Colour>,
}

/// Colours of every terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Magenta = 35,
    Cyan = 36,
}

impl Style {
    pub(crate) const PLAIN: Self =
        Self { bold: false, dim: false, italic: false, underline: false, colour: None };
    pub(crate) const BOLD: Self = Self { bold: true, ..Self::PLAIN };
    pub(crate) const DIM: Self = Self { dim: true, ..Self::PLAIN };
    pub(crate) const RED: Self = Self { colour: Some(Colour::Red), ..Self::PLAIN };
    pub(crate) const GREEN: Self = Self { colour: Some(Colour::Green), ..Self::PLAIN };
    pub(crate) const YELLOW: Self = Self { colour: Some(Colour::Yellow), ..Self::PLAIN };
    pub(crate) const CYAN: Self = Self { colour: Some(Colour::Cyan), ..Self::PLAIN };

    fn write_escape(self, out: &mut String) {
        let flags = [(self.bold, "1"), (self.dim, "2"), (self.italic, "3"), (self.underline, "4")];
        out.push_str("\x1b[0");
        for (_, code) in flags.into_iter().filter(|(is_on, _)| *is_on) {
            let _ = write!(out, ";{code}");
        }
        if let Some(colour) = self.colour {
            let _ = write!(out, ";{}", colour as u8);
        }
        out.push('m');
    }
}

/// Width and colour of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DisplayOptions {
    /// Columns.
    pub(crate) width: usize,
    pub(crate) colour: bool,
}

/// The text of a terminal, laid out.
pub(crate) struct Page {
    display: DisplayOptions,
    out: String,
    /// The current style of the terminal.
    active: Style,
    column: usize,
    /// The row has text besides its margin.
    is_begun: bool,
    /// How many empty rows the page ends with; `MAX` while it is empty.
    empty_rows: usize,
    /// The start of every row.
    margin: String,
    /// Indent of wrapped rows.
    hanging: usize,
    /// Spaces before the next word, unless it wraps.
    spaces: usize,
    word: Vec<(Style, String)>,
    word_width: usize,
}

impl Page {
    pub(crate) fn new(display: DisplayOptions) -> Self {
        Self {
            // Narrower text is unreadable.
            display: DisplayOptions { width: display.width.max(20), ..display },
            out: String::new(),
            active: Style::PLAIN,
            column: 0,
            is_begun: false,
            empty_rows: usize::MAX,
            margin: String::new(),
            hanging: 0,
            spaces: 0,
            word: Vec::new(),
            word_width: 0,
        }
    }

    pub(crate) fn width(&self) -> usize {
        self.display.width.saturating_sub(display_width(&self.margin))
    }

    /// Sets the width, after the window was resized.
    pub(crate) fn resize(&mut self, width: usize) {
        self.display.width = width.max(20);
    }

    /// Returns the new output, which resets the style at its end.
    pub(crate) fn take_output(&mut self) -> String {
        self.set_style(Style::PLAIN);
        std::mem::take(&mut self.out)
    }

    /// Whether the next output starts a row.
    pub(crate) fn is_at_start(&self) -> bool {
        !self.is_begun && self.word.is_empty()
    }

    /// Writes text, wrapped between words. A line break ends the row.
    pub(crate) fn write_text(&mut self, style: Style, text: &str) {
        for char in text.chars() {
            match char {
                '\n' => self.end_row(),
                ' ' => {
                    self.end_word();
                    self.spaces += 1;
                }
                '\t' => {
                    self.end_word();
                    self.spaces += 4;
                }
                char => self.push_char(style, replace_control(char)),
            }
        }
    }

    /// Writes a row of its own.
    pub(crate) fn write_row(&mut self, style: Style, text: &str) {
        self.start_row();
        self.write_text(style, text);
        self.end_row();
    }

    /// Writes text verbatim, such as code: it is broken only at the end of a row.
    pub(crate) fn write_verbatim(&mut self, style: Style, text: &str) {
        self.end_word();
        for char in text.chars() {
            match char {
                '\n' => self.end_row(),
                '\t' => (0..4).for_each(|_| self.write_char(style, ' ')),
                char => self.write_char(style, replace_control(char)),
            }
        }
    }

    /// Writes text that is not broken at all.
    pub(crate) fn write_unbroken(&mut self, style: Style, text: &str) {
        let width = std::mem::replace(&mut self.display.width, usize::MAX);
        self.write_verbatim(style, text);
        self.display.width = width;
    }

    /// Ends the current row, if it has text.
    pub(crate) fn start_row(&mut self) {
        self.end_word();
        self.spaces = 0;
        if self.is_begun {
            self.end_row();
        }
        self.hanging = 0;
    }

    /// Ends the row and adds an empty one, unless there is one.
    pub(crate) fn ensure_blank_row(&mut self) {
        self.start_row();
        if self.empty_rows == 0 {
            self.end_row();
        }
    }

    /// Sets the start of the following rows.
    pub(crate) fn set_margin(&mut self, margin: &str) {
        if self.margin != margin {
            self.start_row();
            margin.clone_into(&mut self.margin);
        }
    }

    /// Sets the indent of wrapped rows, until the row ends.
    pub(crate) fn set_hanging_indent(&mut self, columns: usize) {
        self.hanging = columns;
    }

    /// Another writer has written a whole row.
    pub(crate) fn mark_row_written(&mut self) {
        self.empty_rows = 0;
    }

    pub(crate) fn end_row(&mut self) {
        self.end_word();
        self.spaces = 0;
        if self.is_begun {
            self.empty_rows = 0;
        } else {
            self.empty_rows = self.empty_rows.saturating_add(1);
            self.begin_row();
        }
        self.break_row();
        self.hanging = 0;
    }

    fn break_row(&mut self) {
        self.set_style(Style::PLAIN);
        while self.out.ends_with(' ') {
            self.out.pop();
        }
        self.out.push('\n');
        self.column = 0;
        self.is_begun = false;
    }

    fn begin_row(&mut self) {
        if self.margin.is_empty() {
            return;
        }
        self.set_style(Style::DIM);
        self.out.push_str(&self.margin);
        self.column = display_width(&self.margin);
    }

    fn push_char(&mut self, style: Style, char: char) {
        match self.word.last_mut().filter(|(last, _)| *last == style) {
            Some((_, text)) => text.push(char),
            None => self.word.push((style, char.to_string())),
        }
        self.word_width += char.width().unwrap_or_default();
        if self.word_width >= self.display.width {
            self.end_word();
        }
    }

    /// Writes the pending word.
    pub(crate) fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let spaces = std::mem::take(&mut self.spaces);
        let needed = self.column + spaces + std::mem::take(&mut self.word_width);
        if self.is_begun && needed > self.display.width {
            self.break_row();
            self.indent(self.hanging);
        } else {
            let style = self.word.first().map_or(Style::PLAIN, |(style, _)| *style);
            let underline = style.underline && self.active.underline;
            (0..spaces).for_each(|_| self.write_char(Style { underline, ..self.active }, ' '));
        }
        for (style, text) in std::mem::take(&mut self.word) {
            text.chars().for_each(|char| self.write_char(style, char));
        }
    }

    fn indent(&mut self, columns: usize) {
        (0..columns).for_each(|_| self.write_char(Style::PLAIN, ' '));
    }

    fn write_char(&mut self, style: Style, char: char) {
        let wide = char.width().unwrap_or_default();
        if self.is_begun && self.column + wide > self.display.width {
            self.break_row();
        }
        if !self.is_begun {
            self.begin_row();
            self.is_begun = true;
        }
        self.set_style(style);
        self.out.push(char);
        self.column += wide;
    }

    fn set_style(&mut self, style: Style) {
        if self.display.colour && self.active != style {
            style.write_escape(&mut self.out);
            self.active = style;
        }
    }
}

/// Untrusted text must not control the terminal.
fn replace_control(char: char) -> char {
    if char.is_control() { '\u{fffd}' } else { char }
}

/// How many columns a text needs.
pub(crate) fn display_width(text: &str) -> usize {
    text.chars().map(|char| char.width().unwrap_or_default()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(width: usize, colour: bool) -> Page {
        Page::new(DisplayOptions { width, colour })
    }

    #[test]
    fn words_wrap_and_wrapped_rows_are_indented() {
        let mut page = page(20, false);
        page.write_text(Style::PLAIN, "- ");
        page.set_hanging_indent(2);
        page.write_text(Style::PLAIN, "one two three four five\nsix");
        page.start_row();
        assert_eq!(page.take_output(), "- one two three four\n  five\nsix\n");
    }

    #[test]
    fn a_word_that_comes_in_pieces_is_one_word() {
        let mut page = page(20, false);
        for piece in ["123456789 123456789", "01", "234 x"] {
            page.write_text(Style::PLAIN, piece);
        }
        page.start_row();
        assert_eq!(page.take_output(), "123456789\n12345678901234 x\n");
    }

    #[test]
    fn long_words_are_broken_and_wide_characters_count_twice() {
        let mut page = page(20, false);
        page.write_text(Style::PLAIN, &"世".repeat(12));
        page.start_row();
        assert_eq!(page.take_output(), format!("{}\n{}\n", "世".repeat(10), "世".repeat(2)));
    }

    #[test]
    fn every_row_has_the_margin_and_a_gap_is_one_row() {
        let mut page = page(20, false);
        page.write_text(Style::PLAIN, "above");
        page.set_margin("│ ");
        page.write_text(Style::PLAIN, "one two three four five");
        page.ensure_blank_row();
        page.ensure_blank_row();
        page.write_text(Style::PLAIN, "six");
        page.set_margin("");
        assert_eq!(page.take_output(), "above\n│ one two three four\n│ five\n│\n│ six\n");
    }

    #[test]
    fn style_codes_are_minimal_and_reset_at_the_end_of_the_output() {
        let mut page = page(40, true);
        page.write_text(Style::BOLD, "two words");
        page.write_text(Style::PLAIN, " plain\n");
        assert_eq!(page.take_output(), "\u{1b}[0;1mtwo words \u{1b}[0mplain\n");
        page.write_text(Style::RED, "a b");
        assert_eq!(page.take_output(), "\u{1b}[0;31ma\u{1b}[0m");
    }

    #[test]
    fn untrusted_text_cannot_control_the_terminal() {
        let mut page = page(40, true);
        page.write_row(Style::PLAIN, "\u{1b}[2Jx\u{7}\u{9b}1m");
        assert_eq!(page.take_output(), "\u{fffd}[2Jx\u{fffd}\u{fffd}1m\n");
    }
}
