//! Nobody who is not on the public internet is asked.

use crate::fake_site::FakeSite;
use crate::harness::TestServer;

#[tokio::test]
async fn addresses_of_other_networks_are_refused_before_anything_is_sent() {
    let inside = FakeSite::open().await;
    let port = inside.address.port();
    let server = TestServer::open("");
    server.wait_until_idle("s").await;
    let mut hosts: Vec<String> = [
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "127.1",
        "0x7f.1",
        "2130706433",
        "017700000001",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "127.0.0.1.",
    ]
    .map(|host| format!("{host}:{port}"))
    .into();
    hosts.extend(
        [
            "10.0.0.1",
            "100.64.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "[fc00::1]",
            "[fe80::1]",
            "[ff02::1]",
            "[2001:db8::1]",
        ]
        .map(str::to_owned),
    );
    for host in hosts {
        // Where there are no certificates a name is not even looked up for https.
        let is_name = host.to_lowercase().starts_with("localhost");
        for scheme in if is_name { &["http"][..] } else { &["http", "https"] } {
            let url = format!("{scheme}://{host}/cat.png");
            let answer = server.send_links("s", &[&url]).await;
            assert_eq!(
                (answer.status, answer.error_type().as_str()),
                (422, "link_refused"),
                "{url}"
            );
            assert!(answer.text().contains("not on the public internet"), "{}", answer.text());
        }
    }
    assert_eq!(inside.requested_paths(), Vec::<String>::new());
    assert_eq!(server.last_seq("s").await, 0);
}

#[tokio::test]
async fn a_redirect_is_checked_like_the_first_link() {
    let (outside, inside) = (FakeSite::open().await, FakeSite::open().await);
    let server = TestServer::open(&format!("[links]\nprivate_hosts = [\"{}\"]", outside.address));
    server.wait_until_idle("s").await;
    let port = inside.address.port();
    for to in [
        inside.url("/cat.png"),
        format!("http://localhost:{port}/cat.png"),
        format!("//localhost:{port}/cat.png"),
        format!("http://[::ffff:127.0.0.1]:{port}/cat.png"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "ftp://127.0.0.1/x".to_owned(),
        format!("http://me:pw@{}/cat.png", outside.address),
    ] {
        let answer = server.send_links("s", &[&outside.url(&format!("/to?{to}"))]).await;
        assert_eq!((answer.status, answer.error_type().as_str()), (422, "link_refused"), "{to}");
    }
    assert_eq!(inside.requested_paths(), Vec::<String>::new());
    assert_eq!(server.last_seq("s").await, 0);
    // One that leads to where it may be fetched from is followed.
    assert_eq!(server.send_links("s", &[&outside.url("/to?/to?/cat.png")]).await.status, 202);
}

#[tokio::test]
async fn a_link_with_a_password_is_refused_and_not_repeated() {
    let site = FakeSite::open().await;
    let server = TestServer::open(&format!("[links]\nprivate_hosts = [\"{}\"]", site.address));
    server.wait_until_idle("s").await;
    let url = format!("http://me:hunter2@{}/cat.png?token=hunter3", site.address);
    let answer = server.send_links("s", &[&url]).await;
    assert_eq!((answer.status, answer.error_type().as_str()), (422, "link_refused"));
    assert!(!answer.text().contains("hunter"), "{}", answer.text());
    assert_eq!(site.requested_paths().len(), 0);
}

#[tokio::test]
async fn a_private_host_is_allowed_by_its_port_or_as_a_whole() {
    let (one, other) = (FakeSite::open().await, FakeSite::open().await);
    let server = TestServer::open(&format!("[links]\nprivate_hosts = [\"{}\"]", one.address));
    server.wait_until_idle("s").await;
    assert_eq!(server.send_links("s", &[&one.url("/cat.png")]).await.status, 202);
    assert_eq!(
        server.send_links("s", &[&other.url("/cat.png")]).await.error_type(),
        "link_refused"
    );
    let named = format!("http://localhost:{}/cat.png", one.address.port());
    assert_eq!(server.send_links("s", &[&named]).await.error_type(), "link_refused");
    let server = TestServer::open("[links]\nprivate_hosts = [\"localhost\"]");
    server.wait_until_idle("s").await;
    assert_eq!(server.send_links("s", &[&named]).await.status, 202);
}
