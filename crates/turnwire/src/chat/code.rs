//! Colours code of a fenced block as it arrives. A token is printed when it is certain what it is, and never again.
//!
//! It knows comments, strings, numbers and keywords, which most languages write alike; a parser of each language would
//! be far larger than this program.

use super::page::{Colour, Page, Style};

/// Code of an unknown language.
pub(crate) const CODE: Style = Style { colour: Some(Colour::Cyan), ..Style::PLAIN };
const KEYWORD: Style = Style { colour: Some(Colour::Magenta), ..Style::PLAIN };
const NUMBER: Style = Style { colour: Some(Colour::Yellow), ..Style::PLAIN };
const STRING: Style = Style { colour: Some(Colour::Green), ..Style::PLAIN };
const COMMENT: Style = Style::DIM;

/// A longer word is printed in pieces.
const MAX_WORD: usize = 64;

/// What languages with the same comments and strings have in common.
#[derive(Debug)]
struct Language {
    names: &'static [&'static str],
    line_comments: &'static [&'static str],
    block_comment: Option<(&'static str, &'static str)>,
    quotes: &'static [char],
    /// A quote three times begins a string of several lines.
    has_triple_quotes: bool,
    /// Strings in this quote may have several lines.
    multiline_quote: Option<char>,
    keywords: &'static [&'static str],
}

/// Keywords of most programming languages. Sorted.
const KEYWORDS: &[&str] = &[
    "None",
    "Self",
    "True",
    "False",
    "abstract",
    "and",
    "as",
    "assert",
    "async",
    "await",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "const",
    "continue",
    "def",
    "default",
    "defer",
    "del",
    "delete",
    "do",
    "double",
    "elif",
    "else",
    "enum",
    "except",
    "export",
    "extends",
    "extern",
    "false",
    "final",
    "finally",
    "float",
    "fn",
    "for",
    "from",
    "func",
    "function",
    "go",
    "if",
    "impl",
    "implements",
    "import",
    "in",
    "instanceof",
    "int",
    "interface",
    "is",
    "lambda",
    "let",
    "long",
    "loop",
    "match",
    "mod",
    "move",
    "mut",
    "namespace",
    "new",
    "nil",
    "not",
    "null",
    "or",
    "package",
    "pass",
    "private",
    "protected",
    "pub",
    "public",
    "raise",
    "ref",
    "return",
    "self",
    "static",
    "string",
    "struct",
    "super",
    "switch",
    "this",
    "throw",
    "throws",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "undefined",
    "union",
    "unsafe",
    "use",
    "using",
    "val",
    "var",
    "void",
    "where",
    "while",
    "with",
    "yield",
];
const SHELL_KEYWORDS: &[&str] = &[
    "case", "do", "done", "elif", "else", "esac", "exit", "export", "fi", "for", "function", "if",
    "in", "local", "return", "set", "then", "until", "while",
];
const SQL_KEYWORDS: &[&str] = &[
    "ALTER",
    "AND",
    "AS",
    "ASC",
    "BEGIN",
    "BY",
    "CASE",
    "COMMIT",
    "CREATE",
    "DELETE",
    "DESC",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "EXISTS",
    "FROM",
    "GROUP",
    "HAVING",
    "IN",
    "INDEX",
    "INNER",
    "INSERT",
    "INTO",
    "IS",
    "JOIN",
    "KEY",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "ON",
    "OR",
    "ORDER",
    "PRIMARY",
    "REFERENCES",
    "RETURNING",
    "RIGHT",
    "SELECT",
    "SET",
    "TABLE",
    "THEN",
    "UNION",
    "UNIQUE",
    "UPDATE",
    "VALUES",
    "VIEW",
    "WHEN",
    "WHERE",
    "WITH",
];
const CONSTANTS: &[&str] = &["true", "false", "null", "yes", "no"];

const C_LIKE: Language = Language {
    names: &[
        "c", "cpp", "c++", "cs", "csharp", "java", "kotlin", "kt", "scala", "swift", "dart", "go",
        "php", "css", "scss", "zig", "proto", "protobuf",
    ],
    line_comments: &["//"],
    block_comment: Some(("/*", "*/")),
    quotes: &['"', '\''],
    has_triple_quotes: false,
    multiline_quote: None,
    keywords: KEYWORDS,
};

