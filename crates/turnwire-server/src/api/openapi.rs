//! `/openapi.json`: the API's description as `OpenAPI` 3.1, made from the table of routes and the schemas of its types.

use super::{Access, Content, ROUTES, Route};
use crate::auth::Action;
use crate::error::{AnthropicErrorBody, Dialect, ErrorBody, OpenAiErrorBody};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Two generators: a field with a default is optional in a request, and always there in a response.
struct Generators {
    requests: SchemaGenerator,
    responses: SchemaGenerator,
}

impl Generators {
    fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        Self {
            requests: settings().into_generator(),
            responses: settings().for_serialize().into_generator(),
        }
    }

    /// The schemas that others refer to, sorted by name.
    fn components(mut self) -> Map<String, Value> {
        let mut all = self.responses.take_definitions(true);
        all.extend(self.requests.take_definitions(true));
        all.sort_keys();
        all.values_mut().for_each(write_enum);
        all
    }
}

/// Writes a list of documented words as an `enum`, which every generator of clients reads, instead of one `const` each.
fn write_enum(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    let Some(Value::Array(words)) = fields.get("oneOf") else { return };
    let words: Vec<Value> = words.iter().filter_map(|word| word.get("const").cloned()).collect();
    if fields.get("oneOf").and_then(Value::as_array).is_some_and(|all| all.len() == words.len()) {
        fields.remove("oneOf");
        fields.insert("type".to_owned(), "string".into());
        fields.insert("enum".to_owned(), words.into());
    }
}

/// The document.
pub(crate) fn document() -> Value {
    let mut generators = Generators::new();
    let mut paths = Map::new();
    for route in ROUTES.iter() {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Value::Object(item) = item {
            let method = route.method.as_str().to_ascii_lowercase();
            item.insert(method, operation(route, &mut generators));
        }
    }
    let errors = error_responses(&mut generators.responses);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Turnwire",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "The message-and-event layer for AI agents",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "apiKey": { "type": "apiKey", "in": "header", "name": "x-api-key" },
                "ticket": {
                    "type": "apiKey",
                    "in": "query",
                    "name": "ticket",
                    "description": "From POST /v1/tickets: one use, 60 seconds. For EventSource and WebSocket.",
                },
            },
            "schemas": generators.components(),
            "responses": errors,
        },
    })
}

/// The name of a dialect's error response.
fn error_name(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Turnwire => "Error",
        Dialect::OpenAi => "OpenAiError",
        Dialect::Anthropic => "AnthropicError",
    }
}

/// The error response of each dialect.
fn error_responses(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let all = [
        (Dialect::Turnwire, generator.subschema_for::<ErrorBody<'_>>()),
        (Dialect::OpenAi, generator.subschema_for::<OpenAiErrorBody>()),
        (Dialect::Anthropic, generator.subschema_for::<AnthropicErrorBody>()),
    ];
    let response = |schema| {
        json!({
            "description": "What went wrong, and what to do next",
            "content": { "application/json": { "schema": schema } },
        })
    };
    all.into_iter()
        .map(|(dialect, schema)| (error_name(dialect).to_owned(), response(schema)))
        .collect()
}

fn operation(route: &Route, generators: &mut Generators) -> Value {
    let mut operation = Map::new();
    operation.insert("operationId".into(), route.id.into());
    operation.insert("summary".into(), route.summary.into());
    if let Some(scope) = scope(route.access) {
        operation.insert("description".into(), format!("Scope: {scope}.").into());
        let mut security = vec![json!({ "bearer": [] }), json!({ "apiKey": [] })];
        if route.access != Access::NoTicket {
            security.push(json!({ "ticket": [] }));
        }
        // A server without credentials accepts everybody.
        security.push(json!({}));
        operation.insert("security".into(), security.into());
    }
    let parameters = parameters(route, &mut generators.requests);
    if !parameters.is_empty() {
        operation.insert("parameters".into(), parameters.into());
    }
    if let Some(body) = &route.body {
        let mut value = Map::new();
        value.insert("required".into(), body.is_required.into());
        value.insert("content".into(), content(&body.content, &mut generators.requests));
        if !body.description.is_empty() {
            value.insert("description".into(), body.description.into());
        }
        operation.insert("requestBody".into(), value.into());
    }
    let mut responses = Map::new();
    for response in &route.responses {
        let mut value = Map::new();
        value.insert("description".into(), response.description.into());
        if !response.content.is_empty() {
            let content = content(&response.content, &mut generators.responses);
            value.insert("content".into(), content);
        }
        responses.insert(response.status.to_string(), value.into());
    }
    let error = format!("#/components/responses/{}", error_name(route.dialect));
    responses.insert("default".into(), json!({ "$ref": error }));
    operation.insert("responses".into(), responses.into());
    operation.into()
}

/// The scopes that a route needs, in words.
fn scope(access: Access) -> Option<String> {
    match access {
        Access::Public | Access::Socket => None,
        Access::NoTicket => Some("any, but no ticket".to_owned()),
        Access::Requires(action) => Some(action.required_scopes().names()),
        Access::Local(action) => {
            Some(format!("{}, or from this machine", action.required_scopes().names()))
        }
        Access::RequiresAtLeast(action, more) => {
            let (first, more) = (action.required_scopes().names(), describe_actions(more));
            Some(format!("{first}. Some requests need more: {more}"))
        }
        Access::RequiresOneOf(actions) => {
            Some(format!("one of these: {}", describe_actions(actions)))
        }
    }
}

fn describe_actions(actions: &[Action]) -> String {
    let each = actions
        .iter()
        .map(|action| format!("{} to {}", action.required_scopes().names(), action.description()));
    each.collect::<Vec<_>>().join("; ")
}

/// The parameters of a route: those in its path, its query, and its headers.
fn parameters(route: &Route, generator: &mut SchemaGenerator) -> Vec<Value> {
    let mut all: Vec<Value> = path_names(route.path)
        .map(|name| {
            json!({
                "name": name,
                "in": "path",
                "required": true,
                "description": path_description(route.path, name),
                "schema": { "type": "string" },
            })
        })
        .collect();
    let query = route.query.schema.map(|schema| schema(generator).to_value());
    let properties = query.as_ref().and_then(|query| query["properties"].as_object());
    let required = query.as_ref().and_then(|query| query["required"].as_array());
    for (name, schema) in properties.into_iter().flatten() {
        let is_required = required.is_some_and(|names| names.iter().any(|other| other == name));
        let mut schema = schema.clone();
        let fields = schema.as_object_mut();
        let description = fields.and_then(|fields| fields.remove("description"));
        all.push(json!({
            "name": name,
            "in": "query",
            "required": is_required,
            "description": description.unwrap_or_default(),
            "schema": schema,
        }));
    }
    all.extend(route.headers.iter().map(|header| {
        json!({
            "name": header.name,
            "in": "header",
            "required": false,
            "description": header.description,
            "schema": { "type": "string" },
        })
    }));
    all
}

/// The names in the braces of a path.
fn path_names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn path_description(path: &str, name: &str) -> &'static str {
    match name {
        "s" => "The session's id: 1 to 128 of A-Z a-z 0-9 . _ : -",
        "id" if path.starts_with("/v1/responses") => "The response's id",
        "id" if path.starts_with("/v1/conversations") => "The conversation's id",
        "id" => "The message's id",
        "item" => "The item's id",
        "hash" => "The SHA-256 of the bytes: 64 hexadecimal digits",
        "agent" => "The agent's name; GET /v1/agents lists them",
        "thread" => "The thread's id, which is the session's",
        "chat" => "The chat's id, which is the session's",
        "model" => "The agent's name",
        "name" => "The file's name",
        _ => "",
    }
}

