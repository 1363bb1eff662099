//! Fields of a frame that may be missing, null, or of another type than they should be: then they
//! are not there, and the frame is read all the same.
//!
//! For `#[serde(deserialize_with = "…")]`, always together with `default`. Text borrows from the
//! frame where it can.

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// A string.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    from.deserialize_any(Any::<Text>::new())
}

/// A whole number.
pub(crate) fn int<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    from.deserialize_any(Any::<Int>::new())
}

/// True, or anything else.
pub(crate) fn flag<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    from.deserialize_any(Any::<Flag>::new())
}

/// An object of this shape. Boxed, for the readers around it hand their values on by copying them,
/// and that costs more.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Box<T>>, D::Error> {
    from.deserialize_any(Any::<Object<T>>::new())
}

/// The objects of a list.
pub(crate) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    from.deserialize_any(Any::<List<T>>::new())
}

/// Of a list of choices the one whose index is 0, or is not said. The others are passed over.
pub(crate) fn first<'de, D: Deserializer<'de>, T: Deserialize<'de> + Choice>(
    from: D,
) -> Result<Option<Box<T>>, D::Error> {
    from.deserialize_any(Any::<First<T>>::new())
}

/// One of several answers to the same question.
pub(crate) trait Choice {
    /// Its place among them, where that is said.
    fn index(&self) -> Option<i64>;
}

/// Whether the field is there at all, whatever it says.
pub(crate) fn present<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(from).map(|_| true)
}

/// What is made of a value; of a value that is not wanted: nothing.
pub(crate) trait Want<'de> {
    type Out: Default;

    fn text(_: Cow<'de, str>) -> Self::Out {
        Self::Out::default()
    }
    fn int(_: i64) -> Self::Out {
        Self::Out::default()
    }
    fn flag(_: bool) -> Self::Out {
        Self::Out::default()
    }
    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self::Out, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::Out::default())
    }
    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self::Out, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::Out::default())
    }
}

/// Takes a value of any type, and hands it to what is wanted.
pub(crate) struct Any<W>(PhantomData<W>);

impl<W> Any<W> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<'de, W: Want<'de>> DeserializeSeed<'de> for Any<W> {
    type Value = W::Out;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<W::Out, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, W: Want<'de>> Visitor<'de> for Any<W> {
    type Value = W::Out;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<W::Out, E> {
        Ok(W::text(Cow::Borrowed(text)))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<W::Out, E> {
        Ok(W::text(Cow::Owned(text.to_owned())))
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<W::Out, E> {
        Ok(W::int(number))
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<W::Out, E> {
        Ok(W::int(i64::try_from(number).unwrap_or(i64::MAX)))
    }
    fn visit_f64<E: Error>(self, number: f64) -> Result<W::Out, E> {
        #[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
        Ok(W::int(number as i64))
    }
    fn visit_bool<E: Error>(self, flag: bool) -> Result<W::Out, E> {
        Ok(W::flag(flag))
    }
    fn visit_unit<E: Error>(self) -> Result<W::Out, E> {
        Ok(W::Out::default())
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<W::Out, A::Error> {
        W::map(map)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<W::Out, A::Error> {
        W::seq(seq)
    }
}

/// See [`text`].
pub(crate) struct Text;

impl<'de> Want<'de> for Text {
    type Out = Option<Cow<'de, str>>;

    fn text(text: Cow<'de, str>) -> Self::Out {
        Some(text)
    }
}

struct Int;

impl Want<'_> for Int {
    type Out = Option<i64>;

    fn int(number: i64) -> Self::Out {
        Some(number)
    }
}

/// See [`flag`].
pub(crate) struct Flag;

impl Want<'_> for Flag {
    type Out = bool;

    fn flag(flag: bool) -> bool {
        flag
    }
}

/// See [`object`].
pub(crate) struct Object<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Want<'de> for Object<T> {
    type Out = Option<Box<T>>;

    fn map<A: MapAccess<'de>>(map: A) -> Result<Self::Out, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|object| Some(Box::new(object)))
    }
}

/// An item of a list, if it is an object.
struct Item<T>(Option<Box<T>>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        object(from).map(Self)
    }
}

struct List<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Want<'de> for List<T> {
    type Out = Vec<T>;

    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(Item(item)) = seq.next_element()? {
            list.extend(item.map(|item| *item));
        }
        Ok(list)
    }
}

struct First<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Choice> Want<'de> for First<T> {
    type Out = Option<Box<T>>;

    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self::Out, A::Error> {
        let mut first = None;
        while let Some(Item(item)) = seq.next_element::<Item<T>>()? {
            let item = item.filter(|item| item.index().unwrap_or(0) == 0);
            first = first.or(item);
        }
        Ok(first)
    }
}
