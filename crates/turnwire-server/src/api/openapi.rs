//! The API's description: `OpenAPI` 3.1, from the table of routes.

use super::{Access, HttpMethod, Param, ParamLocation, ParamType, ROUTES, ResponseSpec, Route};
use crate::auth::Action;
use serde_json::{Map, Value, json};

/// The document.
pub(crate) fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Value::Object(item) = item {
            item.insert(method_name(route.method).to_owned(), operation(route));
        }
    }
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
                    "description": "One use, 60 seconds; from POST /v1/tickets. For browsers' EventSource and WebSocket.",
                },
            },
            "schemas": { "Error": error_schema() },
            "responses": {
                "Error": {
                    "description": "What went wrong, and what to do next",
                    "content": {
                        "application/json": { "schema": { "$ref": "#/components/schemas/Error" } },
                    },
                },
            },
        },
    })
}

fn method_name(method: HttpMethod) -> &'static str {
    match method {
        HttpMethod::Get => "get",
        HttpMethod::Post => "post",
        HttpMethod::Patch => "patch",
        HttpMethod::Delete => "delete",
    }
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["type", "message"],
                "properties": {
                    "type": { "type": "string", "description": "A word for programs" },
                    "message": { "type": "string", "description": "What happened, and why" },
                    "hint": { "type": "string", "description": "What to do next" },
                },
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = Map::new();
    operation.insert("operationId".into(), route.id.into());
    operation.insert("summary".into(), route.summary.into());
    let scope = match route.access {
        Access::Public | Access::Socket => None,
        Access::NoTicket => Some("any, but no ticket".to_owned()),
        Access::Requires(action) => Some(action.required_scopes().names()),
        Access::Local(action) => {
            Some(format!("{}, or from this machine", action.required_scopes().names()))
        }
        Access::RequiresAtLeast(action, more) => Some(format!(
            "{}. Some requests take more: {}",
            action.required_scopes().names(),
            describe_actions(more)
        )),
        Access::RequiresOneOf(actions) => {
            Some(format!("one of these: {}", describe_actions(actions)))
        }
    };
    if let Some(scope) = scope {
        operation.insert("description".into(), format!("Scope: {scope}.").into());
        let mut security = vec![json!({ "bearer": [] }), json!({ "apiKey": [] })];
        if route.access != Access::NoTicket {
            security.push(json!({ "ticket": [] }));
        }
        operation.insert("security".into(), security.into());
    }
    if !route.params.is_empty() {
        operation.insert("parameters".into(), route.params.iter().map(parameter).collect());
    }
    if let Some(body) = &route.body {
        let body = json!({
            "required": true,
            "description": body.about,
            "content": content_types(body.types),
        });
        operation.insert("requestBody".into(), body);
    }
    let mut responses: Map<String, Value> = route.responses.iter().map(response).collect();
    responses.insert("default".into(), json!({ "$ref": "#/components/responses/Error" }));
    operation.insert("responses".into(), responses.into());
    operation.into()
}

/// What each action takes.
fn describe_actions(actions: &[Action]) -> String {
    let each = actions
        .iter()
        .map(|action| format!("{} to {}", action.required_scopes().names(), action.description()));
    each.collect::<Vec<_>>().join("; ")
}

fn parameter(param: &Param) -> Value {
    let place = match param.location {
        ParamLocation::Path => "path",
        ParamLocation::Query => "query",
        ParamLocation::Header => "header",
    };
    let kind = match param.kind {
        ParamType::Text => "string",
        ParamType::Integer => "integer",
        ParamType::Flag => "boolean",
    };
    json!({
        "name": param.name,
        "in": place,
        "required": param.location == ParamLocation::Path,
        "description": param.about,
        "schema": { "type": kind },
    })
}

fn response(answer: &ResponseSpec) -> (String, Value) {
    let mut value = json!({ "description": answer.about });
    if let (Value::Object(value), false) = (&mut value, answer.types.is_empty()) {
        value.insert("content".into(), content_types(answer.types));
    }
    (answer.status.to_string(), value)
}

fn content_types(types: &[&str]) -> Value {
    types.iter().map(|kind| ((*kind).to_owned(), json!({}))).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_operation_has_its_own_id_and_an_answer() {
        let ids: HashSet<&str> = ROUTES.iter().map(|route| route.id).collect();
        assert_eq!(ids.len(), ROUTES.len());
        for route in ROUTES {
            assert!(!route.responses.is_empty() && !route.summary.is_empty(), "{}", route.id);
            assert!(route.id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{}", route.id);
        }
    }

    #[test]
    fn every_parameter_of_a_path_is_declared_and_no_other() {
        for route in ROUTES {
            let in_path: Vec<&str> = route
                .path
                .split('/')
                .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
                .collect();
            let declared: Vec<&str> = route
                .params
                .iter()
                .filter(|param| param.location == ParamLocation::Path)
                .map(|param| param.name)
                .collect();
            assert_eq!(in_path, declared, "{}", route.path);
            let names: HashSet<&str> = route.params.iter().map(|param| param.name).collect();
            assert_eq!(names.len(), route.params.len(), "{}", route.path);
        }
    }

    #[test]
    fn the_document_has_what_openapi_requires() {
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        assert!(document["info"]["title"].is_string() && document["info"]["version"].is_string());
        let operations = document["paths"]
            .as_object()
            .unwrap()
            .values()
            .flat_map(|item| item.as_object().unwrap().values());
        let mut count = 0;
        for operation in operations {
            count += 1;
            for (status, response) in operation["responses"].as_object().unwrap() {
                assert!(status == "default" || status.len() == 3);
                assert!(response["description"].is_string() || response["$ref"].is_string());
            }
        }
        assert_eq!(count, ROUTES.len(), "no two lines are the same method of one path");
    }
}
