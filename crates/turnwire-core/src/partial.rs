//! The best-effort value of JSON text that is still arriving.
//!
//! A model streams the input of a tool call in pieces, cut anywhere. [`PartialJson`] takes the pieces and has
//! a value to show after each:
//!
//! ```
//! use serde_json::json;
//! use turnwire_core::partial::{PartialJson, PartialState};
//!
//! let mut input = PartialJson::new();
//! assert_eq!(input.push(r#"{"path": "src/li"#).value(), Some(&json!({"path": "src/li"})));
//! assert_eq!(input.push(r#"b.rs", "line"#).value(), Some(&json!({"path": "src/lib.rs"})));
//! assert_eq!(input.push(r#"": 12"#).value(), Some(&json!({"path": "src/lib.rs", "line": 12})));
//! assert_eq!(input.state(), PartialState::Open);
//!
//! input.push("}");
//! assert_eq!(input.state(), PartialState::Complete);
//! ```
//!
//! # The value
//!
//! - A **string** shows the characters that have arrived, without an incomplete escape and without the first
//!   half of a surrogate pair.
//! - A **number** shows its longest valid prefix: `1.` and `1e` show 1, `-` shows nothing.
//!   After 64 characters it shows the value of these 64 until it ends: parsing it again for every new digit
//!   would be quadratic. So a long number that is out of range is noticed only at its end; a shorter one is
//!   [`Broken`](PartialState::Broken) at once.
//! - A **literal** (`true`, `false`, `null`) shows when it is complete.
//! - An **array** or **object** shows its finished children, and the open child once that has a value. A
//!   repeated key keeps its first position and takes the last value.
//!
//! # The grammar
//!
//! The same as [`serde_json::from_str`], with its depth limit and its numbers: once the text is
//! [`Complete`](PartialState::Complete), the value is the same. There are two differences:
//!
//! - After a number at the root more digits may follow: the state stays [`Open`](PartialState::Open) until
//!   white space follows it.
//! - A member named `$serde_json::private::RawValue`, which `serde_json` uses for its own raw values, is an
//!   ordinary member.
//!
//! # The cost
//!
//! There is one tree, and a push changes it in place: it detaches the open path (from the root to the value
//! that is being read), reads the delta, and attaches the path again. So a stream costs its bytes, plus the
//! depth per push. (A repeated key is looked up on each push while its value is open, which adds its
//! length.)

use std::mem;

use serde_json::{Map, Value};

/// Maximum nesting depth. The limit of `serde_json` is 128, and it refuses the 128th container.
const MAX_DEPTH: usize = 127;

/// Number of characters that count for the value of an open number.
///
/// Without an exponent a number of this length is always in range; with one, more digits only lead further
/// out. So a number that is out of range within this length stays out of range.
const MAX_SHOWN_DIGITS: usize = 64;

/// The best-effort value of JSON text that is still arriving.
///
/// The value depends on the text alone, not on the cuts (except for a number that is out of range: it may
/// show a shorter prefix or nothing).
#[derive(Debug, Clone, Default)]
pub struct PartialJson {
    /// The value. During a push it lacks the open path.
    root: Option<Value>,
    /// The open containers, outermost first. Between pushes they are empty: the root has everything.
    open: Vec<OpenContainer>,
    /// The open key or number; during a push also the open string.
    text: String,
    /// The value of the open number. Only set during a push.
    number: Option<Value>,
    mode: Mode,
}

/// State of a [`PartialJson`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartialState {
    /// The value is incomplete.
    Open,
    /// A complete JSON value was read.
    Complete,
    /// The text is not JSON, or nested too deeply. The value is the last one before the error.
    Broken,
}

