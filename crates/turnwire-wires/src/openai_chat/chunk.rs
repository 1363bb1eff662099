//! The fields of a chunk, parsed once and borrowed from its text.

use crate::lenient::{
    Int, Lenient, List, Object, Raw, Text, TextOrList, deserialize_leniently, parse_object,
};
use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess};
use serde_json::value::RawValue;
use std::borrow::Cow;
use turnwire_core::event::TokenCounts;

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Chunk<'a> {
    pub id: Text<'a>,
    pub model: Text<'a>,
    pub created: Int,
    pub choices: Choices<'a>,
    pub usage: Raw<'a>,
    pub x_groq: Raw<'a>,
    pub error: Raw<'a>,
    /// vLLM and Mistral send errors as `{"object": "error", "message": …}`.
    pub object: Text<'a>,
    /// Others use `type`, or only a code and a message.
    pub r#type: Text<'a>,
    pub code: Raw<'a>,
    pub message: Text<'a>,
    pub citations: Raw<'a>,
    pub search_results: Raw<'a>,
}

impl Chunk<'_> {
    /// Whether the whole chunk is an error.
    pub(super) fn is_error(&self) -> bool {
        // Spark sends the code 0 and "Success" in every chunk.
        let code = self.code.map_or("", |code| code.get().trim_matches('"'));
        let is_coded = !matches!(code, "" | "0" | "200") && !self.message.is_empty();
        self.object.0 == "error" || self.choices.is_none() && (self.r#type.0 == "error" || is_coded)
    }
}

/// The choices with index 0; usually there is one.
#[derive(Default)]
pub(super) struct Choices<'a> {
    pub first: Option<Box<Choice<'a>>>,
    pub more: Vec<Choice<'a>>,
    /// Whether there were choices with another index.
    pub others: bool,
}

impl Choices<'_> {
    pub(super) fn is_none(&self) -> bool {
        self.first.is_none() && !self.others
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Choice<'a> {
    pub index: Int,
    pub delta: Object<Delta<'a>>,
    /// The whole message: of a response without streaming, or cumulative beside the delta.
    pub message: Raw<'a>,
    /// The text of the older completions API.
    pub text: Text<'a>,
    pub finish_reason: Text<'a>,
    pub native_finish_reason: Text<'a>,
    pub logprobs: Raw<'a>,
    /// Moonshot sends the usage here.
    pub usage: Raw<'a>,
    pub error: Raw<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Delta<'a> {
    pub content: Content<'a>,
    pub refusal: Text<'a>,
    pub reasoning_content: Text<'a>,
    pub reasoning: Text<'a>,
    pub reasoning_details: Raw<'a>,
    pub tool_calls: List<CallPiece<'a>>,
    pub function_call: Raw<'a>,
    pub annotations: Raw<'a>,
    /// Images that the model made, as OpenRouter sends them.
    pub images: Raw<'a>,
    pub audio: Raw<'a>,
}

/// Content: text, a list of parts, or nothing.
pub(super) type Content<'a> = TextOrList<'a, &'a RawValue>;

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct CallPiece<'a> {
    pub index: Int,
    pub id: Text<'a>,
    pub function: Object<Function<'a>>,
    /// A call to a tool whose input is plain text.
    pub custom: Object<CustomTool<'a>>,
    /// Gemini's compatible mode puts the thought signature here.
    pub extra_content: Raw<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Function<'a> {
    pub name: Text<'a>,
    pub arguments: Raw<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct CustomTool<'a> {
    pub name: Text<'a>,
    pub input: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Audio<'a> {
    pub id: Text<'a>,
    pub data: Text<'a>,
    pub transcript: Text<'a>,
    pub expires_at: Int,
}

/// A part of a content that is a list.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Part<'a> {
    pub r#type: Text<'a>,
    pub text: Text<'a>,
    pub refusal: Text<'a>,
    /// Mistral's thinking: text, or a list of text parts.
    pub thinking: Content<'a>,
    pub image_url: ImageUrl,
}

/// `{"url": …}`, or the URL itself.
#[derive(Default)]
pub(super) struct ImageUrl(pub String);

/// One of OpenRouter's `reasoning_details`.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Detail<'a> {
    pub r#type: Text<'a>,
    pub index: Int,
    pub text: Text<'a>,
    pub summary: Text<'a>,
}

/// Groq's own field.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Groq<'a> {
    pub usage: Raw<'a>,
    pub error: Raw<'a>,
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
    /// From gateways to Anthropic's models.
    cache_read_input_tokens: Int,
    cache_creation_input_tokens: Int,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PromptTokens {
    cached_tokens: Int,
    cache_write_tokens: Int,
}

/// The token counts; `None` if all are 0.
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

deserialize_leniently!(Choices<'a>, ImageUrl);

impl<'de: 'a, 'a> Lenient<'de> for Choices<'a> {
    fn from_list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut choices = Self::default();
        while let Some(object) = list.next_element::<Object<Choice<'a>>>()? {
            match object.0.filter(|choice| choice.index.0.unwrap_or(0) == 0) {
                None => choices.others = true,
                Some(choice) if choices.first.is_none() => choices.first = Some(choice),
                Some(choice) => choices.more.push(*choice),
            }
        }
        Ok(choices)
    }
}

impl<'de> Lenient<'de> for ImageUrl {
    fn from_text(text: Cow<'de, str>) -> Self {
        Self(text.into_owned())
    }
    fn from_map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default, bound(deserialize = "'de: 'a"))]
        struct Url<'a> {
            url: Text<'a>,
        }
        let Object(url) = Object::<Url<'_>>::from_map(map)?;
        Ok(Self(url.map_or_else(String::new, |url| url.url.0.into_owned())))
    }
}
