//! The frames of the stream, read once and leniently: a field of another type than expected is none.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// The types of frames that we know.
pub(super) const KNOWN_FRAMES: [&str; 9] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "message",
    "ping",
    "error",
];

/// One frame: what there is in the many that a block grows by. The few others are read again.
#[derive(Default, serde::Deserialize)]
pub(super) struct Frame<'a> {
    #[serde(borrow, default)]
    pub r#type: Word<'a>,
    #[serde(default)]
    pub index: Number,
    #[serde(borrow, default)]
    pub delta: Object<Delta<'a>>,
}

/// What a block grows by.
#[derive(Default, serde::Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(borrow, default)]
    pub r#type: Word<'a>,
    #[serde(borrow, default)]
    pub text: Word<'a>,
    #[serde(borrow, default)]
    pub thinking: Word<'a>,
    #[serde(borrow, default)]
    pub partial_json: Word<'a>,
}

/// The fields of the other frames.
#[derive(Default, serde::Deserialize)]
pub(super) struct OtherFields<'a> {
    #[serde(borrow, default)]
    pub content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub delta: Object<RareDelta<'a>>,
    #[serde(borrow, default)]
    pub usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub context_management: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub request_id: Word<'a>,
}

/// What a block grows by once, and what the message ends with.
#[derive(Default, serde::Deserialize)]
pub(super) struct RareDelta<'a> {
    #[serde(borrow, default)]
    pub signature: Word<'a>,
    #[serde(borrow, default)]
    pub citation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub stop_reason: Word<'a>,
    #[serde(borrow, default)]
    pub stop_sequence: Word<'a>,
    #[serde(borrow, default)]
    pub stop_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub container: Option<&'a RawValue>,
}

/// The message as its start has it.
#[derive(Default, serde::Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, default)]
    pub id: Word<'a>,
    #[serde(borrow, default)]
    pub model: Word<'a>,
    #[serde(borrow, default)]
    pub usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub stop_reason: Word<'a>,
    #[serde(borrow, default)]
    pub stop_sequence: Word<'a>,
    #[serde(borrow, default)]
    pub stop_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub container: Option<&'a RawValue>,
}

/// The tokens that were counted.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    #[serde(rename = "input_tokens")]
    pub input: Number,
    #[serde(rename = "output_tokens")]
    pub output: Number,
    #[serde(rename = "cache_read_input_tokens")]
    pub cache_read: Number,
    #[serde(rename = "cache_creation_input_tokens")]
    pub cache_creation: Number,
}

/// What went wrong.
#[derive(Default, serde::Deserialize)]
pub(super) struct ErrorFields<'a> {
    #[serde(borrow, default)]
    pub r#type: Word<'a>,
    #[serde(borrow, default)]
    pub message: Word<'a>,
}

/// A string; null, missing and anything else are the empty one.
#[derive(Debug, Default, Clone)]
pub(super) struct Word<'a>(pub Cow<'a, str>);

/// A whole number, where there is one.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Number(pub Option<i64>);

/// An object; anything else is an empty one.
#[derive(Default)]
pub(super) struct Object<T>(pub T);

/// Values of types that are not expected here.
macro_rules! others_are_none {
    ($($visit:ident: $type:ty),* ; $seq:ident $map:ident) => {
        $(fn $visit<E: serde::de::Error>(self, _: $type) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        })*
        others_are_none!(@$seq);
        others_are_none!(@$map);
        fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@seq) => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
    (@map) => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
    (@no) => {};
}

impl<'de: 'a, 'a> Deserialize<'de> for Word<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text<'a>(PhantomData<&'a str>);
        impl<'de: 'a, 'a> Visitor<'de> for Text<'a> {
            type Value = Word<'a>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Word(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Word(Cow::Owned(text.to_owned())))
            }
            others_are_none!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64; seq map);
        }
        deserializer.deserialize_any(Text(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole;
        impl<'de> Visitor<'de> for Whole {
            type Value = Number;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }
            fn visit_u64<E>(self, number: u64) -> Result<Number, E> {
                Ok(Number(i64::try_from(number).ok()))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Number, E> {
                Ok(Number(Some(number)))
            }
            others_are_none!(visit_bool: bool, visit_f64: f64, visit_str: &str; seq map);
        }
        deserializer.deserialize_any(Whole)
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for Fields<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(serde::de::value::MapAccessDeserializer::new(map)).map(Object)
            }
            others_are_none!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str; seq no);
        }
        deserializer.deserialize_any(Fields(PhantomData))
    }
}
