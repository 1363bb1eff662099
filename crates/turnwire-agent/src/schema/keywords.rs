//! Keywords that check a single value, such as `type`, `enum` and `format`: the `jsonschema` crate checks
//! them.

use super::{MAX_COMPILED_PATTERN_BYTES, MAX_PATTERN_BYTES, MAX_PATTERNS, SchemaError};
use jsonschema::{PatternOptions, Validator};
use referencing::Draft;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// The keywords. `pattern` is separate, because the cost of a regular expression is measured.
const KEYWORDS: &[&str] = &[
    "type",
    "enum",
    "const",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "maxItems",
    "minItems",
    "maxProperties",
    "minProperties",
    "required",
    "dependentRequired",
    "format",
    "contentEncoding",
    "contentMediaType",
];

/// Size limits of a compiled regular expression: the first that suffices is taken as its size.
const PATTERN_SIZES: &[usize] =
    &[1 << 10, 2 << 10, 4 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20];

/// How many bytes of text or schema one step covers.
const BYTES_PER_STEP: usize = 64;

/// How many bytes of a compiled regular expression one step covers, per byte of text. This is the worst
/// case: a simulation of all states.
const PATTERN_BYTES_PER_STEP: usize = 256;

/// The single-value keywords of one subschema.
pub(super) struct Assertions {
    validator: Validator,
    /// The cost of checking any value.
    steps: u64,
}

impl Assertions {
    pub(super) fn is_valid(&self, value: &Value) -> bool {
        self.validator.is_valid(value)
    }

    /// What does not match, for people.
    pub(super) fn errors(&self, value: &Value, most: usize) -> Vec<String> {
        self.validator.iter_errors(value).take(most).map(|error| error.to_string()).collect()
    }

    /// The steps to check a value.
    pub(super) fn steps(&self, value: &Value) -> u64 {
        let text = value.as_str().map_or(0, str::len);
        self.steps.saturating_add(to_u64(text / BYTES_PER_STEP))
    }
}

/// A regular expression.
pub(super) struct Pattern {
    validator: Validator,
    size: usize,
}

impl Pattern {
    pub(super) fn is_match(&self, text: &Value) -> bool {
        self.validator.is_valid(text)
    }

    /// The steps to search a text.
    pub(super) fn steps(&self, bytes: usize) -> u64 {
        let each = self.size.div_ceil(PATTERN_BYTES_PER_STEP);
        to_u64(bytes.saturating_add(1)).saturating_mul(to_u64(each))
    }
}

/// The compiled keywords of a schema; equal ones are compiled once.
#[derive(Default)]
pub(super) struct Keywords {
    pub(super) assertions: Vec<Assertions>,
    pub(super) patterns: Vec<Pattern>,
    known_assertions: HashMap<(u8, String), usize>,
    known_patterns: HashMap<String, usize>,
    pattern_bytes: usize,
}

impl Keywords {
    /// The index of the assertions of a subschema, if it has some.
    pub(super) fn assertions(
        &mut self,
        draft: Draft,
        schema: &Map<String, Value>,
    ) -> Result<Option<usize>, SchemaError> {
        let mut found: Map<String, Value> = KEYWORDS
            .iter()
            .filter_map(|word| Some(((*word).to_owned(), schema.get(*word)?.clone())))
            .collect();
        if let Some(Value::Object(dependencies)) = schema.get("dependencies") {
            let lists = dependencies.iter().filter(|(_, value)| value.is_array());
            let lists: Map<String, Value> =
                lists.map(|(key, value)| (key.clone(), value.clone())).collect();
            if !lists.is_empty() {
                found.insert("dependencies".to_owned(), Value::Object(lists));
            }
        }
        if found.is_empty() {
            return Ok(None);
        }
        let found = Value::Object(found);
        let text = found.to_string();
        let steps = to_u64(1 + text.len() / BYTES_PER_STEP);
        let key = (draft as u8, text);
        if let Some(known) = self.known_assertions.get(&key) {
            return Ok(Some(*known));
        }
        let validator =
            build(draft, &found, MAX_COMPILED_PATTERN_BYTES).map_err(SchemaError::invalid)?;
        let index = self.assertions.len();
        self.assertions.push(Assertions { validator, steps });
        self.known_assertions.insert(key, index);
        Ok(Some(index))
    }

    /// The index of a regular expression.
    pub(super) fn pattern(&mut self, pattern: &str) -> Result<usize, SchemaError> {
        if let Some(known) = self.known_patterns.get(pattern) {
            return Ok(*known);
        }
        if self.patterns.len() >= MAX_PATTERNS {
            let why = format!("it has more than {MAX_PATTERNS} regular expressions");
            return Err(SchemaError::TooLarge(why));
        }
        if pattern.len() > MAX_PATTERN_BYTES {
            let why = format!("a regular expression is longer than {MAX_PATTERN_BYTES} bytes");
            return Err(SchemaError::TooLarge(why));
        }
        let schema = json!({ "pattern": pattern });
        let left = MAX_COMPILED_PATTERN_BYTES.saturating_sub(self.pattern_bytes);
        let sizes = PATTERN_SIZES.iter().filter(|size| **size <= left);
        for &size in sizes {
            if let Ok(validator) = build(Draft::Draft202012, &schema, size) {
                let index = self.patterns.len();
                self.pattern_bytes += size;
                self.patterns.push(Pattern { validator, size });
                self.known_patterns.insert(pattern.to_owned(), index);
                return Ok(index);
            }
        }
        let shown: String = pattern.chars().take(80).collect();
        let why = format!("the regular expression `{shown}` is not valid, or too large");
        Err(SchemaError::Invalid(why))
    }
}

fn build(
    draft: Draft,
    schema: &Value,
    pattern_size: usize,
) -> Result<Validator, jsonschema::ValidationError<'static>> {
    // This engine needs time proportional to the text times the size of the expression.
    let patterns =
        PatternOptions::regex().size_limit(pattern_size).dfa_size_limit(pattern_size.max(64 << 10));
    jsonschema::options().with_draft(draft).with_pattern_options(patterns).build(schema)
}

/// Whether all items differ. The `jsonschema` crate hashes them too, but nested arrays can have equal
/// hashes there, and then it compares all pairs.
pub(super) fn are_unique(items: &[Value]) -> bool {
    let mut seen = HashSet::with_capacity(items.len());
    items.iter().all(|item| {
        let mut text = String::new();
        write_canonical(item, &mut text);
        seen.insert(text)
    })
}

/// Writes a value in canonical form: equal values have equal texts.
fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(whole) if number.is_f64() && whole.fract() == 0.0 => {
                // Adding zero turns a negative zero into zero.
                let _ = write!(text, "{:.0}", whole + 0.0);
            }
            _ => text.push_str(&number.to_string()),
        },
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            text.push('{');
            for (key, value) in fields {
                text.push_str(&Value::String(key.clone()).to_string());
                text.push(':');
                write_canonical(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Null | Value::Bool(_) | Value::String(_) => text.push_str(&value.to_string()),
    }
}

/// The steps to walk through a value.
pub(super) fn steps_for(value: &Value) -> u64 {
    1 + match value {
        Value::String(text) => to_u64(text.len() / BYTES_PER_STEP),
        Value::Array(items) => items.iter().map(steps_for).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| to_u64(key.len() / BYTES_PER_STEP) + steps_for(value))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
