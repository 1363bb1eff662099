//! Readers that live with what look-alikes send: null, missing and wrongly typed all mean the same.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::marker::PhantomData;

/// A text that is borrowed where it can be; anything else is the empty text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word<'a>(pub Cow<'a, str>);

/// A whole number; anything else is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Int(pub Option<i64>);

/// An object; anything else is none. Boxed, for the readers around it hand their values on by copying
/// them, and that costs more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object<T>(pub Option<Box<T>>);

/// The objects of a list; anything else is passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List<T>(pub Vec<T>);

impl Word<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for Object<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// The methods for what a reader does not look for: it is passed over, and is the default.
macro_rules! otherwise {
    ($life:lifetime: $($kind:ident)+) => {
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("any JSON")
        }
        $(otherwise!(@ $life $kind);)+
    };
    (@ $life:lifetime plain) => {
        fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ $life:lifetime number) => {
        fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ $life:lifetime text) => {
        fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ $life:lifetime list) => {
        fn visit_seq<A: serde::de::SeqAccess<$life>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            while list.next_element::<serde::de::IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
    (@ $life:lifetime map) => {
        fn visit_map<A: serde::de::MapAccess<$life>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
}
pub(super) use otherwise;

impl<'de: 'a, 'a> Deserialize<'de> for Word<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seen;
        impl<'de> Visitor<'de> for Seen {
            type Value = Word<'de>;
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Word<'de>, E> {
                Ok(Word(text.into()))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Word<'de>, E> {
                Ok(Word(text.to_owned().into()))
            }
            otherwise!('de: plain number list map);
        }
        deserializer.deserialize_any(Seen)
    }
}

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seen;
        impl<'de> Visitor<'de> for Seen {
            type Value = Int;
            fn visit_i64<E: Error>(self, number: i64) -> Result<Int, E> {
                Ok(Int(Some(number)))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Int, E> {
                Ok(Int(i64::try_from(number).ok()))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Int, E> {
                #[expect(clippy::cast_possible_truncation, reason = "`as` stays within the range")]
                Ok(Int(number.is_finite().then_some(number as i64)))
            }
            otherwise!('de: plain text list map);
        }
        deserializer.deserialize_any(Seen)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seen<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Seen<T> {
            type Value = Object<T>;
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                let whole = serde::de::value::MapAccessDeserializer::new(map);
                T::deserialize(whole).map(|value| Object(Some(Box::new(value))))
            }
            otherwise!('de: plain number text list);
        }
        deserializer.deserialize_any(Seen(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seen<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Seen<T> {
            type Value = List<T>;
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<List<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(object) = list.next_element::<Object<T>>()? {
                    all.extend(object.0.map(|value| *value));
                }
                Ok(List(all))
            }
            otherwise!('de: plain number text map);
        }
        deserializer.deserialize_any(Seen(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(default)]
    struct All<'a> {
        #[serde(borrow)]
        word: Word<'a>,
        int: Int,
        list: List<Inner>,
        object: Object<Inner>,
    }

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(default)]
    struct Inner {
        n: Int,
    }

    #[test]
    fn what_is_of_another_type_counts_as_missing() {
        let others = ["null", "true", "-1.5e300", "\"x\"", "[1,[2]]", "{\"a\":{}}"];
        for (field, its_own) in [("word", 3), ("int", 2), ("list", 4), ("object", 5)] {
            for other in others.iter().enumerate().filter(|(at, _)| *at != its_own) {
                let text = format!("{{\"{field}\":{}}}", other.1);
                let read: All<'_> = serde_json::from_str(&text).unwrap();
                assert_eq!(read, All::default(), "{text}");
            }
        }
    }

    #[test]
    fn what_is_of_the_type_is_read_and_borrowed() {
        let text = r#"{"word":"w","int":7,"list":[null,{"n":1}],"object":{"n":2.0}}"#;
        let read: All<'_> = serde_json::from_str(text).unwrap();
        assert!(matches!(read.word.0, Cow::Borrowed("w")));
        assert_eq!(read.int, Int(Some(7)));
        assert_eq!(read.list, List(vec![Inner { n: Int(Some(1)) }]));
        assert_eq!(read.object, Object(Some(Box::new(Inner { n: Int(Some(2)) }))));
    }
}
