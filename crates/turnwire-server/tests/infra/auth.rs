//! Authentication and scopes.

use crate::harness::{log, start, start_with, token};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::crypto::rust_crypto;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use turnwire_server::App;
use turnwire_server::config::Config;

/// Routes that need a scope each.
const ROUTES: [(&str, &str, &str); 4] = [
    ("GET", "/v1/agents", "read"),
    ("POST", "/v1/sessions/s1/messages", "chat"),
    ("POST", "/v1/sessions/s1/replies", "publish"),
    ("GET", "/metrics", "admin"),
];

fn passed(status: u16) -> bool {
    !matches!(status, 401 | 403 | 421)
}

#[tokio::test]
async fn each_scope_opens_its_routes_and_admin_opens_all() {
    let scopes = ["read", "chat", "publish", "approve", "admin"];
    let tokens: String =
        scopes.iter().map(|scope| token(&format!("tw_{scope}"), "acme", scope)).collect();
    // Behind a proxy no client is local, so /metrics needs its scope, too.
    let server = start(&format!("behind_proxy = true\n{tokens}"));
    for held in scopes {
        for (method, path, needed) in ROUTES {
            let bearer = format!("Bearer tw_{held}");
            let key = format!("tw_{held}");
            for header in [("authorization", bearer.as_str()), ("x-api-key", key.as_str())] {
                let answer = server.send(method, path, &[header]).await;
                let expected = held == needed || held == "admin";
                assert_eq!(passed(answer.status), expected, "{held} {path}: {answer:?}");
                assert!(expected || answer.status == 403, "{held} {path}: {answer:?}");
            }
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn bad_credentials_are_401_and_say_how_it_is_done() {
    let server = start(&token("tw_good", "acme", "read"));
    for headers in [
        &[][..],
        &[("authorization", "Bearer tw_bad")],
        &[("authorization", "Basic dHdfZ29vZA==")],
        &[("authorization", "Bearer")],
        &[("authorization", "tw_good")],
        &[("x-api-key", "")],
        &[("x-api-key", "a.b.c")],
    ] {
        let answer = server.send("GET", "/v1/agents", headers).await;
        assert_eq!(answer.status, 401, "{headers:?}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert_eq!(answer.kind(), "unauthorized");
        assert!(answer.json()["error"]["hint"].is_string());
    }
    // A public route asks for no credentials.
    for path in ["/healthz", "/readyz", "/openapi.json", "/"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    // Prometheus on the same machine needs no token.
    assert_eq!(server.get("/metrics").await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn without_credentials_everybody_on_this_machine_may_do_everything() {
    let server = start("");
    for (method, path, _) in ROUTES {
        assert!(passed(server.send(method, path, &[]).await.status), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_ticket_opens_once() {
    let server = start(&token("tw_good", "acme", "read"));
    let bearer = ("authorization", "Bearer tw_good");
    assert_eq!(server.send("POST", "/v1/tickets", &[]).await.status, 401);
    let answer = server.send("POST", "/v1/tickets", &[bearer]).await;
    assert_eq!((answer.status, answer.header("cache-control")), (201, Some("no-store")));
    assert_eq!(answer.json()["expires_in"], 60);
    let ticket = answer.json()["ticket"].as_str().unwrap().to_owned();
    let path = format!("/v1/agents?limit=1&ticket={ticket}");
    assert!(passed(server.get(&path).await.status));
    let again = server.get(&path).await;
    assert_eq!(again.status, 401);
    assert!(again.body.contains("was used already"), "{}", again.body);
    assert_eq!(server.get("/v1/agents?ticket=never").await.status, 401);
    // It has the scopes of its creator.
    let answer = server.send("POST", "/v1/tickets", &[bearer]).await;
    let ticket = answer.json()["ticket"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/s1/fork?ticket={ticket}");
    assert_eq!(server.send("POST", &path, &[]).await.status, 403);
    server.stop().await;
}

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn now_exactly() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// A token with these texts as header and claims. The server checks signatures with another library.
fn signed_texts(header: &str, claims: &str, algorithm: Algorithm, key: &EncodingKey) -> String {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let message = format!("{}.{}", encode(header), encode(claims));
    let signer = (rust_crypto::DEFAULT_PROVIDER.signer_factory)(&algorithm, key).unwrap();
    let signature = URL_SAFE_NO_PAD.encode(signer.try_sign(message.as_bytes()).unwrap());
    format!("{message}.{signature}")
}

/// The same, signed with HS256.
fn with_texts(header: &str, claims: &str) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    signed_texts(header, claims, Algorithm::HS256, &key)
}

fn claims() -> Value {
    json!({
        "iss": "https://id.example", "aud": "turnwire", "exp": now() + 600, "sub": "ada",
        "tenant": "acme", "scope": "read other:thing",
    })
}

fn signed(claims: &Value, algorithm: Algorithm, secret: &str) -> String {
    signed_with_key(claims, algorithm, &EncodingKey::from_secret(secret.as_bytes()))
}

fn signed_with_key(claims: &Value, algorithm: Algorithm, key: &EncodingKey) -> String {
    let header = serde_json::to_string(&Header::new(algorithm)).unwrap();
    signed_texts(&header, &claims.to_string(), algorithm, key)
}

fn with(key: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[key] = value;
    claims
}

fn without(key: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(key);
    claims
}

#[tokio::test]
async fn a_jwt_is_good_only_as_it_was_agreed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, SECRET).unwrap();
    let settings = format!(
        "listen = \"127.0.0.1:0\"\n[auth.jwt]\nalgorithm = \"HS256\"\nsecret_file = '{}'\n         issuer = \"https://id.example\"\naudience = \"turnwire\"\n",
        file.display()
    );
    let server = start_with(Config::parse("test", &settings).unwrap());
    let status = async |token: &str| {
        let bearer = format!("Bearer {token}");
        server.send("GET", "/v1/agents", &[("authorization", &bearer)]).await.status
    };
    let good = signed(&claims(), Algorithm::HS256, SECRET);
    assert!(passed(status(&good).await));
    assert!(passed(status(&good).await), "remembered");
    let list = with("scope", json!(["read"]));
    assert!(passed(status(&signed(&list, Algorithm::HS256, SECRET)).await));

    let none = {
        let parts: Vec<&str> = good.split('.').collect();
        // {"alg":"none","typ":"JWT"}
        format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{}.", parts[1])
    };
    for (why, token) in [
        ("signed by somebody else", signed(&claims(), Algorithm::HS256, &SECRET.replace('0', "1"))),
        ("another algorithm", signed(&claims(), Algorithm::HS384, SECRET)),
        ("no signature", none),
        ("expired", signed(&with("exp", json!(now() - 600)), Algorithm::HS256, SECRET)),
        ("never expires", signed(&without("exp"), Algorithm::HS256, SECRET)),
        ("not yet", signed(&with("nbf", json!(now() + 600)), Algorithm::HS256, SECRET)),
        (
            "of another issuer",
            signed(&with("iss", json!("https://evil.example")), Algorithm::HS256, SECRET),
        ),
        ("without an issuer", signed(&without("iss"), Algorithm::HS256, SECRET)),
        ("for somebody else", signed(&with("aud", json!("other")), Algorithm::HS256, SECRET)),
        ("for nobody", signed(&without("aud"), Algorithm::HS256, SECRET)),
        ("of no tenant", signed(&without("tenant"), Algorithm::HS256, SECRET)),
        ("of a strange tenant", signed(&with("tenant", json!("a/b")), Algorithm::HS256, SECRET)),
        ("with strange sessions", signed(&with("sessions", json!(7)), Algorithm::HS256, SECRET)),
    ] {
        assert_eq!(status(&token).await, 401, "{why}");
    }
    // Times may have fractions; anything else is refused.
    let soon = signed(&with("exp", json!(now_exactly() + 600.5)), Algorithm::HS256, SECRET);
    assert!(passed(status(&soon).await) && passed(status(&soon).await));
    let far = signed(&with("exp", json!(u64::MAX)), Algorithm::HS256, SECRET);
    assert!(passed(status(&far).await) && passed(status(&far).await));
    let both = signed(&with("aud", json!(["other", "turnwire"])), Algorithm::HS256, SECRET);
    assert!(passed(status(&both).await), "RFC 7519 allows a list of audiences");
    for exp in [json!(-1), json!(1e300), json!("soon"), json!([now() + 600]), json!(null)] {
        let token = signed(&with("exp", exp.clone()), Algorithm::HS256, SECRET);
        assert_eq!(status(&token).await, 401, "exp {exp}");
    }
    for nbf in [json!("later"), json!(-1), json!(now() + 600)] {
        let token = signed(&with("nbf", nbf.clone()), Algorithm::HS256, SECRET);
        assert_eq!(status(&token).await, 401, "nbf {nbf}");
    }
    for (name, value) in [
        ("iss", json!(["https://id.example"])),
        ("iss", json!(["https://evil.example", "https://id.example"])),
        ("iss", json!({"https://id.example": true})),
        ("sub", json!(7)),
        ("sub", json!(["ada"])),
        ("tenant", json!(["acme"])),
        ("scope", json!({"read": true})),
        ("aud", json!([])),
        ("aud", json!(["other"])),
    ] {
        let token = signed(&with(name, value.clone()), Algorithm::HS256, SECRET);
        assert_eq!(status(&token).await, 401, "{name} {value}");
    }
    for (header, expected) in [
        (r#"{"alg":"HS256","typ":"JWT","kid":"any"}"#, true),
        (r#"{"alg":"HS256","crit":["b64"],"b64":true}"#, false),
        (r#"{"alg":"HS256","crit":["exp"]}"#, false),
        (r#"{"alg":"HS256","crit":["urn:example:unknown"],"urn:example:unknown":"x"}"#, false),
        (r#"{"alg":"HS256","crit":[]}"#, false),
        (r#"{"alg":"HS256","crit":"exp"}"#, false),
        (r#"{"alg":"HS256","b64":false,"crit":["b64"]}"#, false),
        (r#"{"alg":"HS256","alg":"none"}"#, false),
        (r#"{"alg":"hs256"}"#, false),
        (r#"{"alg":["HS256"]}"#, false),
        (r#"{"typ":"JWT"}"#, false),
    ] {
        let token = with_texts(header, &claims().to_string());
        assert_eq!(passed(status(&token).await), expected, "{header}");
    }
    // A duplicate claim could be read in two ways.
    for (twice, again) in [
        ("exp", json!(now() + 600)),
        ("iss", json!("https://id.example")),
        ("tenant", json!("other")),
        ("scope", json!("admin")),
        ("sessions", json!("mine-*")),
    ] {
        let first = with("sessions", json!(["s1"])).to_string();
        let doubled = format!("{},\"{twice}\":{again}}}", first.strip_suffix('}').unwrap());
        let token = with_texts(r#"{"alg":"HS256"}"#, &doubled);
        assert_eq!(status(&token).await, 401, "{twice} comes twice");
    }
    let no_scope = signed(&without("scope"), Algorithm::HS256, SECRET);
    assert_eq!(status(&no_scope).await, 403);
    server.stop().await;
}

/// An RSA key of 2048 bits that only these tests use: private, public. ring cannot create one.
const RSA: [&str; 2] = [include_str!("rsa_private.pem"), include_str!("rsa_public.pem")];

fn jwt_settings(algorithm: &str, public_key_file: &Path) -> Config {
    let settings = format!(
        "listen = \"127.0.0.1:0\"\n[auth.jwt]\nalgorithm = \"{algorithm}\"\npublic_key_file = '{}'\n\
         issuer = \"https://id.example\"\naudience = \"turnwire\"\n",
        public_key_file.display()
    );
    Config::parse("test", &settings).unwrap()
}

#[tokio::test]
async fn a_jwt_of_every_asymmetric_algorithm_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("public.pem");
    let rsa = |algorithm| {
        let key = EncodingKey::from_rsa_pem(RSA[0].as_bytes()).unwrap();
        (algorithm, key, RSA[1].to_owned())
    };
    let p256 = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    let ed25519 = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let ec = |key: &KeyPair| EncodingKey::from_ec_pem(key.serialize_pem().as_bytes()).unwrap();
    let ed = |key: &KeyPair| EncodingKey::from_ed_pem(key.serialize_pem().as_bytes()).unwrap();
    for (algorithm, key, public) in [
        rsa(Algorithm::RS256),
        rsa(Algorithm::RS384),
        rsa(Algorithm::RS512),
        rsa(Algorithm::PS256),
        rsa(Algorithm::PS384),
        rsa(Algorithm::PS512),
        (Algorithm::ES256, ec(&p256), p256.public_key_pem()),
        (Algorithm::ES384, ec(&p384), p384.public_key_pem()),
        (Algorithm::EdDSA, ed(&ed25519), ed25519.public_key_pem()),
    ] {
        std::fs::write(&file, &public).unwrap();
        let server = start_with(jwt_settings(&format!("{algorithm:?}"), &file));
        let status = async |token: &str| {
            let bearer = format!("Bearer {token}");
            server.send("GET", "/v1/agents", &[("authorization", &bearer)]).await.status
        };
        let good = signed_with_key(&claims(), algorithm, &key);
        assert_eq!(status(&good).await, 200, "{algorithm:?}");
        let (_, signature) = good.rsplit_once('.').unwrap();
        let other = signed_with_key(&with("sub", json!("eve")), algorithm, &key);
        let (forged, _) = other.rsplit_once('.').unwrap();
        // The public key is known: it must not work as the secret of an HMAC.
        let hmac = signed(&claims(), Algorithm::HS256, &public);
        for (why, token) in [
            ("another token's signature", format!("{forged}.{signature}")),
            ("no signature", format!("{forged}.")),
            ("the public key as a secret", hmac),
        ] {
            assert_eq!(status(&token).await, 401, "{algorithm:?}: {why}");
        }
        server.stop().await;
    }
}

#[test]
fn a_public_key_that_does_not_fit_the_algorithm_is_refused_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("public.pem");
    let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap().public_key_pem();
    for (algorithm, public, expected) in [
        ("ES256", p384.as_str(), "the algorithm requires a P-256 key"),
        ("RS256", p384.as_str(), "is not a public key for RS256"),
        ("RS256", include_str!("rsa_1024_public.pem"), "an RSA key of 2048 to 8192 bits"),
        ("EdDSA", RSA[1], "is not a public key for EdDSA"),
        ("PS512", "nothing", "is not a public key for PS512"),
    ] {
        std::fs::write(&file, public).unwrap();
        let app = App::new(jwt_settings(algorithm, &file), log(), BTreeMap::new());
        let why = app.err().expect("it is refused").to_string();
        assert!(why.contains(expected), "{algorithm}: {why}");
    }
}
