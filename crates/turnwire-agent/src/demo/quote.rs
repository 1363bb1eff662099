//! Short quotes of the user's text in the demo's answers.

/// The most characters of a quote.
const MAX_QUOTE_CHARS: usize = 400;

/// The most characters of a quote on one line.
const MAX_LINE_CHARS: usize = 80;

/// As a markdown block quote.
pub(super) fn as_blockquote(text: &str) -> String {
    let beginning = shorten(text.trim(), MAX_QUOTE_CHARS);
    let lines: Vec<String> = beginning.lines().map(|line| format!("> {line}")).collect();
    if lines.is_empty() { "> (nothing)".to_owned() } else { lines.join("\n") }
}

/// On one line.
pub(super) fn on_one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().take(MAX_LINE_CHARS).collect();
    shorten(&words.join(" "), MAX_LINE_CHARS)
}

fn shorten(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_is_short_and_every_line_is_marked() {
        assert_eq!(as_blockquote("  one\ntwo\n"), "> one\n> two");
        assert_eq!(as_blockquote(" \n"), "> (nothing)");
        assert_eq!(as_blockquote(&"é".repeat(500)), format!("> {}…", "é".repeat(400)));
        assert_eq!(on_one_line("one\n\n two"), "one two");
        assert_eq!(on_one_line(&"é ".repeat(500)).chars().count(), 81);
    }
}
