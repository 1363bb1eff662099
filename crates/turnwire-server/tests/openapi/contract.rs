//! Compares every response of the tests with what `/openapi.json` declares for its route: the status, the media type, and
//! a JSON body with its schema. The harnesses of the other tests use this, too.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use jsonschema::Validator;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::OnceCell;
use tower::ServiceExt;
use turnwire_log::{Log, MemoryStore};
use turnwire_server::App;
use turnwire_server::config::Config;

/// What `/openapi.json` declares.
pub struct Contract {
    operations: Vec<Operation>,
}

/// One method of one path.
struct Operation {
    method: String,
    path: Vec<String>,
    id: String,
    /// By status; `default` is for errors.
    responses: BTreeMap<String, Declared>,
}

/// The media types of a response, each with the schema of JSON. Without any there is no body.
type Declared = BTreeMap<String, Option<Validator>>;

/// A response to compare.
pub struct Answer<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub status: u16,
    pub media_type: Option<&'a str>,
    /// The body, if it was read.
    pub body: Option<&'a [u8]>,
}

/// The contract of this build.
pub async fn contract() -> &'static Contract {
    static CONTRACT: OnceCell<Contract> = OnceCell::const_new();
    CONTRACT.get_or_init(|| async { Contract::new(&document().await) }).await
}

/// `/openapi.json`.
pub async fn document() -> Value {
    let log = Arc::new(Log::new(Arc::new(MemoryStore::default()), "test"));
    let app = App::new(Config::default(), log, BTreeMap::new()).unwrap();
    let request = Request::get("/openapi.json").body(Body::empty()).unwrap();
    let response = turnwire_server::router(app).oneshot(request).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap()
}

impl Contract {
    pub fn new(document: &Value) -> Self {
        let mut components = document["components"].clone();
        let open = open_schemas(&components["schemas"]);
        for (name, schema) in components["schemas"].as_object_mut().unwrap() {
            if !open.contains(name) {
                close_objects(schema);
            }
        }
        let mut operations = Vec::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let responses = operation["responses"].as_object().unwrap();
                operations.push(Operation {
                    method: method.to_uppercase(),
                    path: path.split('/').map(str::to_owned).collect(),
                    id: operation["operationId"].as_str().unwrap().to_owned(),
                    responses: responses
                        .iter()
                        .map(|(status, response)| {
                            (status.clone(), declared(response, document, &components))
                        })
                        .collect(),
                });
            }
        }
        Self { operations }
    }

    #[track_caller]
    pub fn check(&self, answer: &Answer<'_>) {
        if let Err(why) = self.compare(answer) {
            let body = String::from_utf8_lossy(answer.body.unwrap_or_default());
            let Answer { method, path, status, media_type, .. } = answer;
            panic!(
                "{method} {path} answers {status} {}, which /openapi.json does not declare: {why}\n{body}",
                media_type.unwrap_or("without a body")
            );
        }
    }

    /// What is wrong with a response.
    pub fn compare(&self, answer: &Answer<'_>) -> Result<(), String> {
        if matches!(answer.method, "HEAD" | "OPTIONS") {
            return Ok(());
        }
        let Some(operation) = self.find(answer.method, answer.path) else {
            return match answer.status {
                400.. => Ok(()),
                _ => Err("no such route".to_owned()),
            };
        };
        let id = &operation.id;
        let declared = operation.responses.get(&answer.status.to_string());
        let declared = match answer.status {
            400.. => declared.or_else(|| operation.responses.get("default")),
            _ => declared,
        };
        let declared = declared.ok_or_else(|| format!("{id} has no such status"))?;
        let Some(media_type) = answer.media_type else {
            return match (declared.is_empty(), answer.body) {
                (true, None | Some([])) => Ok(()),
                (true, Some(_)) => Err(format!("{id} has no body")),
                (false, _) => Err(format!("{id} has a body")),
            };
        };
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        let schema = declared.get(essence).or_else(|| declared.get("*/*"));
        let schema = schema.ok_or_else(|| format!("{id} has the types {:?}", declared.keys()))?;
        let (Some(schema), Some(body)) = (schema, answer.body) else { return Ok(()) };
        let json: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let problems: Vec<String> = schema
            .iter_errors(&json)
            .map(|error| format!("{} at {:?}", error, error.instance_path().as_str()))
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(format!("{id}: {}", problems.join("; "))) }
    }

    fn find(&self, method: &str, path: &str) -> Option<&Operation> {
        let parts: Vec<&str> = path.split('/').collect();
        let fits = |operation: &&Operation| {
            operation.method == method
                && operation.path.len() == parts.len()
                && operation
                    .path
                    .iter()
                    .zip(&parts)
                    .all(|(pattern, part)| pattern.starts_with('{') || pattern == part)
        };
        self.operations.iter().find(fits)
    }
}

pub fn is_json(media_type: &str) -> bool {
    media_type.starts_with("application/json")
}

fn declared(response: &Value, document: &Value, components: &Value) -> Declared {
    let response = match response["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
        None => response,
    };
    let content = response["content"].as_object().cloned().unwrap_or_default();
    let media = |(media_type, content): (String, Value)| {
        let validator = is_json(&media_type).then(|| {
            let mut schema = content["schema"].clone();
            close_objects(&mut schema);
            schema["components"] = components.clone();
            jsonschema::draft202012::new(&schema).unwrap()
        });
        (media_type, validator)
    };
    content.into_iter().map(media).collect()
}

/// The schemas of messages and events, and those that they refer to: unknown fields in them are kept.
fn open_schemas(schemas: &Value) -> BTreeSet<String> {
    fn references(schema: &Value, found: &mut Vec<String>) {
        match schema {
            Value::Object(fields) => {
                let name = fields
                    .get("$ref")
                    .and_then(Value::as_str)
                    .and_then(|reference| reference.strip_prefix("#/components/schemas/"));
                found.extend(name.map(str::to_owned));
                fields.values().for_each(|part| references(part, found));
            }
            Value::Array(list) => list.iter().for_each(|part| references(part, found)),
            _ => {}
        }
    }
    let mut open = BTreeSet::new();
    let mut next = vec!["Msg".to_owned(), "Event".to_owned()];
    while let Some(name) = next.pop() {
        references(&schemas[&name], &mut next);
        next.retain(|name| !open.contains(name));
        open.insert(name);
    }
    open
}

/// Refuses fields that a schema does not name, so that an answer with a field that nobody declared is found. A schema that
/// is a combination of others names the fields of all of them.
fn close_objects(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let is_combined = fields.contains_key("allOf") || fields.contains_key("anyOf");
            if fields.contains_key("oneOf") || is_combined {
                for (_, part) in fields.iter_mut().filter(|(name, _)| *name == "properties") {
                    close_objects(part);
                }
            } else {
                close_object(fields);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(close_objects),
        _ => {}
    }
}

fn close_object(fields: &mut Map<String, Value>) {
    let has_fields = fields.get("properties").is_some_and(Value::is_object);
    let is_object = fields.get("type").is_some_and(|kind| *kind == json!("object"));
    fields.values_mut().for_each(close_objects);
    if has_fields && is_object && !fields.contains_key("additionalProperties") {
        fields.insert("additionalProperties".to_owned(), false.into());
    }
}
