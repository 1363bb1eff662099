//! The providers: their addresses, and the header of the key.

use super::key::{ApiKey, Secret};
use crate::model::ModelError;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use turnwire_core::ErrorType;
use turnwire_wires::Wire;
use url::{Host, Url};

/// A provider, in addition to its wire.
#[derive(Debug)]
pub(super) struct Provider {
    pub wire: &'static str,
    /// The provider's own address.
    base: &'static str,
    /// The version in its paths.
    version: &'static str,
    /// Whether a base URL with a path already includes the version.
    base_path: BasePath,
    /// The path of a request; `{model}` is replaced.
    path: &'static str,
    query: Option<(&'static str, &'static str)>,
    /// The environment variable of the key.
    pub variable: Option<&'static str>,
    key_header: KeyHeader,
    headers: &'static [(&'static str, &'static str)],
    /// Whether compatible servers can enforce a schema too.
    schema_support: SchemaSupport,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BasePath {
    /// A base URL with a path is complete, as in `OpenAI`'s packages.
    Complete,
    /// The version is added unless it is there, as in Anthropic's and Google's packages.
    AddVersion,
}

#[derive(Debug, Clone, Copy)]
enum KeyHeader {
    Bearer,
    Named(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SchemaSupport {
    Everywhere,
    /// Many compatible servers reject it.
    OfficialOnly,
}

const SSE: (&str, &str) = ("accept", "text/event-stream");

/// What most providers have in common.
const USUAL: Provider = Provider {
    wire: "",
    base: "",
    version: "/v1",
    base_path: BasePath::Complete,
    path: "",
    query: None,
    variable: None,
    key_header: KeyHeader::Bearer,
    headers: &[SSE],
    schema_support: SchemaSupport::OfficialOnly,
};

static PROVIDERS: [Provider; 6] = [
    Provider {
        wire: "openai-chat",
        base: "https://api.openai.com",
        path: "/chat/completions",
        variable: Some("OPENAI_API_KEY"),
        ..USUAL
    },
    Provider {
        wire: "openai-responses",
        base: "https://api.openai.com",
        path: "/responses",
        variable: Some("OPENAI_API_KEY"),
        ..USUAL
    },
    Provider {
        wire: "anthropic",
        base: "https://api.anthropic.com",
        base_path: BasePath::AddVersion,
        path: "/messages",
        variable: Some("ANTHROPIC_API_KEY"),
        key_header: KeyHeader::Named("x-api-key"),
        headers: &[SSE, ("anthropic-version", "2023-06-01")],
        ..USUAL
    },
    Provider {
        wire: "gemini",
        base: "https://generativelanguage.googleapis.com",
        version: "/v1beta",
        base_path: BasePath::AddVersion,
        path: "/{model}:streamGenerateContent",
        query: Some(("alt", "sse")),
        variable: Some("GEMINI_API_KEY"),
        key_header: KeyHeader::Named("x-goog-api-key"),
        schema_support: SchemaSupport::Everywhere,
        ..USUAL
    },
    Provider {
        wire: "dashscope",
        base: "https://dashscope.aliyuncs.com",
        version: "/api/v1",
        path: "/services/aigc/text-generation/generation",
        variable: Some("DASHSCOPE_API_KEY"),
        headers: &[SSE, ("x-dashscope-sse", "enable")],
        ..USUAL
    },
    Provider {
        wire: "ollama",
        base: "http://127.0.0.1:11434",
        version: "/api",
        base_path: BasePath::AddVersion,
        path: "/chat",
        headers: &[("accept", "application/x-ndjson")],
        schema_support: SchemaSupport::Everywhere,
        ..USUAL
    },
];

/// Aliases of wires.
const ALIASES: [(&str, &str); 1] = [("openai", "openai-chat")];

/// `DashScope`'s path for content that is not only text.
const MULTIMODAL: &str = "/services/aigc/multimodal-generation/generation";

/// Finds the provider, wire and model of `WIRE:MODEL`.
pub(super) fn find_provider(
    name: &str,
) -> Result<(&'static Provider, &'static Wire, &str), ModelError> {
    let known = || {
        let names = ALIASES.iter().map(|(alias, _)| *alias);
        let names: Vec<&str> = names.chain(PROVIDERS.iter().map(|one| one.wire)).collect();
        names.join(", ")
    };
    let (word, model) = name.split_once(':').unwrap_or((name, ""));
    let wire = ALIASES.iter().find(|(alias, _)| *alias == word).map_or(word, |(_, wire)| wire);
    let provider = PROVIDERS.iter().find(|provider| provider.wire == wire);
    match (provider, Wire::named(wire)) {
        (Some(provider), Some(wire)) if !model.is_empty() => Ok((provider, wire, model)),
        (Some(_), _) => {
            Err(setup_error(format!("\"{name}\" has no model name: write {word}:MODEL")))
        }
        (None, _) => Err(setup_error(format!(
            "\"{name}\" is not a model: write WIRE:MODEL, with WIRE one of {}",
            known()
        ))),
    }
}

pub(super) fn setup_error(message: impl Into<String>) -> ModelError {
    ModelError::new(ErrorType::Setup, message)
}

impl Provider {
    /// The URL of a request: below `base`, or at the provider's own address.
    pub fn address(&self, base: Option<&str>, model: &str) -> Result<Url, ModelError> {
        let text = base.unwrap_or(self.base);
        let bad = |why: &str| setup_error(format!("the base URL of {}:{model} {why}", self.wire));
        let mut url = Url::parse(text).map_err(|error| bad(&format!("cannot be read: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad("is neither http nor https"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("contains a user name or password; configure the key separately"));
        }
        url.set_fragment(None);
        let path = self.path.replace("{model}", &model_path(model));
        let given = url.path().trim_end_matches('/').to_owned();
        let whole = if given.ends_with(&path) {
            given
        } else if given.is_empty()
            || (self.base_path == BasePath::AddVersion && !self.has_version(&given))
        {
            format!("{given}{}{path}", self.version)
        } else {
            format!("{given}{path}")
        };
        url.set_path(&whole);
        if let Some((name, value)) = self.query {
            url.query_pairs_mut().append_pair(name, value);
        }
        Ok(url)
    }

    /// Whether a path ends with a version, such as `/v1` or `/v4`.
    fn has_version(&self, path: &str) -> bool {
        let last = path.rsplit('/').next().unwrap_or_default();
        let number = last.strip_prefix('v').unwrap_or_default();
        path.ends_with(self.version) || number.starts_with(|first: char| first.is_ascii_digit())
    }

    /// The URL for this body.
    pub fn request_url_for_body(&self, address: &Url, model: &str, body: &str) -> Url {
        let mut url = address.clone();
        if self.wire == "dashscope" && (is_multimodal(model) || has_content_lists(body)) {
            let path = url.path().replace(self.path, MULTIMODAL);
            url.set_path(&path);
        }
        url
    }

    /// The headers of a request, including the key.
    pub fn headers(&self, key: &Secret) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in self.headers {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        if !key.is_none() {
            let (name, value) = match self.key_header {
                KeyHeader::Bearer => (header::AUTHORIZATION, key.header("Bearer ")),
                KeyHeader::Named(name) => (HeaderName::from_static(name), key.header("")),
            };
            // A key that is not a valid header was rejected when it was read.
            headers.extend(value.map(|value| (name, value)));
        }
        headers
    }

    /// The default key. Other addresses never get it.
    pub fn default_key(&self, base: Option<&str>) -> ApiKey {
        match (base, self.variable) {
            (None, Some(variable)) => ApiKey::from_env(variable),
            (Some(_), _) | (None, None) => ApiKey::none(),
        }
    }

    /// Whether the server can enforce a JSON Schema.
    pub fn has_schema_mode(&self, base: Option<&str>) -> bool {
        base.is_none() || self.schema_support == SchemaSupport::Everywhere
    }
}

/// Whether no third party can read the request on its way to this address.
pub(super) fn is_confidential(address: &Url) -> bool {
    let is_here = match address.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    is_here || address.scheme() == "https"
}

/// A Gemini model as part of a path: without a slash it is below `models/`.
fn model_path(model: &str) -> String {
    let whole = if model.contains('/') { model.to_owned() } else { format!("models/{model}") };
    let mut url = Url::parse("http://x/").ok();
    if let Some(mut path) = url.as_mut().and_then(|url| url.path_segments_mut().ok()) {
        path.clear().extend(whole.split('/'));
    }
    let path = url.map(|url| url.path().to_owned()).unwrap_or_default();
    path.trim_start_matches('/').to_owned()
}

/// `DashScope` models that need the multimodal path.
fn is_multimodal(model: &str) -> bool {
    model.starts_with("qvq")
        || ["-vl", "-omni", "-audio", "-ocr"].iter().any(|it| model.contains(it))
}

/// Whether any content in a request to `DashScope` is a list.
fn has_content_lists(body: &str) -> bool {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        input: Input<'a>,
    }
    #[derive(Deserialize)]
    struct Input<'a> {
        #[serde(borrow)]
        messages: Vec<Message<'a>>,
    }
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        content: Option<&'a RawValue>,
    }
    let body: Option<Body<'_>> = serde_json::from_str(body).ok();
    let messages = body.map(|body| body.input.messages).unwrap_or_default();
    messages.iter().any(|message| message.content.is_some_and(|it| it.get().starts_with('[')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(name: &str, base: Option<&str>) -> String {
        let (provider, _, model) = find_provider(name).unwrap();
        provider.address(base, model).unwrap().to_string()
    }

    #[test]
    fn every_wire_that_can_ask_a_model_has_a_provider() {
        for wire in Wire::all().filter(|wire| wire.can_request_model() && wire.can_decode()) {
            assert!(find_provider(&format!("{}:m", wire.name)).is_ok(), "{}", wire.name);
        }
        assert_eq!(find_provider("openai:m").unwrap().1.name, "openai-chat");
    }

    #[test]
    fn providers_are_asked_at_their_own_addresses() {
        for (name, expected) in [
            ("openai:m", "https://api.openai.com/v1/chat/completions"),
            ("openai-responses:m", "https://api.openai.com/v1/responses"),
            ("anthropic:m", "https://api.anthropic.com/v1/messages"),
            (
                "gemini:m",
                "https://generativelanguage.googleapis.com/v1beta/models/m:streamGenerateContent?alt=sse",
            ),
            (
                "dashscope:m",
                "https://dashscope.aliyuncs.com/api/v1/services/aigc/text-generation/generation",
            ),
            ("ollama:llama3:8b", "http://127.0.0.1:11434/api/chat"),
        ] {
            assert_eq!(address(name, None), expected);
        }
    }

    #[test]
    fn any_way_to_write_a_base_url_is_understood() {
        for (name, base, expected) in [
            ("openai:m", "http://h:1", "http://h:1/v1/chat/completions"),
            ("openai:m", "http://h:1/v1/", "http://h:1/v1/chat/completions"),
            ("openai:m", "https://h/openai/v1", "https://h/openai/v1/chat/completions"),
            ("openai:m", "https://h/v1beta/openai", "https://h/v1beta/openai/chat/completions"),
            ("openai:m", "https://h/chat/completions", "https://h/chat/completions"),
            ("openai:m", "https://h/d?api-version=1", "https://h/d/chat/completions?api-version=1"),
            ("anthropic:m", "http://h", "http://h/v1/messages"),
            ("anthropic:m", "http://h/anthropic", "http://h/anthropic/v1/messages"),
            ("anthropic:m", "http://h/anthropic/v1", "http://h/anthropic/v1/messages"),
            ("ollama:m", "http://h/api", "http://h/api/chat"),
            ("ollama:m", "http://h/there/", "http://h/there/api/chat"),
            (
                "gemini:tunedModels/m",
                "http://h",
                "http://h/v1beta/tunedModels/m:streamGenerateContent?alt=sse",
            ),
            ("gemini:m?k/#", "http://h/v1", "http://h/v1/m%3Fk/%23:streamGenerateContent?alt=sse"),
        ] {
            assert_eq!(address(name, Some(base)), expected, "{name} at {base}");
        }
    }

    #[test]
    fn an_invalid_url_and_an_invalid_model_name_are_refused() {
        let (openai, ..) = find_provider("openai:m").unwrap();
        for base in ["ftp://h", "file:///etc", "h:1", "", "http://sk-1@h", "http://a:b@h"] {
            let error = openai.address(Some(base), "m").unwrap_err();
            assert_eq!(error.kind, ErrorType::Setup, "{base}");
            assert!(!error.message.contains("sk-1"), "{error}");
        }
        for name in ["", "m", "openai", "openai:", "ag-ui:m", ":m"] {
            assert!(find_provider(name).is_err(), "{name}");
        }
    }

    #[test]
    fn only_this_machine_and_https_are_private() {
        for (address, expected) in [
            ("https://h/", true),
            ("http://localhost:1/", true),
            ("http://127.0.0.2/", true),
            ("http://[::1]:1/", true),
            ("http://h/", false),
            ("http://10.0.0.1/", false),
            ("http://localhost.h/", false),
        ] {
            assert_eq!(is_confidential(&Url::parse(address).unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn multimodal_requests_go_to_another_path_of_dashscope() {
        let (dashscope, ..) = find_provider("dashscope:m").unwrap();
        let address = dashscope.address(None, "m").unwrap();
        let path = |model: &str, body: &str| {
            dashscope.request_url_for_body(&address, model, body).path().to_owned()
        };
        let text = r#"{"input":{"messages":[{"role":"user","content":"hi"}]}}"#;
        let lists = r#"{"input":{"messages":[{"role":"user","content":[{"text":"hi"}]}]}}"#;
        assert_eq!(path("m", text), address.path());
        assert!(path("m", lists).ends_with(MULTIMODAL));
        assert!(path("qwen-vl-max", text).ends_with(MULTIMODAL));
    }

    #[test]
    fn a_key_is_sent_in_the_providers_header_and_only_to_its_address() {
        let key = ApiKey::from_text("k1").read().unwrap();
        for (name, header, value) in [
            ("openai:m", "authorization", "Bearer k1"),
            ("openai-responses:m", "authorization", "Bearer k1"),
            ("anthropic:m", "x-api-key", "k1"),
            ("gemini:m", "x-goog-api-key", "k1"),
            ("dashscope:m", "authorization", "Bearer k1"),
            ("ollama:m", "authorization", "Bearer k1"),
        ] {
            let (provider, ..) = find_provider(name).unwrap();
            assert_eq!(provider.headers(&key).get(header).unwrap(), value);
            assert!(!provider.headers(&Secret::default()).contains_key(header));
            assert_eq!(provider.default_key(Some("http://h")).to_string(), "no key");
        }
        let (anthropic, ..) = find_provider("anthropic:m").unwrap();
        assert_eq!(anthropic.default_key(None).to_string(), "ANTHROPIC_API_KEY");
        assert_eq!(anthropic.headers(&key).get("anthropic-version").unwrap(), "2023-06-01");
    }
}