/// What the next character belongs to.
#[derive(Debug, Clone, Copy)]
enum Mode {
    /// White space, or the next token.
    BetweenTokens(Expected),
    /// A string: its role, and the state of an escape in it.
    Text(StringRole, Escape),
    /// A number, after this part.
    Number(NumberPart),
    /// A literal: its missing characters, and its value (`None` for `null`).
    Literal(&'static str, Option<bool>),
    /// Nothing: the text is broken.
    Broken,
}

#[derive(Debug, Clone, Copy)]
enum Expected {
    Value,
    /// A value, or the end of the array that has just started.
    FirstItem,
    Key,
    /// A key, or the end of the object that has just started.
    FirstKey,
    Colon,
    /// After a value: a comma, the end of its container, or nothing.
    After,
}

#[derive(Debug, Clone, Copy)]
enum StringRole {
    Key,
    Value,
}

/// State of an escape in a string.
#[derive(Debug, Clone, Copy)]
enum Escape {
    Outside,
    Backslash,
    /// After `\u`: the first half if this is the second of a surrogate pair, the digits so far, and how many
    /// are missing.
    Hex(Option<u16>, u16, u8),
    /// After the first half of a surrogate pair: that half, and the missing characters of the next `\u`.
    BetweenSurrogates(u16, &'static str),
}

/// The last part of a number that has been read.
#[derive(Debug, Clone, Copy)]
enum NumberPart {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    E,
    ExponentSign,
    Exponent,
}

/// The text is not the start of any accepted JSON.
struct NotJson;

impl PartialJson {
    /// A reader that has read nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next piece. Once [`Broken`](PartialState::Broken), nothing changes.
    pub fn push(&mut self, delta: &str) -> &mut Self {
        match self.state() {
            PartialState::Open => self.detach_open_path(),
            // Nothing is open: the root stays.
            PartialState::Complete => {}
            PartialState::Broken => return self,
        }
        let read = delta.chars().try_for_each(|c| self.read(c));
        let shown = self.attach_open_path();
        if read.and(shown).is_err() {
            self.mode = Mode::Broken;
        }
        self
    }

    /// The value so far; `None` if there is none yet.
    #[must_use]
    pub fn value(&self) -> Option<&Value> {
        self.root.as_ref()
    }

    /// The state. A number at the root stays open until white space follows it.
    #[must_use]
    pub fn state(&self) -> PartialState {
        use Mode::{BetweenTokens, Broken, Literal, Number, Text};
        match self.mode {
            Broken => PartialState::Broken,
            BetweenTokens(Expected::After) if self.open.is_empty() => PartialState::Complete,
            BetweenTokens(_) | Text(..) | Number(_) | Literal(..) => PartialState::Open,
        }
    }

    /// Detaches the open path from the tree, for direct access while reading.
    fn detach_open_path(&mut self) {
        let mut node = self.root.take();
        for frame in &mut self.open {
            // There is a node: an open container is always in the tree.
            frame.container = node.unwrap_or_default();
            node = frame.shown_child().map(mem::take);
        }
        match node {
            Some(Value::String(text)) => self.text = text,
            number => self.number = number,
        }
    }

    /// Attaches the open path to the tree.
    fn attach_open_path(&mut self) -> Result<(), NotJson> {
        let mut in_range = Ok(());
        let mut node = match self.mode {
            Mode::Text(StringRole::Value, _) => Some(Value::String(mem::take(&mut self.text))),
            Mode::Number(_) => {
                if self.text.len() < MAX_SHOWN_DIGITS {
                    in_range = self.show_number();
                }
                self.number.take()
            }
            Mode::Text(StringRole::Key, _)
            | Mode::BetweenTokens(_)
            | Mode::Literal(..)
            | Mode::Broken => None,
        };
        for frame in self.open.iter_mut().rev() {
            if let Some(child) = node {
                frame.show(child);
            }
            node = Some(mem::take(&mut frame.container));
        }
        if node.is_some() {
            self.root = node;
        }
        in_range
    }

    fn read(&mut self, c: char) -> Result<(), NotJson> {
        match self.mode {
            Mode::BetweenTokens(next) => self.read_gap(next, c),
            Mode::Text(role, escape) => self.read_text(role, escape, c),
            Mode::Number(part) => self.read_number(part, c),
            Mode::Literal(lacking, value) => {
                match lacking.strip_prefix(c).ok_or(NotJson)? {
                    "" => self.finish(Value::from(value)),
                    lacking => self.mode = Mode::Literal(lacking, value),
                }
                Ok(())
            }
            Mode::Broken => Err(NotJson),
        }
    }

    fn read_gap(&mut self, next: Expected, c: char) -> Result<(), NotJson> {
        let container = self.open.last().map(|frame| &frame.container);
        match (next, c, container) {
            (_, ' ' | '\t' | '\n' | '\r', _) => {}
            (Expected::FirstItem | Expected::After, ']', Some(Value::Array(_)))
            | (Expected::FirstKey | Expected::After, '}', Some(Value::Object(_))) => self.close(),
            (Expected::After, ',', Some(Value::Array(_))) | (Expected::Colon, ':', _) => {
                self.mode = Mode::BetweenTokens(Expected::Value);
            }
            (Expected::After, ',', Some(Value::Object(_))) => {
                self.mode = Mode::BetweenTokens(Expected::Key);
            }
            (Expected::Key | Expected::FirstKey, '"', _) => self.begin_text(StringRole::Key),
            (Expected::Value | Expected::FirstItem, ..) => self.begin_value(c)?,
            (Expected::Key | Expected::FirstKey | Expected::Colon | Expected::After, ..) => {
                return Err(NotJson);
            }
        }
        Ok(())
    }

