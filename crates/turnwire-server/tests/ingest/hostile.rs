//! Bodies that are made to break things: each gets a clear error.

use crate::harness::{Server, event, start};
use turnwire_server::Scope;
use turnwire_server::config::{ByteSize, Config};

#[tokio::test]
async fn hostile_bodies_get_a_clear_answer() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let with = |rest: &str| event("x", "r", rest).into_bytes();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", vec![]),
        ("blank", b" \r\n\n\t ".to_vec()),
        ("an empty list", b"[]".to_vec()),
        ("open brackets", vec![b'['; 1 << 20]),
        ("open braces", vec![b'{'; 1 << 20]),
        ("deep lists", deep(1 << 19).into_bytes()),
        ("a list of deep lists", format!("[{}]", deep(100_000)).into_bytes()),
        ("invalid text", b"{\"id\":\"\xff\xfe\"}".to_vec()),
        ("a cut character", "{\"id\":\"é".as_bytes()[..8].to_vec()),
        ("a null byte", b"{\"id\":\"\0\"}".to_vec()),
        ("null", b"null".to_vec()),
        ("a number", b"1e999999".to_vec()),
        ("a list of numbers", b"[1,2,3]".to_vec()),
        ("a string", b"\"REPLY_START\"".to_vec()),
        ("no type", b"{\"id\":\"1\"}".to_vec()),
        ("a type that is a number", b"{\"type\":7}".to_vec()),
        ("a huge seq", with(r#""type":"REPLY_START","seq":1e400"#)),
        ("a negative seq", with(r#""type":"REPLY_START","seq":-1"#)),
        ("no reply", b"{\"id\":\"1\",\"type\":\"REPLY_START\"}".to_vec()),
        ("a message", br#"{"id":"1","role":"user","name":"u","content":"x"}"#.to_vec()),
        ("a bad role", with(r#""type":"REPLY_START","role":"king""#)),
        ("bad base64", {
            let start = start("r");
            let data = event("d", "r", r#""type":"DATA_BLOCK_START","block_id":"b""#);
            let bad = event(
                "e",
                "r",
                r#""type":"DATA_BLOCK_DELTA","block_id":"b","media_type":"image/png","data":"*""#,
            );
            format!("{start}\n{data}\n{bad}").into_bytes()
        }),
        ("half an object", start("r").as_bytes()[..30].to_vec()),
        ("two on a line", format!("{}{}", start("r"), start("r2")).into_bytes()),
        ("a list that breaks off", format!("[{},", start("r")).into_bytes()),
        (
            "a deep field",
            with(&format!(r#""type":"REQUIRE_USER_CONFIRM","tool_calls":{}"#, deep(50_000))),
        ),
        ("a form", b"type=REPLY_START&reply_id=r".to_vec()),
        ("a reset", br#"{"id":"1","type":"RESET","epoch":"x"}"#.to_vec()),
    ];
    for (name, body) in cases {
        for wire in ["turnwire", "agentscope", "agentscope-java"] {
            for query in ["", "&tolerant=true"] {
                let path = format!("/v1/sessions/s/events?wire={wire}{query}");
                let answer = server.post(&path, "turnwire-producer: p.1\r\n", &body).await;
                let fine = match answer.status {
                    400 | 413 | 422 => !answer.message().is_empty(),
                    // Events that do not fit are left out, or the Java wire accepts them.
                    200 => !query.is_empty() || wire == "agentscope-java",
                    _ => false,
                };
                assert!(fine, "{name} on {wire}{query}: {} {}", answer.status, answer.json);
            }
        }
    }
    drop(session);
    // The server still works.
    server.session("t").await;
    server.publish("t", "p.1", &start("r")).await.assert_stored(1, 0);
}

#[tokio::test]
async fn what_nests_deeply_where_nobody_looks_is_kept() {
    let server = Server::new().await;
    server.session("s").await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let body = event("x", "r", &format!(r#""type":"REPLY_START","mood":{deep}"#));
    let answer = server.publish("s", "p.1", &body).await;
    assert!(matches!(answer.status, 200 | 422), "{}", answer.json);
}

#[tokio::test]
async fn what_is_too_large_is_named() {
    let mut config = Config::default();
    config.limits.body = ByteSize::kib(8);
    config.limits.event = ByteSize::kib(1);
    let server = Server::with(config, &Scope::ALL).await;
    let session = server.session("s").await;
    let large = event("x", "r", &format!(r#""type":"REPLY_START","name":"{}""#, "a".repeat(1024)));
    for (form, body) in [
        ("lines", format!("{}\n{large}", start("q"))),
        ("list", format!("[{},\n{large}]", start("q"))),
    ] {
        let answer = server.publish("s", "p.1", &body).await;
        answer.assert_error(413, "too_large", &["event 1", "line 2", "1024 bytes"]);
        for wire in ["agentscope", "agentscope-java"] {
            let path = format!("/v1/sessions/s/events?wire={wire}");
            let producer = "turnwire-producer: p.1\r\n";
            let answer = server.post(&path, producer, body.as_bytes()).await;
            answer.assert_error(413, "too_large", &["event 1", "line 2"]);
        }
        let _ = form;
    }
    let many: Vec<String> = (0..200).map(|n| start(&format!("r{n}"))).collect();
    server.publish("s", "p.1", &many.join("\n")).await.assert_error(
        413,
        "too_large",
        &["8192 bytes"],
    );
    assert_eq!(session.head_state().head.get(), 0);
}
