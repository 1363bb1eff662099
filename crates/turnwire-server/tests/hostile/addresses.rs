use crate::attack::Attack;

pub fn all() -> Vec<Attack> {
    let get = |status, path: &str| Attack::new(status, "GET", path, "", "");
    let long = "a".repeat(129);
    let mut all = vec![
        get(404, "/v1/sessions/../../etc/passwd"),
        get(400, "/v1/sessions/%2e%2e%2f%2e%2e%2fetc%2fpasswd"),
        get(404, "/v1/blobs/../../../etc/passwd"),
        get(404, "/v1/sessions/s/nothing"),
        get(404, "/V1/SESSIONS/s"),
        get(404, "//v1/sessions/s"),
        get(400, &format!("/v1/sessions/{long}")),
        get(400, "/v1/sessions/a%2Fb"),
        get(400, "/v1/sessions/%F0%9F%98%80"),
        get(400, "/v1/sessions/a%00b"),
        get(400, "/v1/sessions/s%20"),
        get(400, "/v1/sessions/%ff%fe"),
        get(400, "/v1/sessions/%zz"),
        get(400, "/v1/sessions/s'%20OR%201=1--"),
        get(404, "/v1/sessions/none/messages"),
        get(404, "/v1/sessions/none/events"),
        get(404, "/v1/sessions/s/messages/none"),
        get(404, &format!("/v1/sessions/s/messages/{}", "x".repeat(10_000))),
        get(404, &format!("/v1/sessions/s/messages?before={}", "x".repeat(10_000))),
        get(400, "/v1/sessions/s/messages?limit=-1"),
        get(400, "/v1/sessions/s/messages?limit=99999999999999999999999"),
        get(400, "/v1/sessions/s/messages?limit=many"),
        get(400, "/v1/sessions/s/messages?agents=none"),
        get(400, "/v1/sessions/s/messages?limit=1&limit=2"),
        get(400, "/v1/sessions/s/messages/r?at=x"),
        get(400, "/v1/sessions/s/messages/r?at=-1"),
        get(410, "/v1/sessions/s/messages/r?at=foreign.1"),
        get(400, "/v1/sessions?cursor=%00"),
        get(400, "/v1/sessions?cursor=bm9uZQ"),
        get(400, &format!("/v1/sessions?cursor={}", "A".repeat(9_000))),
        get(400, "/v1/sessions?limit=1e9"),
        get(400, "/v1/sessions?status=dancing"),
        get(400, "/v1/sessions/s/events?wire=morse"),
        get(400, "/v1/sessions/s/events?wire=gemini"),
        get(400, "/v1/sessions/s/events?until=doomsday"),
        get(400, "/v1/sessions/s/events?raw=perhaps"),
        get(400, "/v1/sessions/s/events?display_mode=4d"),
        get(400, "/v1/sessions/s/events?unknown=1"),
        get(400, "/v1/approvals?limit=x"),
        get(400, "/v1/blobs/xyz"),
        get(404, &format!("/v1/blobs/{}", "0".repeat(64))),
        get(400, "/v1/ws?wire=turnwire"),
        get(400, "/v1/ws?wire=morse"),
    ];
    // A token that leads nowhere is a reset for a stream, and 410 for whoever does not wait.
    for token in ["x", "x.y", "-1", "1.1.1", "%00", "99999999999999999999", "now.1"] {
        let path = format!("/v1/sessions/s/events?after={token}");
        let lines = "accept: application/x-ndjson\r\n";
        all.push(Attack::new(410, "GET", &path, lines, ""));
    }
    for token in ["", "x", "\u{e9}", "foreign.1", &"9".repeat(9_000)] {
        let headers = format!("accept: application/x-ndjson\r\nlast-event-id: {token}\r\n");
        let attack = Attack::new(410, "GET", "/v1/sessions/s/events", &headers, "");
        all.push(if token.is_empty() { attack.harmless() } else { attack });
    }
    // The blob that says `bytes`. A range that makes no sense is passed over, as the standard has it.
    let blob = "/v1/blobs/277089d91c0bdf4f2e6862ba7e4a07605119431f5d13f726dd352b06f1b206a9";
    for (range, wanted) in [
        ("bytes=99-", 416),
        ("bytes=5-5", 416),
        ("bytes=99999999999999999999999-", 200),
        ("bytes=4-2", 200),
        ("bytes=a-b", 200),
        ("lines=1-2", 200),
        ("bytes=0-0,2-2,4-4", 200),
        ("bytes=--1", 200),
    ] {
        let attack = Attack::new(wanted, "GET", blob, &format!("range: {range}\r\n"), "");
        all.push(if wanted == 200 { attack.harmless() } else { attack });
    }
    for (method, path) in [
        ("PUT", "/v1/sessions"),
        ("DELETE", "/v1/sessions"),
        ("POST", "/v1/sessions/s"),
        ("TRACE", "/v1/sessions/s"),
        ("OPTIONS", "/v1/sessions/s"),
        ("BREW", "/healthz"),
        ("POST", "/v1/agents"),
        ("DELETE", "/v1/sessions/s/events"),
    ] {
        all.push(Attack::new(405, method, path, "", ""));
    }
    let fork = |status, query: &str, body: &str| {
        Attack::new(status, "POST", &format!("/v1/sessions/s/fork{query}"), "", body)
    };
    all.extend([
        fork(400, "?at=x", ""),
        fork(400, "?at=-1", ""),
        fork(410, "?at=foreign.1", ""),
        fork(400, "", "[]"),
        Attack::new(409, "POST", "/v1/sessions/s/messages/none/retry", "", ""),
        Attack::new(404, "DELETE", "/v1/sessions/s/messages/none", "", ""),
        Attack::new(404, "DELETE", "/v1/sessions/none", "", ""),
        get(400, &format!("/v1/sessions?q={}", "x".repeat(8_000))),
        get(200, "/v1/sessions?q=%22%20AND%20(%20*%20NEAR%20--;DROP").harmless(),
        get(200, "/v1/sessions?q=%00%ff").harmless(),
        get(200, "/v1/sessions?limit=0").harmless(),
    ]);
    all
}
