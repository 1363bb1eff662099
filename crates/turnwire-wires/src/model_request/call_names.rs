//! Ids, names and inputs of calls, in the form that a provider takes.

use super::{ToolDefinition, to_json_object};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use turnwire_core::{Fields, Json};

/// The ids of calls, for a provider that takes only some: a call may have come from another one.
/// No two calls of one request get the same id, or the provider could not tell them apart.
pub(crate) struct CallIds {
    /// The most characters that an id may have.
    max_len: usize,
    /// Whether the provider takes the letter.
    is_allowed: fn(char) -> bool,
    used: HashSet<String>,
    /// How often each was asked for.
    counts: HashMap<String, usize>,
    /// The ids of the calls that have no answer yet.
    unanswered: VecDeque<String>,
}

impl CallIds {
    pub(crate) fn new(most: usize, takes: fn(char) -> bool) -> Self {
        let (given, asked, open) = (HashSet::new(), HashMap::new(), VecDeque::new());
        Self { max_len: most, is_allowed: takes, used: given, counts: asked, unanswered: open }
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

    /// The id of the call that the next answer is for: answers come in the order of the calls.
    pub(crate) fn next_result_id(&mut self) -> String {
        self.unanswered.pop_front().unwrap_or_default()
    }
}

/// Letters that every provider takes in names.
pub(crate) fn is_name_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'
}

/// The name of a call that was made. Models make names up, and a provider that refuses a letter of
/// one would refuse the whole conversation. A name of a tool that is offered stays as it is.
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

/// The key under which an input that is no object is sent where the provider wants an object.
const UNPARSED_INPUT: &str = "unparsed_input";

/// A call's input as an object: what says nothing is an empty one, what is none is put into one.
pub(crate) fn input_to_object(input: &str) -> Json {
    if input.trim().is_empty() {
        return to_json_object(&Fields::default());
    }
    match Json::parse(input) {
        Ok(json) if json.text().starts_with('{') => json,
        _ => to_json_object(&[(UNPARSED_INPUT, input)].into_iter().collect()),
    }
}

/// The same as text; an input that is an object already stays as the model wrote it.
pub(crate) fn input_to_object_text(input: &str) -> Cow<'_, str> {
    match serde_json::from_str::<Fields>(input) {
        Ok(_) => input.into(),
        Err(_) => input_to_object(input).text().to_owned().into(),
    }
}

/// The input that [`arguments`] made this object from.
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
            input_schema: to_json_object(&Fields::default()),
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
