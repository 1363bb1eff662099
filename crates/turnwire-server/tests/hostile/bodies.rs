use crate::attack::Attack;

const SESSIONS: &str = "/v1/sessions";
const SESSION: &str = "/v1/sessions/s";
const MESSAGES: &str = "/v1/sessions/s/messages";
const EVENTS: &str = "/v1/sessions/s/events";
const REPLIES: &str = "/v1/sessions/s/replies";
const PRODUCER: &str = "turnwire-producer: p.1\r\n";

/// Invalid JSON, or JSON of an unexpected type.
fn nonsense() -> Vec<Vec<u8>> {
    let deep = "[".repeat(100_000);
    let deep_objects = "{\"a\":".repeat(50_000);
    vec![
        b"{".to_vec(),
        b"nonsense".to_vec(),
        b"\xff\xfe\x00".to_vec(),
        b"{\"content\":\"\xc3\x28\"}".to_vec(),
        b"\0\0\0\0".to_vec(),
        b"{\"id\":NaN}".to_vec(),
        b"{\"id\":1e99999}".to_vec(),
        b"{\"id\":\"\\ud800\"}".to_vec(),
        b"{} {}".to_vec(),
        b"[]".to_vec(),
        b"42".to_vec(),
        b"\"text\"".to_vec(),
        deep.clone().into_bytes(),
        format!("{deep}{}", "]".repeat(100_000)).into_bytes(),
        deep_objects.into_bytes(),
    ]
}

pub fn all() -> Vec<Attack> {
    let mut all = Vec::new();
    for body in nonsense() {
        for (method, path) in [("POST", SESSIONS), ("PATCH", SESSION), ("POST", MESSAGES)] {
            all.push(any_4xx(Attack::new(400, method, path, "", &body)));
        }
        all.push(any_4xx(Attack::new(400, "POST", EVENTS, PRODUCER, &body)));
        all.push(any_4xx(Attack::new(400, "POST", REPLIES, PRODUCER, &body)));
    }
    sessions(&mut all);
    messages(&mut all);
    events(&mut all);
    all
}

/// 400, 413 or 422 are all fine, as long as the error is clear.
fn any_4xx(mut attack: Attack) -> Attack {
    attack.wanted = crate::attack::Expected::Clear;
    attack
}

