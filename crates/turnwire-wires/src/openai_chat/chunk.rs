//! What a chunk says, read once and borrowed from its text.

use super::loose::{Int, List, Object, Word, otherwise};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use turnwire_core::event::TokenCounts;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub id: Word<'a>,
    #[serde(borrow)]
    pub model: Word<'a>,
    pub created: Int,
    #[serde(borrow)]
    pub choices: Choices<'a>,
    #[serde(borrow)]
    pub usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub x_groq: Option<&'a RawValue>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
    /// vLLM's and Mistral's errors are objects of their own, `{"object": "error", "message": …}`.
    #[serde(borrow)]
    pub object: Word<'a>,
    /// Others say it here, or have nothing but a code and a message.
    #[serde(borrow)]
    pub r#type: Word<'a>,
    #[serde(borrow)]
    pub code: Option<&'a RawValue>,
    #[serde(borrow)]
    pub message: Word<'a>,
    #[serde(borrow)]
    pub citations: Option<&'a RawValue>,
    #[serde(borrow)]
    pub search_results: Option<&'a RawValue>,
}

impl Chunk<'_> {
    /// Whether it is an error as a whole.
    pub(super) fn is_error(&self) -> bool {
        // Spark says 0 and "Success" in every chunk.
        let code = self.code.map_or("", |code| code.get().trim_matches('"'));
        let is_coded = !matches!(code, "" | "0" | "200") && !self.message.is_empty();
        self.object.0 == "error" || self.choices.is_none() && (self.r#type.0 == "error" || is_coded)
    }
}

/// The choices of index 0: there is one, mostly.
#[derive(Default)]
pub(super) struct Choices<'a> {
    pub first: Option<Box<Choice<'a>>>,
    pub more: Vec<Choice<'a>>,
    /// Whether there were others.
    pub others: bool,
}

impl Choices<'_> {
    pub(super) fn is_none(&self) -> bool {
        self.first.is_none() && !self.others
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    pub index: Int,
    #[serde(borrow)]
    pub delta: Object<Delta<'a>>,
    /// The whole message: of an answer that is no stream, or cumulative beside the delta.
    #[serde(borrow)]
    pub message: Option<&'a RawValue>,
    /// The older completions have nothing else.
    #[serde(borrow)]
    pub text: Word<'a>,
    #[serde(borrow)]
    pub finish_reason: Word<'a>,
    #[serde(borrow)]
    pub native_finish_reason: Word<'a>,
    /// Moonshot puts it here.
    #[serde(borrow)]
    pub usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub content: Content<'a>,
    #[serde(borrow)]
    pub refusal: Word<'a>,
    #[serde(borrow)]
    pub reasoning_content: Word<'a>,
    #[serde(borrow)]
    pub reasoning: Word<'a>,
    #[serde(borrow)]
    pub reasoning_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub tool_calls: List<CallPiece<'a>>,
    #[serde(borrow)]
    pub function_call: Option<&'a RawValue>,
    #[serde(borrow)]
    pub annotations: Option<&'a RawValue>,
    /// Pictures that the model made, as OpenRouter sends them.
    #[serde(borrow)]
    pub images: Option<&'a RawValue>,
    #[serde(borrow)]
    pub audio: Option<&'a RawValue>,
}

/// What is said: text, a list of parts, or nothing.
#[derive(Default)]
pub(super) enum Content<'a> {
    #[default]
    None,
    Text(Cow<'a, str>),
    Parts(Vec<&'a RawValue>),
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct CallPiece<'a> {
    pub index: Int,
    #[serde(borrow)]
    pub id: Word<'a>,
    #[serde(borrow)]
    pub function: Object<Function<'a>>,
    /// A call of a tool whose input is any text.
    #[serde(borrow)]
    pub custom: Object<CustomTool<'a>>,
    /// Where Gemini's compatible mode has the thought's signature.
    #[serde(borrow)]
    pub extra_content: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub name: Word<'a>,
    #[serde(borrow)]
    pub arguments: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct CustomTool<'a> {
    #[serde(borrow)]
    pub name: Word<'a>,
    #[serde(borrow)]
    pub input: Word<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Audio<'a> {
    #[serde(borrow)]
    pub id: Word<'a>,
    #[serde(borrow)]
    pub data: Word<'a>,
    #[serde(borrow)]
    pub transcript: Word<'a>,
}

/// A part of a content that is a list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Part<'a> {
    #[serde(borrow)]
    pub r#type: Word<'a>,
    #[serde(borrow)]
    pub text: Word<'a>,
    #[serde(borrow)]
    pub refusal: Word<'a>,
    /// Mistral's: a text, or a list of text parts.
    #[serde(borrow)]
    pub thinking: Content<'a>,
    pub image_url: ImageUrl,
}

