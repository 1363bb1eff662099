//! Formats the input of a tool call.

use crate::chat::page::display_width;
use serde_json::Value;

/// The input on one row if it fits, else formatted. Text that is not JSON is shown verbatim.
pub(super) fn format_input(input: &str, room: usize, most: usize) -> Vec<String> {
    let text = match serde_json::from_str::<Value>(input) {
        Ok(value) => {
            let row = value.to_string();
            if display_width(&row) <= room { row } else { format!("{value:#}") }
        }
        Err(_) => input.trim().to_owned(),
    };
    let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
    if rows.len() > most {
        let more = rows.len() - most;
        rows.truncate(most);
        rows.push(format!("… {more} more lines"));
    }
    rows
}
