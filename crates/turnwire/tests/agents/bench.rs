//! `turnwire bench replies`, against the real program.

use crate::harness::TestServer;
use serde_json::Value;
use std::net::TcpListener;
use std::process::Output;

fn bench(server: &TestServer, args: &[&str]) -> Output {
    let url = format!("http://{}", server.address);
    let few = ["--rate", "100", "--seconds", "1", "--warm-up", "0", "--json"];
    server.run(&[&["bench", "--url", &url, "replies"], args, &few].concat())
}

fn figures(server: &TestServer, args: &[&str]) -> Value {
    let output = bench(server, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn every_token_of_an_in_process_model_reaches_its_subscriber() {
    let server = TestServer::start("[agents.ticker]\nmodel = \"clock\"\n");
    let pid = server.pid().to_string();
    let figures = figures(&server, &["--agent", "ticker", "--replies", "5", "--pid", &pid]);
    assert_eq!((&figures["lost"], &figures["out_of_order"]), (&0.into(), &0.into()), "{figures}");
    assert!(figures["tokens_per_second"].as_f64().unwrap() > 0.0, "{figures}");
    assert!(figures["latency_ms"]["p50"].as_f64() <= figures["latency_ms"]["p99"].as_f64());
    assert!(figures["mib_with_replies"].as_f64().unwrap() > 0.0, "{figures}");
    let sessions = server.get("/v1/sessions").await;
    assert!(sessions["sessions"].as_array().unwrap().is_empty(), "{sessions}");
}

#[tokio::test]
async fn the_benchmark_serves_the_model_over_http() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let server = TestServer::start(&format!(
        "[agents.ticker]\nmodel = \"openai:clock\"\nbase_url = \"http://{provider}\"\n"
    ));
    let args = ["--agent", "ticker", "--replies", "3", "--provider", &provider];
    // Twice: the server still has connections to the first model, which is gone.
    for _ in 0..2 {
        let figures = figures(&server, &args);
        assert_eq!((&figures["lost"], &figures["replies"]), (&0.into(), &3.into()), "{figures}");
        assert!(figures["tokens_per_second"].as_f64().unwrap() > 0.0, "{figures}");
    }
}

#[tokio::test]
async fn an_agent_that_cannot_be_measured_is_reported() {
    let server = TestServer::start("");
    for (agent, why) in [("demo", "received no token"), ("nobody", "nobody")] {
        let output = bench(&server, &["--agent", agent, "--replies", "1"]);
        assert_eq!(output.status.code(), Some(2), "{agent}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains(why), "{stderr}");
    }
}