static LANGUAGES: [Language; 7] = [
    C_LIKE,
    // A single quote begins a lifetime more often than a character.
    Language { names: &["rust", "rs"], quotes: &['"'], multiline_quote: Some('"'), ..C_LIKE },
    Language {
        names: &[
            "js",
            "javascript",
            "jsx",
            "ts",
            "typescript",
            "tsx",
            "mjs",
            "json",
            "jsonc",
            "json5",
        ],
        quotes: &['"', '\'', '`'],
        multiline_quote: Some('`'),
        ..C_LIKE
    },
    Language {
        names: &["python", "py", "ruby", "rb", "r", "elixir", "ex"],
        line_comments: &["#"],
        block_comment: None,
        has_triple_quotes: true,
        ..C_LIKE
    },
    Language {
        names: &["sh", "bash", "zsh", "shell", "console", "dockerfile", "make", "makefile"],
        line_comments: &["#"],
        block_comment: None,
        keywords: SHELL_KEYWORDS,
        ..C_LIKE
    },
    Language {
        names: &["yaml", "yml", "toml", "ini", "conf"],
        line_comments: &["#"],
        block_comment: None,
        keywords: CONSTANTS,
        ..C_LIKE
    },
    Language {
        names: &["sql", "postgresql", "sqlite"],
        line_comments: &["--"],
        quotes: &['\'', '"'],
        keywords: SQL_KEYWORDS,
        ..C_LIKE
    },
];

/// Where in the code the next character is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    BlockComment(&'static str),
    /// A string, and how many quotes end it.
    String(char, usize),
}

/// Colours the code of one block.
#[derive(Debug)]
pub(crate) struct Highlighter {
    language: Option<&'static Language>,
    state: State,
    /// The beginning of a token whose kind is not certain yet.
    held: String,
    /// The character before `held` in its line.
    last: Option<char>,
}

impl Highlighter {
    /// For the language that the fence names.
    pub(crate) fn new(language: &str) -> Self {
        // Such as `rust,no_run` and `js {1,3}`.
        let name = language.split([',', ' ', '{', ':']).next().unwrap_or_default().to_lowercase();
        let language = LANGUAGES.iter().find(|language| language.names.contains(&&*name));
        Self { language, state: State::Code, held: String::new(), last: None }
    }

    /// Adds a piece of a line.
    pub(crate) fn feed(&mut self, piece: &str, page: &mut Page) {
        let Some(language) = self.language else { return page.write_verbatim(CODE, piece) };
        self.held.push_str(piece);
        self.print_tokens(language, false, page);
    }

    /// The line has ended.
    pub(crate) fn end_line(&mut self, page: &mut Page) {
        let Some(language) = self.language else { return };
        self.print_tokens(language, true, page);
        self.last = None;
        self.state = match self.state {
            State::String(quote, 1) if language.multiline_quote != Some(quote) => State::Code,
            State::LineComment => State::Code,
            state @ (State::Code | State::BlockComment(_) | State::String(..)) => state,
        };
    }

    fn print_tokens(&mut self, language: &'static Language, is_whole: bool, page: &mut Page) {
        while !self.held.is_empty() {
            let Some((style, bytes)) = self.next_token(language, is_whole) else { return };
            let rest = self.held.split_off(bytes);
            page.write_verbatim(style, &self.held);
            self.last = self.held.chars().last();
            self.held = rest;
        }
    }

    /// Style and length of the token at the start of the held text; `None` if more text decides.
    fn next_token(
        &mut self,
        language: &'static Language,
        is_whole: bool,
    ) -> Option<(Style, usize)> {
        let text = &*self.held;
        match self.state {
            State::Code => self.next_code_token(language, is_whole),
            State::LineComment => Some((COMMENT, text.len())),
            State::BlockComment(end) => {
                if let Some(at) = text.find(end) {
                    self.state = State::Code;
                    return Some((COMMENT, at + end.len()));
                }
                let is_open =
                    !is_whole && end.chars().next().is_some_and(|first| text.ends_with(first));
                let bytes = text.len() - usize::from(is_open);
                (bytes > 0).then_some((COMMENT, bytes))
            }
            State::String(quote, count) => {
                let (bytes, is_closed) = string_length(text, quote, count, is_whole);
                if is_closed {
                    self.state = State::Code;
                }
                (bytes > 0).then_some((STRING, bytes))
            }
        }
    }

    fn next_code_token(
        &mut self,
        language: &'static Language,
        is_whole: bool,
    ) -> Option<(Style, usize)> {
        let text = &*self.held;
        let first = text.chars().next()?;
        if is_word_char(first) {
            let bytes = text.find(|char| !is_word_char(char)).unwrap_or(text.len());
            if bytes == text.len() && !is_whole && bytes < MAX_WORD {
                return None;
            }
            return Some((word_style(text.get(..bytes)?, language), bytes));
        }
        let blocks = language.block_comment.map(|(open, _)| open);
        for open in language.line_comments.iter().copied().chain(blocks) {
            // In a shell, `a#b` and `$#` are no comments.
            if open == "#" && self.last.is_some_and(|last| !last.is_whitespace()) {
                continue;
            }
            if text.starts_with(open) {
                self.state = match language.block_comment {
                    Some((block, end)) if block == open => State::BlockComment(end),
                    _ => State::LineComment,
                };
                return Some((COMMENT, open.len()));
            }
            if open.starts_with(text) && !is_whole {
                return None;
            }
        }
        if language.quotes.contains(&first) {
            let run = text.len() - text.trim_start_matches(first).len();
            if !language.has_triple_quotes {
                self.state = State::String(first, 1);
                return Some((STRING, first.len_utf8()));
            }
            return match run {
                1 | 2 if run == text.len() && !is_whole => None,
                1 => {
                    self.state = State::String(first, 1);
                    Some((STRING, first.len_utf8()))
                }
                // An empty string.
                2 => Some((STRING, 2 * first.len_utf8())),
                _ => {
                    self.state = State::String(first, 3);
                    Some((STRING, 3 * first.len_utf8()))
                }
            };
        }
        Some((Style::PLAIN, first.len_utf8()))
    }
}

