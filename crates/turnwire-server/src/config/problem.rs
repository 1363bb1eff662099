//! Errors in settings, with their line.

use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

/// One error in the settings. It does not quote the line, which may hold a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, an environment variable or an option.
    pub origin: String,
    /// The line and the column, counted from 1.
    pub position: Option<(usize, usize)>,
    /// The key, such as `limits.body`. May be empty.
    pub key: String,
    /// What is wrong, and what is expected.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if let Some((line, column)) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// All errors in the settings, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub Vec<Problem>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    pub(crate) fn single(origin: impl Into<String>, message: impl Into<String>) -> Self {
        let (origin, message) = (origin.into(), message.into());
        Self(vec![Problem { origin, position: None, key: String::new(), message }])
    }
}

/// The text of a settings file, to find lines and keys.
pub(crate) struct SettingsText<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
}

/// How many wrong entries of a file are reported.
const MAX_PROBLEMS: usize = 50;

/// What could be read of the settings.
pub(crate) struct Deserialized<T> {
    /// The settings without the entries that are wrong.
    pub(crate) settings: Option<T>,
    /// What is wrong, in the order in which it was found.
    pub(crate) problems: Vec<Problem>,
    /// The names of these entries. A table, such as an agent's, is one of them if a field that it requires is wrong.
    pub(crate) left_out: Vec<String>,
}

impl SettingsText<'_> {
    /// Reads the settings. An entry that is wrong is left out, and the rest is read again, so that all wrong entries are
    /// found at once.
    pub(crate) fn deserialize<T: DeserializeOwned>(&self) -> Deserialized<T> {
        let (mut table, errors) = DeTable::parse_recoverable(self.text);
        if !errors.is_empty() {
            let problems = errors.iter().map(|error| self.problem_from_toml(error)).collect();
            return Deserialized { settings: None, problems, left_out: Vec::new() };
        }
        let mut problems: Vec<Problem> = Vec::new();
        let mut left_out = Vec::new();
        while problems.len() < MAX_PROBLEMS {
            let error = match T::deserialize(Deserializer::from(table.clone())) {
                Ok(settings) => {
                    return Deserialized { settings: Some(settings), problems, left_out };
                }
                Err(error) => error,
            };
            let problem = self.problem_from_toml(&error);
            let span = error.span().unwrap_or_default();
            // A field is missing because it was wrong and left out: that was reported.
            let is_reported = |known: &Problem| {
                known.key == problem.key
                    || missing_field(error.message()).is_some_and(|field| {
                        known.key.strip_prefix(&problem.key) == Some(&format!(".{field}"))
                    })
            };
            if !problems.iter().any(is_reported) {
                problems.push(problem);
            }
            let is_mistyped = error.message().starts_with("unknown field");
            let new_name = nearest_name(error.message()).filter(|_| is_mistyped);
            let Some(name) = correct_entry(table.get_mut(), &span, new_name) else { break };
            left_out.push(name);
        }
        Deserialized { settings: None, problems, left_out }
    }

    /// The problem of a TOML error.
    fn problem_from_toml(&self, error: &toml::de::Error) -> Problem {
        let span = error.span();
        let key = span.clone().map(|span| self.key_at(&span)).unwrap_or_default();
        let mut message = error.message().trim_end().replace('\n', "; ");
        if let Some(nearest) = nearest_name(&message) {
            message = format!("{message}; did you mean `{nearest}`?");
        }
        Problem {
            origin: self.name.to_owned(),
            position: span.map(|span| self.line_and_column(span.start)),
            key,
            message,
        }
    }

    /// A problem with a key; its line is that of the key or of its nearest existing parent.
    pub(crate) fn problem_at(&self, path: &[&str], message: impl Into<String>) -> Problem {
        let at = DeTable::parse(self.text).ok().and_then(|root| {
            let start = find_key(root.get_ref(), path)?;
            Some(self.line_and_column(start))
        });
        let (origin, message) = (self.name.to_owned(), message.into());
        Problem { origin, position: at, key: path.join("."), message }
    }

    fn line_and_column(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        (line, column)
    }

    /// The path of the key at a position.
    fn key_at(&self, span: &Range<usize>) -> String {
        let Ok(root) = DeTable::parse(self.text) else { return String::new() };
        let mut path = Vec::new();
        path_to(root.get_ref(), span, &mut path);
        path.join(".")
    }
}

