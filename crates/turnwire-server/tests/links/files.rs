//! Files of this machine: below one folder, or not at all.

use crate::fake_site::PNG;
use crate::harness::TestServer;
use std::path::Path;
use url::Url;

fn url(path: &Path) -> String {
    Url::from_file_path(path).unwrap().to_string()
}

#[tokio::test]
async fn only_files_below_the_folder_are_read() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().canonicalize().unwrap();
    let (open, shut) = (root.join("open"), root.join("open-not"));
    std::fs::create_dir_all(open.join("deep")).unwrap();
    std::fs::create_dir_all(&shut).unwrap();
    std::fs::write(open.join("deep/a.png"), PNG).unwrap();
    std::fs::write(open.join("deep/notes.md"), "# notes").unwrap();
    std::fs::write(open.join("big.txt"), vec![b'x'; 2000]).unwrap();
    std::fs::write(shut.join("secret.txt"), "secret").unwrap();
    let server = TestServer::open(&format!("[links]\nsize = 1000\nfiles = '{}'", open.display()));
    server.wait_until_idle("s").await;

    let inside = [url(&open.join("deep/a.png")), url(&open.join("deep/notes.md"))];
    assert_eq!(server.send_links("s", &[&inside[0], &inside[1]]).await.status, 202);
    let files = server.files("s").await;
    assert_eq!(files[0]["source"]["media_type"], "image/png");
    assert_eq!(files[1]["source"]["media_type"], "text/markdown");
    assert_eq!(files[0]["source"]["original_url"], inside[0]);
    assert_eq!(
        server.send_links("s", &[&url(&open.join("big.txt"))]).await.error_type(),
        "link_too_large"
    );

    let base = url(&open);
    let mut outside = vec![
        url(&shut.join("secret.txt")),
        url(&shut.join("there is none.txt")),
        url(&open.join("there is none.txt")),
        url(&open.join("deep")),
        base.clone(),
        format!("{base}/../open-not/secret.txt"),
        format!("{base}/%2e%2e/open-not/secret.txt"),
        format!("{base}/..%2fopen-not%2fsecret.txt"),
        format!("{base}/deep/..%2f..%2fopen-not/secret.txt"),
        "file:///etc/passwd".to_owned(),
        "file://elsewhere/etc/passwd".to_owned(),
        "file:///dev/zero".to_owned(),
        format!("{base}/a%00.png"),
    ];
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        symlink(shut.join("secret.txt"), open.join("link.txt")).unwrap();
        symlink(&shut, open.join("door")).unwrap();
        symlink("/dev/zero", open.join("zero")).unwrap();
        let names = ["link.txt", "door/secret.txt", "zero"];
        outside.extend(names.map(|name| url(&open.join(name))));
        // One that stays inside is fine.
        symlink(open.join("deep/a.png"), open.join("b.png")).unwrap();
        assert_eq!(server.send_links("s", &[&url(&open.join("b.png"))]).await.status, 202);
    }
    let before = server.last_seq("s").await;
    let mut words = Vec::new();
    for link in outside {
        let answer = server.send_links("s", &[&link]).await;
        assert_eq!((answer.status, answer.error_type().as_str()), (422, "link_refused"), "{link}");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        words.push(message.split_once(" names ").unwrap().1.to_owned());
    }
    // Who asks does not learn what is there.
    words.dedup();
    assert_eq!(words.len(), 1, "{words:?}");
    assert_eq!(server.last_seq("s").await, before);
}

#[tokio::test]
async fn without_a_folder_no_file_is_read() {
    let server = TestServer::open("");
    server.wait_until_idle("s").await;
    let answer = server.send_links("s", &["file:///etc/hostname"]).await;
    assert_eq!((answer.status, answer.error_type().as_str()), (422, "link_refused"));
    let server = TestServer::open("[links]\nfetch = false");
    server.wait_until_idle("s").await;
    assert_eq!(
        server.send_links("s", &["FILE:///etc/hostname"]).await.error_type(),
        "link_refused"
    );
}
