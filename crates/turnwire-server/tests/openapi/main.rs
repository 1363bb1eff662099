//! `/openapi.json` tells the truth, and `docs/api.md` says the same.
//!
//! `contract` compares a response with the document. The harnesses of the other tests compare every response, through
//! `checked_router` and `checked_http`.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod contract;
mod reference;

use contract::{Answer, Contract};
use serde_json::json;

fn sample() -> Contract {
    Contract::new(&json!({
        "paths": {"/v1/things/{id}": {"get": {"operationId": "getThing", "responses": {
            "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
            "204": {},
            "default": {"$ref": "#/components/responses/Error"},
        }}}},
        "components": {
            "schemas": {
                "Thing": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
                "Error": {"type": "object", "required": ["error"], "properties": {"error": {}}},
            },
            "responses": {"Error": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}},
        },
    }))
}

#[test]
fn a_response_that_differs_from_the_document_is_found() {
    let contract = sample();
    let json = Some("application/json");
    for (path, status, media_type, body, problem) in [
        ("/v1/things/a", 200, json, r#"{"name":"a"}"#, None),
        ("/v1/things/a", 200, Some("application/json; charset=utf-8"), r#"{"name":"a"}"#, None),
        ("/v1/things/a", 204, None, "", None),
        ("/v1/things/a", 404, json, r#"{"error":1}"#, None),
        ("/v1/other", 404, json, "{}", None),
        ("/v1/other", 200, json, "{}", Some("no such route")),
        ("/v1/things/a", 201, json, r#"{"name":"a"}"#, Some("no such status")),
        ("/v1/things/a", 204, None, "x", Some("has no body")),
        ("/v1/things/a", 200, None, "", Some("has a body")),
        ("/v1/things/a", 200, Some("text/html"), "x", Some("has the types")),
        ("/v1/things/a", 200, json, "{", Some("EOF")),
        ("/v1/things/a", 200, json, "{}", Some("required")),
        ("/v1/things/a", 200, json, r#"{"name":7}"#, Some("string")),
        ("/v1/things/a", 200, json, r#"{"name":"a","more":1}"#, Some("more")),
        ("/v1/things/a", 500, json, r#"{"name":"a"}"#, Some("error")),
    ] {
        let answer =
            Answer { method: "GET", path, status, media_type, body: Some(body.as_bytes()) };
        let found = contract.compare(&answer);
        match (found, problem) {
            (Ok(()), None) => {}
            (Err(why), Some(part)) => assert!(why.contains(part), "{why} has no {part}"),
            (found, _) => panic!("{path} {status} {body}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn the_document_fits_its_own_schema() {
    let body = contract::document().await.to_string();
    let answer = Answer {
        method: "GET",
        path: "/openapi.json",
        status: 200,
        media_type: Some("application/json"),
        body: Some(body.as_bytes()),
    };
    let contract = contract::contract().await;
    contract.check(&answer);
    assert!(contract.compare(&Answer { body: Some(b"7"), ..answer }).is_err());
}