fn is_within(inner: &Range<usize>, outer: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Finds the path of the key that contains a position; tables may be spread over the file.
fn path_to(table: &DeTable<'_>, span: &Range<usize>, path: &mut Vec<String>) -> bool {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        let mut is_inside = |value: &DeValue<'_>| matches!(value, DeValue::Table(inner) if path_to(inner, span, path));
        let found = is_within(span, &key.span())
            || is_inside(value.get_ref())
            || matches!(value.get_ref(), DeValue::Array(items)
                if items.iter().any(|item| is_inside(item.get_ref())))
            || is_within(span, &value.span());
        if found {
            return true;
        }
        path.pop();
    }
    false
}

/// Removes the innermost entry that contains a position and returns its name. With `new_name`, the entry gets that name
/// instead, unless another entry has it.
fn correct_entry(
    table: &mut DeTable<'_>,
    span: &Range<usize>,
    new_name: Option<&str>,
) -> Option<String> {
    let mut wrong = None;
    for (key, value) in table.iter_mut() {
        let is_inside = is_within(span, &key.span()) || is_within(span, &value.span());
        let value = value.get_mut();
        let corrected = if let DeValue::Table(inner) = value {
            correct_entry(inner, span, new_name)
        } else if let DeValue::Array(items) = value {
            items.iter_mut().find_map(|item| {
                let DeValue::Table(inner) = item.get_mut() else { return None };
                correct_entry(inner, span, new_name)
            })
        } else {
            None
        };
        if corrected.is_some() {
            return corrected;
        }
        if is_inside {
            wrong = Some(key.clone());
            break;
        }
    }
    let key = wrong?;
    let value = table.remove(&**key.get_ref())?;
    if let Some(name) = new_name.filter(|name| !table.contains_key(*name)) {
        table.insert(Spanned::new(key.span(), Cow::Owned(name.to_owned())), value);
    }
    Some(key.into_inner().into_owned())
}

/// The offset of a key. A number in the path is an index into a list.
fn find_key(table: &DeTable<'_>, path: &[&str]) -> Option<usize> {
    let (first, rest) = path.split_first()?;
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == first)?;
    let deeper = match (value.get_ref(), rest) {
        (DeValue::Table(inner), rest) => find_key(inner, rest),
        (DeValue::Array(items), [index, rest @ ..]) => {
            let item = index.parse().ok().and_then(|index: usize| items.get(index))?;
            let key = item.get_ref().as_table().and_then(|inner| find_key(inner, rest));
            key.or(Some(item.span().start))
        }
        _ => None,
    };
    deeper.or(Some(key.span().start))
}

/// The name of the field that is missing, by an error message.
fn missing_field(message: &str) -> Option<&str> {
    Some(message.strip_prefix("missing field `")?.trim_end_matches('`'))
}

/// The known name nearest to the unknown one in an error message.
fn nearest_name(message: &str) -> Option<&str> {
    let rest =
        message.strip_prefix("unknown field `").or(message.strip_prefix("unknown variant `"))?;
    let (wrong, expected) = rest.split_once('`')?;
    let known = expected.split('`').skip(1).step_by(2);
    let (distance, name) = known.map(|name| (strsim::levenshtein(wrong, name), name)).min()?;
    (distance <= 1 + wrong.len() / 3).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_name_is_no_suggestion() {
        assert_eq!(
            nearest_name("unknown field `lisen`, expected one of `listen`, `store`"),
            Some("listen")
        );
        assert_eq!(nearest_name("unknown field `zebra`, expected `store`"), None);
        assert_eq!(nearest_name("something else"), None);
    }
}
