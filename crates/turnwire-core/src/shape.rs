//! The declarations of objects and events as data. The TypeScript client's types are generated from it.
//!
//! The macros that declare them also fill this in, so that both cannot differ.

/// An object or a kind of event.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The Rust type.
    pub name: &'static str,
    /// Its `type` in JSON; empty if it has none.
    pub word: &'static str,
    /// Its documentation: the concatenated attributes `doc = "…"`.
    pub doc: &'static str,
    /// Its fields, in order.
    pub fields: &'static [Field],
}

/// A field.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its Rust name, which may have the prefix `r#`.
    pub name: &'static str,
    /// Its Rust type.
    pub kind: &'static str,
    /// Whether it is required: one of the words that the macros `object!` and `events!` explain.
    pub need: &'static str,
    /// Its documentation.
    pub doc: &'static str,
}

impl Shape {
    /// Its documentation as one line of text.
    pub fn doc_text(&self) -> String {
        doc_text(self.doc)
    }
}

impl Field {
    /// Its documentation as one line of text.
    pub fn doc_text(&self) -> String {
        doc_text(self.doc)
    }
}

/// The text of attributes such as `doc = r" Which block."`.
pub(crate) fn doc_text(attributes: &str) -> String {
    let parts = attributes.split("doc =").map(|part| {
        let part = part.trim();
        part.strip_prefix('r')
            .unwrap_or(part)
            .trim_matches('"')
            .replace("\\\"", "\"")
            .trim()
            .to_owned()
    });
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}
