//! The macro [`object!`](object): structs that are JSON objects and keep unknown fields. Blocks and other parts
//! of messages are declared with it.
//!
//! `serde`'s derive cannot keep unknown fields as text, so this does the same job by way of [`Fields`].

use crate::error::{Error, ErrorKind, Result};
use crate::json::{Fields, Json};

/// A type that is read from a JSON object.
pub(crate) trait FromFields: Sized {
    fn from_fields(fields: Fields) -> Result<Self>;
}

/// Reads a list; an error contains the index of the item.
pub(crate) fn read_list<T: FromFields>(json: &Json) -> Result<Vec<T>> {
    let items: Vec<Fields> = json.parse_as()?;
    items
        .into_iter()
        .enumerate()
        .map(|(at, fields)| T::from_fields(fields).map_err(|error| error.at(format!("[{at}]"))))
        .collect()
}

/// Takes a list from an object; missing or null is an empty list.
pub(crate) fn take_list<T: FromFields>(fields: &mut Fields, key: &str) -> Result<Vec<T>> {
    match fields.remove(key) {
        Some(json) if !json.is_null() => read_list(&json).map_err(|error| error.at(key)),
        _ => Ok(Vec::new()),
    }
}

/// Takes the `type` of an object whose type is fixed here: it may be missing, but not be another one.
pub(crate) fn take_type(fields: &mut Fields, expected: &str) -> Result<()> {
    match fields.take::<String>("type")? {
        Some(word) if word != expected => Err(Error::new(
            ErrorKind::WrongShape,
            format!("expected a {expected} block, found `{word}`"),
        )),
        _ => Ok(()),
    }
}

/// Implements `Deserialize` for types with [`FromFields`].
macro_rules! deserialize_from_fields {
    ($($name:ident)+) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let fields = <$crate::json::Fields as serde::Deserialize>::deserialize(from)?;
                <Self as $crate::object::FromFields>::from_fields(fields)
                    .map_err(|error| serde::de::Error::custom(error.plain()))
            }
        }
    )+};
}
pub(crate) use deserialize_from_fields;

/// Declares structs that are JSON objects. The order of the fields is their order in the JSON; unknown
/// fields come after them. A field is
///
/// - `needed`: an object without it is refused;
/// - `default`: it may be missing or null, and is always written;
/// - `nullable`: an `Option` that is always written: `None` as null;
/// - `optional`: an `Option` that is written only if it is `Some`;
/// - `known`: it may be missing; empty means not known, and is not written;
/// - `list`: a list of such objects; missing or null is an empty list.
macro_rules! object {
    ($(
        $(#[$doc:meta])*
        $name:ident $(is $block_type:ident)? {
            $($(#[$field_doc:meta])* $field:ident: $type:ty, $need:ident;)*
        }
    )+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
            /// Unknown fields.
            pub rest: $crate::json::Fields,
        }

        impl $crate::object::FromFields for $name {
            fn from_fields(mut fields: $crate::json::Fields) -> $crate::error::Result<Self> {
                $($crate::object::take_type(&mut fields, $crate::block::BlockType::$block_type.as_str())?;)?
                Ok(Self {
                    $($field: $crate::object::object!(@read $need fields $field),)*
                    rest: fields,
                })
            }
        }

        $crate::object::deserialize_from_fields!($name);

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let fields: &[$crate::schema::FieldSchema] =
                    &[$(|generator| generator.subschema_for::<$type>(),)*];
                $crate::schema::object(generator, &Self::SHAPE, fields)
            }
        }

        impl $name {
            #[doc(hidden)]
            pub const SHAPE: $crate::shape::Shape = $crate::shape::Shape {
                name: stringify!($name),
                word: $crate::object::object!(@word $($block_type)?),
                doc: concat!($(stringify!($doc),)* ""),
                fields: &[$($crate::shape::Field {
                    name: stringify!($field),
                    kind: stringify!($type),
                    need: stringify!($need),
                    doc: concat!($(stringify!($field_doc),)* ""),
                },)*],
            };

            /// Writes the fields into an object that may have more fields.
            pub(crate) fn write<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                $($crate::object::object!(@write $need map self $field);)*
                $crate::json::entries_of(map, &self.rest)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let mut map = serializer.serialize_map(None)?;
                $(map.serialize_entry("type", $crate::block::BlockType::$block_type.as_str())?;)?
                self.write(&mut map)?;
                map.end()
            }
        }
    )+};
    (@word) => { "" };
    (@word $block_type:ident) => { $crate::block::BlockType::$block_type.as_str() };
    (@read needed $fields:ident $field:ident) => {
        $fields.need($crate::object::key(stringify!($field)))?
    };
    (@read nullable $fields:ident $field:ident) => {
        $fields.take($crate::object::key(stringify!($field)))?
    };
    (@read optional $fields:ident $field:ident) => {
        $fields.take($crate::object::key(stringify!($field)))?
    };
    (@read list $fields:ident $field:ident) => {
        $crate::object::take_list(&mut $fields, stringify!($field))?
    };
    (@read $need:ident $fields:ident $field:ident) => {
        $fields.take($crate::object::key(stringify!($field)))?.unwrap_or_default()
    };
    (@write known $map:ident $self:ident $field:ident) => {
        $crate::json::entry_known($map, stringify!($field), &$self.$field)?
    };
    (@write optional $map:ident $self:ident $field:ident) => {
        $crate::json::entry_if($map, stringify!($field), $self.$field.as_ref())?
    };
    (@write $need:ident $map:ident $self:ident $field:ident) => {
        $map.serialize_entry($crate::object::key(stringify!($field)), &$self.$field)?
    };
}
pub(crate) use object;

/// A field's name in JSON: its Rust name without the prefix `r#`.
pub(crate) fn key(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}