/// `{"url": …}`, or the URL itself.
#[derive(Default)]
pub(super) struct ImageUrl(pub String);

/// One of OpenRouter's `reasoning_details`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Detail<'a> {
    #[serde(borrow)]
    pub r#type: Word<'a>,
    pub index: Int,
    #[serde(borrow)]
    pub text: Word<'a>,
    #[serde(borrow)]
    pub summary: Word<'a>,
}

/// Groq's own field.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Groq<'a> {
    #[serde(borrow)]
    pub usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    prompt_tokens: Int,
    completion_tokens: Int,
    input_tokens: Int,
    output_tokens: Int,
    prompt_tokens_details: Object<PromptTokens>,
    /// DeepSeek's.
    prompt_cache_hit_tokens: Int,
    /// Those of gateways in front of Anthropic's models.
    cache_read_input_tokens: Int,
    cache_creation_input_tokens: Int,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PromptTokens {
    cached_tokens: Int,
    cache_write_tokens: Int,
}

/// An object that is rarely there, or rarely looked at.
pub(super) fn parse_object<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str::<Object<T>>(raw?.get()).ok()?.0.map(|value| *value)
}

/// The tokens, or `None` where it says nothing.
pub(super) fn parse_usage(raw: &RawValue) -> Option<TokenCounts> {
    let usage: Usage = parse_object(Some(raw))?;
    let prompt = usage.prompt_tokens_details.0.unwrap_or_default();
    let first = |counts: &[Int]| counts.iter().find_map(|count| count.0).unwrap_or(0);
    let counts = TokenCounts {
        input_tokens: first(&[usage.prompt_tokens, usage.input_tokens]),
        output_tokens: first(&[usage.completion_tokens, usage.output_tokens]),
        cache_input_tokens: first(&[
            prompt.cached_tokens,
            usage.prompt_cache_hit_tokens,
            usage.cache_read_input_tokens,
        ]),
        cache_creation_input_tokens: first(&[
            prompt.cache_write_tokens,
            usage.cache_creation_input_tokens,
        ]),
    };
    (counts != TokenCounts::default()).then_some(counts)
}

impl<'de: 'a, 'a> Deserialize<'de> for Choices<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seen;
        impl<'de> Visitor<'de> for Seen {
            type Value = Choices<'de>;
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Choices<'de>, A::Error> {
                let mut choices = Choices::default();
                while let Some(object) = list.next_element::<Object<Choice<'de>>>()? {
                    match object.0.filter(|choice| choice.index.0.unwrap_or(0) == 0) {
                        None => choices.others = true,
                        Some(choice) if choices.first.is_none() => choices.first = Some(choice),
                        Some(choice) => choices.more.push(*choice),
                    }
                }
                Ok(choices)
            }
            otherwise!('de: plain number text map);
        }
        deserializer.deserialize_any(Seen)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seen;
        impl<'de> Visitor<'de> for Seen {
            type Value = Content<'de>;
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Content<'de>, E> {
                Ok(Content::Text(text.into()))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Content<'de>, E> {
                Ok(Content::Text(text.to_owned().into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content<'de>, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = list.next_element()? {
                    parts.push(part);
                }
                Ok(Content::Parts(parts))
            }
            otherwise!('de: plain number map);
        }
        deserializer.deserialize_any(Seen)
    }
}

impl<'de> Deserialize<'de> for ImageUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Held<'a> {
            #[serde(borrow)]
            url: Word<'a>,
        }
        struct Seen;
        impl<'de> Visitor<'de> for Seen {
            type Value = ImageUrl;
            fn visit_str<E: Error>(self, text: &str) -> Result<ImageUrl, E> {
                Ok(ImageUrl(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ImageUrl, A::Error> {
                let whole = serde::de::value::MapAccessDeserializer::new(map);
                Ok(ImageUrl(Held::deserialize(whole)?.url.0.into_owned()))
            }
            otherwise!('de: plain number list);
        }
        deserializer.deserialize_any(Seen)
    }
}