    fn begin_value(&mut self, c: char) -> Result<(), NotJson> {
        match c {
            '[' => self.begin_container(Value::Array(Vec::new()), Expected::FirstItem)?,
            '{' => self.begin_container(Value::Object(Map::new()), Expected::FirstKey)?,
            '"' => self.begin_text(StringRole::Value),
            '-' => self.begin_number(c, NumberPart::Minus),
            '0' => self.begin_number(c, NumberPart::Zero),
            '1'..='9' => self.begin_number(c, NumberPart::Integer),
            't' => self.mode = Mode::Literal("rue", Some(true)),
            'f' => self.mode = Mode::Literal("alse", Some(false)),
            'n' => self.mode = Mode::Literal("ull", None),
            _ => return Err(NotJson),
        }
        Ok(())
    }

    fn begin_container(&mut self, container: Value, next: Expected) -> Result<(), NotJson> {
        if self.open.len() == MAX_DEPTH {
            return Err(NotJson);
        }
        self.open.push(OpenContainer::new(container));
        self.mode = Mode::BetweenTokens(next);
        Ok(())
    }

    fn begin_text(&mut self, role: StringRole) {
        self.text.clear();
        self.mode = Mode::Text(role, Escape::Outside);
    }

    fn begin_number(&mut self, c: char, part: NumberPart) {
        self.number = None;
        self.text.clear();
        self.text.push(c);
        self.mode = Mode::Number(part);
    }

    fn read_text(&mut self, role: StringRole, escape: Escape, c: char) -> Result<(), NotJson> {
        let escape = match (escape, c) {
            (Escape::Outside, '"') => {
                self.end_text(role);
                return Ok(());
            }
            (Escape::Outside, '\\') => Escape::Backslash,
            (Escape::Outside, '\0'..='\x1f') => return Err(NotJson),
            (Escape::Outside, _) | (Escape::Backslash, '"' | '\\' | '/') => self.write(c),
            (Escape::Backslash, 'b') => self.write('\x08'),
            (Escape::Backslash, 'f') => self.write('\x0c'),
            (Escape::Backslash, 'n') => self.write('\n'),
            (Escape::Backslash, 'r') => self.write('\r'),
            (Escape::Backslash, 't') => self.write('\t'),
            (Escape::Backslash, 'u') => Escape::Hex(None, 0, 4),
            (Escape::Backslash, _) => return Err(NotJson),
            (Escape::Hex(high, code, lacking), _) => self.read_hex(high, code, lacking, c)?,
            (Escape::BetweenSurrogates(high, lacking), _) => {
                match lacking.strip_prefix(c).ok_or(NotJson)? {
                    "" => Escape::Hex(Some(high), 0, 4),
                    lacking => Escape::BetweenSurrogates(high, lacking),
                }
            }
        };
        self.mode = Mode::Text(role, escape);
        Ok(())
    }

    fn read_hex(
        &mut self,
        high: Option<u16>,
        code: u16,
        lacking: u8,
        c: char,
    ) -> Result<Escape, NotJson> {
        let digit = c.to_digit(16).and_then(|digit| u16::try_from(digit).ok());
        let code = code << 4 | digit.ok_or(NotJson)?;
        let lacking = lacking - 1; // never below 0: the fourth digit ends the escape

        // The range that the code can still reach. A low surrogate must follow a high one, and only there.
        let first = code << (4 * lacking);
        let last = first | ((1 << (4 * lacking)) - 1);
        let possible = match high {
            Some(_) => first <= 0xDFFF && last >= 0xDC00,
            None => first < 0xDC00 || last > 0xDFFF,
        };
        if !possible {
            return Err(NotJson);
        }
        if lacking > 0 {
            return Ok(Escape::Hex(high, code, lacking));
        }
        match char::decode_utf16(high.into_iter().chain([code])).next() {
            Some(Ok(c)) => Ok(self.write(c)),
            // Half of a pair is not a character; only a high half can get here alone.
            Some(Err(_)) | None => Ok(Escape::BetweenSurrogates(code, "\\u")),
        }
    }

    /// Adds a character to the string, and ends its escape, if any.
    fn write(&mut self, c: char) -> Escape {
        self.text.push(c);
        Escape::Outside
    }

    fn end_text(&mut self, role: StringRole) {
        let text = mem::take(&mut self.text);
        match role {
            StringRole::Value => self.finish(Value::String(text)),
            StringRole::Key => {
                // There is a frame: only an object has keys.
                if let Some(frame) = self.open.last_mut() {
                    frame.key = text;
                }
                self.mode = Mode::BetweenTokens(Expected::Colon);
            }
        }
    }

