//! What objects and events look like, as data: from it the types of the TypeScript client are written.
//!
//! The macros that declare them fill it in, so that it cannot say anything else than the code does.

/// An object, or a kind of event.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The Rust type.
    pub name: &'static str,
    /// Its `type` in the JSON; empty where it has none.
    pub word: &'static str,
    /// Its documentation, as the attributes `doc = "…"` one behind the other.
    pub doc: &'static str,
    /// In their order.
    pub fields: &'static [Field],
}

/// A field.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name; a Rust one may have `r#` in front.
    pub name: &'static str,
    /// Its Rust type.
    pub kind: &'static str,
    /// Whether it has to be there: the words that the macros `object!` and `events!` explain.
    pub need: &'static str,
    /// Its documentation.
    pub doc: &'static str,
}
