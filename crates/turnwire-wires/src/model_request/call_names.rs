//! Ids, names and inputs of tool calls in the format that a provider accepts.

use super::ToolDefinition;
use crate::json::fields;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use turnwire_core::{Fields, Json};

/// Adapts ids of calls, which may come from another provider, to one that accepts only some characters and lengths. Ids are
/// unique within a request.
pub(crate) struct CallIds {
    /// The maximum length of an id.
    max_len: usize,
    /// Whether the provider accepts the character.
    is_allowed: fn(char) -> bool,
    used: HashSet<String>,
    /// How often each id was requested.
    counts: HashMap<String, usize>,
    /// The ids of the calls without a result so far.
    unanswered: VecDeque<String>,
}

impl CallIds {
    pub(crate) fn new(max_len: usize, is_allowed: fn(char) -> bool) -> Self {
        let (used, counts, unanswered) = (HashSet::new(), HashMap::new(), VecDeque::new());
        Self { max_len, is_allowed, used, counts, unanswered }
    }

    /// The id of the next call.
    pub(crate) fn next_call_id(&mut self, id: &str) -> String {
        let id = if id.is_empty() { "_" } else { id };
        let letters = id.chars().map(|letter| if (self.is_allowed)(letter) { letter } else { '_' });
        let wanted: String = letters.take(self.max_len).collect();
        let count = self.counts.entry(wanted.clone()).or_default();
        let mut fresh = wanted.clone();
        while !self.used.insert(fresh.clone()) {
            *count += 1;
            let end = format!("-{}", *count + 1);
            fresh = wanted.chars().take(self.max_len.saturating_sub(end.len())).collect();
            fresh.push_str(&end);
        }
        self.unanswered.push_back(fresh.clone());
        fresh
    }

    /// The id of the call that the next result is for: results come in the order of the calls.
    pub(crate) fn next_result_id(&mut self) -> String {
        self.unanswered.pop_front().unwrap_or_default()
    }
}

/// Whether every provider accepts this character in a name.
pub(crate) fn is_name_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'
}

/// The name of a past call, with refused characters replaced. Models invent names, and a provider that refuses one refuses
/// the whole conversation. The name of a tool in `tools` stays as it is.
pub(crate) fn sanitize_call_name<'n>(
    name: &'n str,
    tools: &[ToolDefinition],
    most: usize,
) -> Cow<'n, str> {
    if tools.iter().any(|tool| tool.name == name) {
        return name.into();
    }
    if name.is_empty() {
        return "unnamed".into();
    }
    if name.chars().all(is_name_char) && name.len() <= most {
        return name.into();
    }
    let letters = name.chars().map(|letter| if is_name_char(letter) { letter } else { '_' });
    letters.take(most).collect::<String>().into()
}

/// The key that holds an input that is not an object, for providers that require an object.
const UNPARSED_INPUT: &str = "unparsed_input";

/// A call's input as an object. An empty input is an empty object; anything else is wrapped in one.
pub(crate) fn input_to_object(input: &str) -> Json {
    if input.trim().is_empty() {
        return Fields::default().into();
    }
    match Json::parse(input) {
        Ok(json) if json.text().starts_with('{') => json,
        _ => fields! { UNPARSED_INPUT: input }.into(),
    }
}

/// The same as text. An input that is an object stays as the model wrote it.
pub(crate) fn input_to_object_text(input: &str) -> Cow<'_, str> {
    match serde_json::from_str::<Fields>(input) {
        Ok(_) => input.into(),
        Err(_) => input_to_object(input).text().to_owned().into(),
    }
}

/// The input that [`input_to_object`] made this object from.
pub(crate) fn object_to_input(arguments: &str) -> String {
    let unparsed = || {
        let fields: Fields = serde_json::from_str(arguments).ok()?;
        let text: String = fields.get(UNPARSED_INPUT).ok()??;
        (fields.len() == 1).then_some(text)
    };
    unparsed().unwrap_or_else(|| arguments.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_short_plain_and_different() {
        let mut ids = CallIds::new(6, is_name_char);
        let given = ["a", "a", "a.b", "a:b", "", "1234567", "1234568", "a-2"]
            .map(|id| ids.next_call_id(id));
        assert_eq!(given, ["a", "a-2", "a_b", "a_b-2", "_", "123456", "1234-2", "a-2-2"]);
        assert_eq!([ids.next_result_id(), ids.next_result_id()], ["a", "a-2"]);
    }

    #[test]
    fn only_names_of_tools_that_are_offered_may_have_any_letters() {
        let tools = [ToolDefinition {
            name: "fs.read".into(),
            description: String::new(),
            input_schema: Fields::default().into(),
            ..ToolDefinition::default()
        }];
        for (name, expected) in [
            ("fs.read", "fs.read"),
            ("fs.write", "fs_write"),
            ("wetter_für", "wetter_f_r"),
            ("", "unnamed"),
            ("12345678901", "1234567890"),
        ] {
            assert_eq!(sanitize_call_name(name, &tools, 10), expected);
        }
    }
}