    fn read_number(&mut self, part: NumberPart, c: char) -> Result<(), NotJson> {
        if let Some(part) = part.advance(c) {
            self.text.push(c);
            self.mode = Mode::Number(part);
            if self.text.len() == MAX_SHOWN_DIGITS {
                self.show_number()?;
            }
            return Ok(());
        }
        // This also refuses a number that ends too early, like `1.`.
        let number = parse_number(&self.text)?;
        self.finish(number);
        self.read_gap(Expected::After, c)
    }

    fn show_number(&mut self) -> Result<(), NotJson> {
        // A prefix is valid if and only if it ends in a digit.
        let valid = self.text.trim_end_matches(|c: char| !c.is_ascii_digit());
        if !valid.is_empty() {
            self.number = Some(parse_number(valid)?);
        }
        Ok(())
    }

    fn close(&mut self) {
        // There is a frame: only the bracket that matches it leads here.
        if let Some(frame) = self.open.pop() {
            self.finish(frame.container);
        }
    }

    fn finish(&mut self, value: Value) {
        match self.open.last_mut() {
            Some(frame) => frame.finish(value),
            None => self.root = Some(value),
        }
        self.mode = Mode::BetweenTokens(Expected::After);
    }
}

/// An open container, and where its open child is.
#[derive(Debug, Clone)]
struct OpenContainer {
    /// An array or object; `null` between pushes, when it is in the tree.
    container: Value,
    /// The key of the open child, until it is in the object.
    key: String,
    shown: ChildPlace,
}

/// Position of the open child in its container.
#[derive(Debug, Clone, Copy)]
enum ChildPlace {
    /// Not in the container yet.
    Nowhere,
    /// The last child. It is found without its key, which may be long.
    Last,
    /// At the position of an earlier member with the same key.
    ByKey,
}

impl OpenContainer {
    fn new(container: Value) -> Self {
        Self { container, key: String::new(), shown: ChildPlace::Nowhere }
    }

    /// The open child, if it is in the container.
    fn shown_child(&mut self) -> Option<&mut Value> {
        match (self.shown, &mut self.container) {
            (ChildPlace::Last, Value::Array(items)) => items.last_mut(),
            // The last is the newest, by serde_json's feature `preserve_order`.
            (ChildPlace::Last, Value::Object(members)) => members.values_mut().next_back(),
            (ChildPlace::ByKey, Value::Object(members)) => members.get_mut(&self.key),
            (ChildPlace::Nowhere | ChildPlace::Last | ChildPlace::ByKey, _) => None,
        }
    }

    /// Puts the open child into the container.
    fn show(&mut self, child: Value) {
        if let Some(place) = self.shown_child() {
            *place = child;
            return;
        }
        self.shown = ChildPlace::Last;
        match &mut self.container {
            Value::Array(items) => items.push(child),
            Value::Object(members) => {
                if let Some(earlier) = members.get_mut(&self.key) {
                    *earlier = child;
                    self.shown = ChildPlace::ByKey;
                } else {
                    members.insert(mem::take(&mut self.key), child);
                }
            }
            // No containers.
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Puts the finished child into the container.
    fn finish(&mut self, child: Value) {
        self.show(child);
        self.shown = ChildPlace::Nowhere;
    }
}

impl Default for Mode {
    fn default() -> Self {
        Self::BetweenTokens(Expected::Value)
    }
}

impl NumberPart {
    /// The part after the character `c`, or `None` if it does not belong to the number.
    fn advance(self, c: char) -> Option<Self> {
        match (self, c) {
            (Self::Minus, '0') => Some(Self::Zero),
            (Self::Minus | Self::Integer, '0'..='9') => Some(Self::Integer),
            (Self::Zero | Self::Integer, '.') => Some(Self::Point),
            (Self::Point | Self::Fraction, '0'..='9') => Some(Self::Fraction),
            (Self::Zero | Self::Integer | Self::Fraction, 'e' | 'E') => Some(Self::E),
            (Self::E, '+' | '-') => Some(Self::ExponentSign),
            (Self::E | Self::ExponentSign | Self::Exponent, '0'..='9') => Some(Self::Exponent),
            _ => None,
        }
    }
}

/// Parses with `serde_json`, so that value and range are exactly the same.
fn parse_number(text: &str) -> Result<Value, NotJson> {
    serde_json::from_str(text).map_err(|_| NotJson)
}

#[cfg(test)]
mod tests;