fn content(content: &Content, generator: &mut SchemaGenerator) -> Value {
    let each = content.iter().map(|(media_type, schema)| {
        ((*media_type).to_owned(), json!({ "schema": schema(generator) }))
    });
    each.collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn operations(document: &Value) -> Vec<&Value> {
        let items = document["paths"].as_object().unwrap().values();
        items.flat_map(|item| item.as_object().unwrap().values()).collect()
    }

    #[test]
    fn every_operation_has_its_own_id_a_summary_and_a_response() {
        let ids: HashSet<&str> = ROUTES.iter().map(|route| route.id).collect();
        assert_eq!(ids.len(), ROUTES.len());
        for route in ROUTES.iter() {
            assert!(!route.responses.is_empty() && !route.summary.is_empty(), "{}", route.id);
            assert!(route.id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{}", route.id);
        }
        assert_eq!(operations(&document()).len(), ROUTES.len(), "one route per path and method");
    }

    #[test]
    fn every_parameter_has_a_description_and_its_own_name() {
        let document = document();
        for operation in operations(&document) {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let mut names = HashSet::new();
            for parameter in &parameters {
                let name = (parameter["name"].to_string(), parameter["in"].to_string());
                let description = parameter["description"].as_str().unwrap_or_default();
                assert!(!description.is_empty(), "{} {name:?}", operation["operationId"]);
                assert!(names.insert(name), "{}", operation["operationId"]);
            }
        }
    }

    #[test]
    fn every_body_has_a_schema() {
        let document = document();
        for operation in operations(&document) {
            let bodies = [&operation["requestBody"]["content"]];
            let responses = operation["responses"].as_object().unwrap().values();
            let content = responses.map(|response| &response["content"]).chain(bodies);
            for (media_type, body) in content.filter_map(Value::as_object).flatten() {
                let schema = body["schema"].as_object();
                let is_described = schema.is_some_and(|schema| !schema.is_empty());
                assert!(is_described, "{} {media_type}", operation["operationId"]);
            }
        }
    }

    #[test]
    fn a_type_of_requests_and_responses_has_one_schema() {
        let mut generators = Generators::new();
        for route in ROUTES.iter() {
            operation(route, &mut generators);
        }
        for (name, schema) in generators.requests.definitions() {
            if let Some(other) = generators.responses.definitions().get(name) {
                assert_eq!(schema, other, "{name}");
            }
        }
    }

    #[test]
    fn a_list_of_words_is_an_enum() {
        let document = document();
        let status = &document["components"]["schemas"]["SessionStatus"];
        assert_eq!(status["enum"], json!(["idle", "running", "waiting"]), "{status}");
    }

    #[test]
    fn a_query_parameter_that_was_forgotten_before_is_listed() {
        let document = document();
        let parameters = &document["paths"]["/v1/sessions/{s}/events"]["get"]["parameters"];
        let names: Vec<&str> = parameters
            .as_array()
            .unwrap()
            .iter()
            .map(|parameter| parameter["name"].as_str().unwrap())
            .collect();
        assert!(names.contains(&"display_mode"), "{names:?}");
    }
}
