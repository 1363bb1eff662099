use crate::attack::Attack;

const HELLO: &str = r#"{"content":"hello"}"#;
const EVENT: &str = r#"{"id":"x","type":"REPLY_START","reply_id":"q","name":"x"}"#;
const MESSAGE: &str = r#"{"id":"x","type":"MESSAGE","message":{"id":"m","name":"x","role":"assistant","content":"x"}}"#;
const CONFIRM: &str = r#"{"id":"x","type":"USER_CONFIRM_RESULT","reply_id":"r","confirm_results":[{"confirmed":true,"tool_call":{"type":"tool_call","id":"c","name":"x","input":"{}"}}]}"#;

pub fn all() -> Vec<Attack> {
    let mut all = Vec::new();
    for credentials in [
        "authorization: Bearer wrong\r\n".to_owned(),
        "authorization: Bearer \r\n".to_owned(),
        "authorization: Basic dHdfYWxsOg==\r\n".to_owned(),
        "authorization: bearer\ttw_all\r\n".to_owned(),
        format!("authorization: Bearer {}\r\n", "x".repeat(10_000)),
        "authorization: Bearer \u{e9}\r\n".to_owned(),
        "authorization: Bearer a.b.c\r\n".to_owned(),
        "authorization: Bearer eyJhbGciOiJub25lIn0.e30.\r\n".to_owned(),
        "authorization: Bearer wrong\r\nauthorization: Bearer tw_all\r\n".to_owned(),
    ] {
        let mut attack = Attack::new(401, "GET", "/v1/sessions/s", &credentials, "");
        attack.wanted = crate::attack::Expected::Clear;
        all.push(attack);
    }
    let with = |token: &str| format!("authorization: Bearer {token}\r\n");
    let publishing = |token: &str| format!("{}turnwire-producer: p.2\r\n", with(token));
    let (chat, read) = (with("tw_chat"), with("tw_read"));
    let (events, messages) = ("/v1/sessions/s/events", "/v1/sessions/s/messages");
    all.extend([
        Attack::new(401, "GET", "/v1/sessions/s?ticket=none", "authorization-not: x\r\n", "")
            .bare(),
        Attack::new(403, "POST", messages, &read, HELLO),
        Attack::new(403, "DELETE", "/v1/sessions/s", &read, ""),
        Attack::new(403, "PATCH", "/v1/sessions/s", &read, "{}"),
        Attack::new(403, "POST", "/v1/sessions", &read, "{}"),
        Attack::new(403, "POST", "/v1/sessions/s/fork", &read, ""),
        Attack::new(403, "POST", "/v1/blobs", &read, "x"),
        Attack::new(403, "POST", "/v1/sessions/s/replies", &chat, "x"),
        Attack::new(403, "POST", events, &publishing("tw_chat"), EVENT),
        Attack::new(403, "POST", events, &publishing("tw_all"), CONFIRM),
    ]);
    for event in [EVENT, MESSAGE, CONFIRM] {
        for who in [&chat, &read] {
            let mut attack = Attack::new(403, "POST", events, who, event);
            attack.wanted = crate::attack::Expected::Clear;
            all.push(attack);
        }
    }
    all
}

impl Attack {
    /// Without credentials.
    fn bare(mut self) -> Self {
        let text = String::from_utf8(self.bytes).unwrap();
        self.bytes = text.replace("authorization: Bearer tw_all\r\n", "").into_bytes();
        self
    }
}