fn sessions(all: &mut Vec<Attack>) {
    let long = "a".repeat(129);
    let title = "t".repeat(1_001);
    let metadata = "m".repeat(70_000);
    for (status, body) in [
        (400, r#"{"id":1}"#.to_owned()),
        (400, r#"{"id":["s"]}"#.to_owned()),
        (400, r#"{"id":"a","id":"b"}"#.to_owned()),
        (400, r#"{"unknown":true}"#.to_owned()),
        (400, r#"{"agent":{}}"#.to_owned()),
        (400, r#"{"title":7}"#.to_owned()),
        (400, r#"{"metadata":[]}"#.to_owned()),
        (404, r#"{"id":""}"#.to_owned()),
        (404, r#"{"id":"a/b"}"#.to_owned()),
        (404, r#"{"id":"é"}"#.to_owned()),
        (404, r#"{"id":"a b"}"#.to_owned()),
        (404, "{\"id\":\"a\\u0000b\"}".to_owned()),
        (404, format!(r#"{{"id":"{long}"}}"#)),
        (422, r#"{"agent":"nobody"}"#.to_owned()),
        (422, format!(r#"{{"title":"{title}"}}"#)),
        (422, format!(r#"{{"metadata":{{"m":"{metadata}"}}}}"#)),
    ] {
        let mut attack = Attack::new(status, "POST", SESSIONS, "", &body);
        if status == 404 {
            attack = any_4xx(attack);
        }
        all.push(attack);
    }
    for (status, body) in [
        (400, r#"{"title":7}"#.to_owned()),
        (400, r#"{"metadata":"x"}"#.to_owned()),
        (400, r#"{"id":"other"}"#.to_owned()),
        (422, format!(r#"{{"title":"{title}"}}"#)),
    ] {
        all.push(Attack::new(status, "PATCH", SESSION, "", &body));
    }
}

fn messages(all: &mut Vec<Attack>) {
    let large = format!(r#"{{"content":"{}"}}"#, "x".repeat(3 << 20));
    let image = r#"{"type":"data","id":"d","name":null,"source":{"type":"base64","media_type":"image/png","data":"DATA"}}"#;
    for body in [
        "{}".to_owned(),
        r#"{"content":""}"#.to_owned(),
        r#"{"content":[]}"#.to_owned(),
        r#"{"content":7}"#.to_owned(),
        r#"{"content":{}}"#.to_owned(),
        r#"{"content":[7]}"#.to_owned(),
        r#"{"content":[{"type":"text"}]}"#.to_owned(),
        r#"{"content":[{"type":"text","text":{}}]}"#.to_owned(),
        r#"{"content":"x","role":"assistant"}"#.to_owned(),
        r#"{"content":"x","role":"system"}"#.to_owned(),
        r#"{"content":"x","role":"king"}"#.to_owned(),
        r#"{"content":"x","role":7}"#.to_owned(),
        r#"{"content":"x","id":7}"#.to_owned(),
        r#"{"content":"x","id":"a/b"}"#.to_owned(),
        r#"{"content":"x","id":"r"}"#.to_owned(),
        format!(r#"{{"content":"x","id":"{}"}}"#, "i".repeat(129)),
        r#"{"content":"x","name":{}}"#.to_owned(),
        r#"{"content":"x","metadata":7}"#.to_owned(),
        r#"{"content":"x","created_at":7}"#.to_owned(),
        format!(r#"{{"content":[{}]}}"#, image.replace("DATA", "=!not base64!=")),
        format!(r#"{{"content":[{}]}}"#, image.replace("DATA", &"!".repeat(100_000))),
        large,
    ] {
        all.push(any_4xx(Attack::new(422, "POST", MESSAGES, "", &body)));
    }
    for key in ["", " ", &"k".repeat(256), "\u{e9}"] {
        let headers = format!("idempotency-key: {key}\r\n");
        all.push(Attack::new(400, "POST", MESSAGES, &headers, r#"{"content":"x"}"#));
    }
    for query in ["?queue=perhaps", "?queue=7"] {
        let path = format!("{MESSAGES}{query}");
        all.push(Attack::new(400, "POST", &path, "", r#"{"content":"x"}"#));
    }
}

fn events(all: &mut Vec<Attack>) {
    let mega = "r".repeat(1 << 20);
    for line in [
        r#"{"id":"x"}"#.to_owned(),
        r#"{"id":"x","type":7}"#.to_owned(),
        r#"{"id":7,"type":"REPLY_START","reply_id":"q"}"#.to_owned(),
        r#"{"id":"x","type":"REPLY_START","reply_id":{}}"#.to_owned(),
        r#"{"type":"REPLY_START","reply_id":"q","name":"x"}"#.to_owned(),
        r#"{"id":"x","type":"REPLY_START","reply_id":"q","role":[]}"#.to_owned(),
        r#"{"id":"x","type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"none","delta":"x"}"#.to_owned(),
        r#"{"id":"x","type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":7,"delta":"x"}"#.to_owned(),
        r#"{"id":"x","type":"TEXT_BLOCK_DELTA","reply_id":"r"}"#.to_owned(),
        r#"{"id":"x","type":"DATA_BLOCK_DELTA","reply_id":"r","block_id":"none","data":"!"}"#.to_owned(),
        r#"{"id":"x","type":"RESET","epoch":"e","reason":"mischief"}"#.to_owned(),
        r#"{"id":"x","type":"MESSAGE"}"#.to_owned(),
        r#"{"id":"x","type":"MESSAGE","message":{"id":"r","name":"x","role":"user","content":"x"}}"#.to_owned(),
        r#"{"id":"x","type":"MESSAGE","message":{"role":"user","content":[{"type":"data","source":{"type":"base64","media_type":"a/b","data":7}}]}}"#.to_owned(),
        r#"{"id":"x","type":"USER_CONFIRM_RESULT","reply_id":"r","confirm_results":[]}"#.to_owned(),
        r#"{"id":"x","type":"SUPERSEDE","message_ids":"all"}"#.to_owned(),
        r#"{"id":"x","type":"MODEL_CALL_END","reply_id":"r","input_tokens":-1e300}"#.to_owned(),
        r#"{"id":"x","type":"MODEL_CALL_END","reply_id":"r","input_tokens":99999999999999999999999}"#.to_owned(),
        format!(r#"{{"id":"x","type":"REPLY_START","reply_id":"{mega}"}}"#),
        format!(r#"{{"id":"{mega}","type":"REPLY_START","reply_id":"q"}}"#),
    ] {
        all.push(any_4xx(Attack::new(422, "POST", EVENTS, PRODUCER, &line)));
        // One invalid event spoils the valid ones.
        let good = r#"{"id":"good","type":"CUSTOM","name":"x","value":{},"reply_id":"r"}"#;
        all.push(any_4xx(Attack::new(422, "POST", EVENTS, PRODUCER, format!("{good}\n{line}"))));
    }
    let good = r#"{"id":"good","type":"CUSTOM","name":"x","value":{},"reply_id":"r"}"#;
    for producer in ["", "p", "p.", ".1", "p.-1", "p.x", "a b.1", "p.99999999999999999999"] {
        let headers = format!("turnwire-producer: {producer}\r\n");
        all.push(Attack::new(400, "POST", EVENTS, &headers, good));
    }
    let twice = format!("{PRODUCER}{PRODUCER}");
    let other = "turnwire-producer: other.1\r\n";
    all.extend([
        Attack::new(400, "POST", EVENTS, &twice, good),
        Attack::new(409, "POST", EVENTS, "turnwire-producer: p.0\r\n", good),
        Attack::new(409, "POST", EVENTS, other, good),
        Attack::new(400, "POST", EVENTS, PRODUCER, ""),
        Attack::new(400, "POST", EVENTS, PRODUCER, "\n\n\n"),
        Attack::new(400, "POST", &format!("{EVENTS}?wire=morse"), PRODUCER, good),
        Attack::new(400, "POST", &format!("{EVENTS}?wire=openai-chat"), PRODUCER, good),
        Attack::new(400, "POST", &format!("{EVENTS}?tolerant=perhaps"), PRODUCER, good),
        Attack::new(400, "POST", &format!("{REPLIES}?wire=ag-ui"), PRODUCER, "x"),
        Attack::new(400, "POST", &format!("{REPLIES}?reply_id="), PRODUCER, "x"),
        Attack::new(413, "POST", EVENTS, PRODUCER, "x".repeat(3 << 20)),
        Attack::new(404, "POST", "/v1/sessions/none/events", PRODUCER, good),
        Attack::new(404, "POST", "/v1/sessions/none/replies", PRODUCER, "x"),
    ]);
}