/// How much of a text is in a string, and whether the string ends there.
fn string_length(text: &str, quote: char, count: usize, is_whole: bool) -> (usize, bool) {
    let end = quote.to_string().repeat(count);
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        let rest = text.get(at..).unwrap_or_default();
        if char == '\\' {
            if chars.next().is_none() && !is_whole {
                return (at, false);
            }
        } else if rest.starts_with(&end) {
            return (at + end.len(), true);
        } else if char == quote && end.starts_with(rest) && !is_whole {
            return (at, false);
        }
    }
    (text.len(), false)
}

fn is_word_char(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

fn word_style(word: &str, language: &Language) -> Style {
    if word.starts_with(|char: char| char.is_ascii_digit()) {
        return NUMBER;
    }
    let is_sql = std::ptr::eq(language.keywords, SQL_KEYWORDS);
    let is_keyword = |keyword: &&str| {
        if is_sql { keyword.eq_ignore_ascii_case(word) } else { **keyword == *word }
    };
    if language.keywords.iter().any(is_keyword) { KEYWORD } else { Style::PLAIN }
}

#[cfg(test)]
mod tests {
    use super::super::page::DisplayOptions;
    use super::*;

    fn show(language: &str, pieces: &[&str]) -> String {
        let mut page = Page::new(DisplayOptions { width: 200, colour: true });
        let mut code = Highlighter::new(language);
        for piece in pieces {
            for line in piece.split_inclusive('\n') {
                code.feed(line.trim_end_matches('\n'), &mut page);
                if line.ends_with('\n') {
                    code.end_line(&mut page);
                    page.end_row();
                }
            }
        }
        code.end_line(&mut page);
        let text = page.take_output();
        // Readable: the number of the colour.
        text.replace("\u{1b}[0", "[").replace("[;", "[")
    }

    #[test]
    fn keywords_strings_numbers_and_comments_have_colours() {
        assert_eq!(
            show("rust", &["let a: &'a str = \"x // \\\" y\"; // note\n"]),
            "[35mlet[m a: &'a str = [32m\"x // \\\" y\"[m; [2m// note[m\n"
        );
        assert_eq!(
            show(
                "python",
                &["def f(x):  # no\n    \"\"\"a\n    b\"\"\"\n    return x + 12 + ''\n"]
            ),
            "[35mdef[m f(x):  [2m# no[m\n    [32m\"\"\"a[m\n[32m    b\"\"\"[m\n    [35mreturn[m x + [33m12[m + [32m''[m\n"
        );
        assert_eq!(show("sh", &["echo $# a#b # c"]), "echo $# a#b [2m# c[m");
        assert_eq!(show("ts", &["/* a\n * b */ `${x}`"]), "[2m/* a[m\n[2m * b */[m [32m`${x}`[m");
        assert_eq!(show("SQL", &["select 'a' -- b"]), "[35mselect[m [32m'a'[m [2m-- b[m");
        assert_eq!(show("yaml", &["if: true # x"]), "if: [35mtrue[m [2m# x[m");
    }

    #[test]
    fn a_string_that_is_not_closed_ends_with_its_line() {
        assert_eq!(show("c", &["it's\nif"]), "it[32m's[m\n[35mif[m");
    }

    #[test]
    fn code_of_an_unknown_language_has_one_colour() {
        assert_eq!(show("", &["if x"]), "[36mif x[m");
        assert_eq!(show("brainfuck", &["if x"]), "[36mif x[m");
    }

    #[test]
    fn code_cut_anywhere_looks_the_same() {
        let text = "let s = \"a\\\"b\"; /* x **/ y // z\nfor é in 1..20 { '\"' }\n";
        let python = "a = \"\"\"x\"\" y\"\"\" # c\n'' + 'b'\n";
        for (language, text) in [("rust", text), ("js", text), ("python", python), ("sql", text)] {
            let whole = show(language, &[text]);
            for (at, _) in text.char_indices() {
                let (a, b) = text.split_at(at);
                assert_eq!(show(language, &[a, b]), whole, "{language} cut at {at}");
            }
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let pieces: Vec<&str> = letters.iter().map(|letter| &**letter).collect();
            assert_eq!(show(language, &pieces), whole, "{language}");
        }
    }
}
