//! What somebody else said, in an answer of the demo: never more than one reads at a glance.

/// How many characters of a text are quoted.
const LINES: usize = 400;

/// How many characters of it go into a line.
const LINE: usize = 80;

/// As markdown quotes it.
pub(super) fn lines(text: &str) -> String {
    let beginning = beginning(text.trim(), LINES);
    let lines: Vec<String> = beginning.lines().map(|line| format!("> {line}")).collect();
    if lines.is_empty() { "> (nothing)".to_owned() } else { lines.join("\n") }
}

/// In one line.
pub(super) fn in_a_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().take(LINE).collect();
    beginning(&words.join(" "), LINE)
}

fn beginning(text: &str, characters: usize) -> String {
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
        assert_eq!(lines("  one\ntwo\n"), "> one\n> two");
        assert_eq!(lines(" \n"), "> (nothing)");
        assert_eq!(lines(&"é".repeat(500)), format!("> {}…", "é".repeat(400)));
        assert_eq!(in_a_line("one\n\n two"), "one two");
        assert_eq!(in_a_line(&"é ".repeat(500)).chars().count(), 81);
    }
}
