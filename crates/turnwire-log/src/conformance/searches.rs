//! Search: words in finished messages and in titles.

use super::harness::{Harness, Owner, all_of, assert_durable, ids, message, open_from};
use crate::error::Error;
use crate::search::{MAX_BYTES, SearchQuery};
use crate::store::{
    Append, Retention, SessionPatch, SessionQuery, SessionState, SessionStatus, Store,
};
use crate::visible_sessions::{SessionPattern, VisibleSessions};
use std::time::Duration;

fn query(words: &str) -> SessionQuery {
    SessionQuery { search: SearchQuery::new(words).unwrap(), ..all_of("t") }
}

/// The ids of the sessions that a search finds, sorted.
async fn find(store: &dyn Store, words: &str) -> Vec<String> {
    let found = store.list_sessions(&query(words)).await;
    let found = found.unwrap_or_else(|error| panic!("a search for {words:?}: {error}"));
    let mut found: Vec<String> = ids(&found).into_iter().map(str::to_owned).collect();
    found.sort();
    found
}

/// A session with messages of these texts.
async fn session_with_texts(store: &dyn Store, id: &str, texts: &[&str]) -> Owner {
    let mut owner = Owner::new(store, "t", id).await;
    for (at, text) in texts.iter().enumerate() {
        store.append(owner.reply(2, &format!("m{at}"), text)).await.unwrap();
    }
    owner
}

pub(super) async fn a_search_finds_words_of_messages_and_titles_in_any_case(harness: &mut Harness) {
    session_with_texts(harness.store(), "one", &["The weather is fine.", "Thank you!"]).await;
    session_with_texts(harness.store(), "two", &["A recipe for soup", "with Leeks, and CARROTS"])
        .await;
    let titled = session_with_texts(harness.store(), "three", &[]).await;
    let patch = SessionPatch { title: Some("Soup of Überlingen".to_owned()), metadata: None };
    harness.store().patch_session(titled.no, patch).await.unwrap();
    assert_durable!(harness, |store| {
        assert_eq!(find(store, "weather").await, ["one"]);
        assert_eq!(find(store, "WEATHER").await, ["one"]);
        assert_eq!(find(store, "thank").await, ["one"]);
        assert_eq!(find(store, "carrots").await, ["two"]);
        assert_eq!(find(store, "soup").await, ["three", "two"]);
        assert_eq!(find(store, "überlingen").await, ["three"]);
        assert_eq!(find(store, "potatoes").await, [""; 0]);
    });
}

pub(super) async fn a_search_wants_all_words_in_one_text(harness: &mut Harness) {
    session_with_texts(harness.store(), "both", &["leeks come before carrots"]).await;
    session_with_texts(harness.store(), "half", &["only carrots"]).await;
    session_with_texts(harness.store(), "apart", &["only leeks", "only carrots"]).await;
    assert_durable!(harness, |store| {
        assert_eq!(find(store, "carrots leeks").await, ["both"]);
        assert_eq!(find(store, "  leeks,\tcarrots ").await, ["both"]);
    });
}

pub(super) async fn a_search_finds_the_beginning_of_a_word(harness: &mut Harness) {
    session_with_texts(harness.store(), "s", &["Thunderstorms tomorrow"]).await;
    assert_durable!(harness, |store| {
        for beginning in ["th", "thunder", "Thunderstorm", "tomo", "thund tomor"] {
            assert_eq!(find(store, beginning).await, ["s"], "{beginning}");
        }
    });
}

pub(super) async fn a_single_letter_is_searched_as_a_whole_word(harness: &mut Harness) {
    session_with_texts(harness.store(), "whole", &["plan b is better"]).await;
    session_with_texts(harness.store(), "beginning", &["better"]).await;
    assert_durable!(harness, |store| {
        assert_eq!(find(store, "b").await, ["whole"]);
        assert_eq!(find(store, "b is").await, ["whole"]);
        assert_eq!(find(store, "be").await, ["beginning", "whole"]);
        assert_eq!(find(store, "z").await, [""; 0]);
    });
}

pub(super) async fn a_search_finds_words_in_scripts_without_spaces(harness: &mut Harness) {
    session_with_texts(harness.store(), "zh", &["今天天气很好，我们去公园吧。"]).await;
    session_with_texts(harness.store(), "ja", &["明日は東京タワーに行きます"]).await;
    session_with_texts(harness.store(), "ko", &["오늘 날씨가 좋습니다"]).await;
    assert_durable!(harness, |store| {
        for (words, id) in [
            ("天气", "zh"),
            ("今天", "zh"),
            ("公园吧", "zh"),
            ("天气很好", "zh"),
            ("天气 公园", "zh"),
            ("東京", "ja"),
            ("タワー", "ja"),
            ("行きます", "ja"),
            ("날씨", "ko"),
            ("오늘 날씨", "ko"),
        ] {
            assert_eq!(find(store, words).await, [id], "{words}");
        }
        assert_eq!(find(store, "天很").await, [""; 0], "both signs, but not together");
    });
}

pub(super) async fn a_search_finds_a_single_sign(harness: &mut Harness) {
    session_with_texts(harness.store(), "cat", &["这只猫很可爱"]).await;
    session_with_texts(harness.store(), "dog", &["我的狗"]).await;
    assert_durable!(harness, |store| {
        assert_eq!(find(store, "猫").await, ["cat"]);
        assert_eq!(find(store, "狗").await, ["dog"]);
        assert_eq!(find(store, "鱼").await, [""; 0]);
    });
}

pub(super) async fn quotes_and_operators_in_a_search_are_harmless(harness: &mut Harness) {
    session_with_texts(harness.store(), "s", &["She said hello world, salt and pepper"]).await;
    session_with_texts(harness.store(), "rock", &["rock"]).await;
    let long = "word ".repeat(100);
    let longer = "x".repeat(MAX_BYTES);
    assert_durable!(harness, |store| {
        // What these queries find is not defined, but they must not fail.
        for words in [
            "",
            " ",
            "\"",
            "\"\"",
            "'",
            "`",
            "*",
            "**",
            "(",
            ")",
            "()",
            "AND",
            "OR",
            "NOT",
            "NEAR",
            "NEAR(",
            "NEAR(a b, 5)",
            "a AND",
            "OR b",
            "text:",
            "title:x",
            "text : x",
            "^a",
            "-a",
            "+a",
            "a + b",
            "{a b}:c",
            "a:b:c",
            "\\",
            "\0",
            "a\0b",
            "%",
            "_",
            "--",
            "/* */",
            ";",
            "a;b",
            "\"a",
            "a\"",
            "\"a\" \"",
            "😀",
            "e\u{301}",
            "\u{202e}",
            "\n",
            &long,
            &longer,
        ] {
            find(store, words).await;
        }
        for words in [
            "\"hello\"",
            "hello*",
            "(hello)",
            "+hello",
            "hello;",
            "'hello world'",
            "^she",
            "\"world hello",
            "hello, world!",
            "salt AND pepper",
            "{hello} \"world\"",
        ] {
            assert_eq!(find(store, words).await, ["s"], "{words}");
        }
        for words in ["rock OR roll", "rock NOT roll", "text:rock", "NEAR(rock rock)"] {
            assert_eq!(find(store, words).await, [""; 0], "operators are words: {words}");
        }
    });
}

pub(super) async fn a_search_keeps_to_tenant_status_and_page(harness: &mut Harness) {
    for at in 0..7 {
        let mut owner = session_with_texts(harness.store(), &at.to_string(), &["a needle"]).await;
        owner.now_ms = at + 1;
        let append = owner.events(1);
        let state = if at % 2 == 1 { open_from(owner.last) } else { SessionState::default() };
        harness.store().append(Append { state: Some(state), ..append }).await.unwrap();
        session_with_texts(harness.store(), &format!("hay {at}"), &["nothing"]).await;
    }
    let mut other = Owner::new(harness.store(), "other", "s").await;
    harness.store().append(other.reply(1, "m", "a needle")).await.unwrap();
    assert_durable!(harness, |store| {
        let all = store.list_sessions(&query("needle")).await.unwrap();
        assert_eq!(ids(&all), ["6", "5", "4", "3", "2", "1", "0"]);
        let page = SessionQuery { limit: 2, ..query("needle") };
        assert_eq!(ids(&store.list_sessions(&page).await.unwrap()), ["6", "5"]);
        let after = Some((all[1].updated_ms, all[1].number));
        let next = SessionQuery { after, ..page };
        assert_eq!(ids(&store.list_sessions(&next).await.unwrap()), ["4", "3"]);
        let running = SessionQuery { status: Some(SessionStatus::Running), ..query("needle") };
        assert_eq!(ids(&store.list_sessions(&running).await.unwrap()), ["5", "3", "1"]);
    });
}

pub(super) async fn a_search_finds_only_what_is_within_reach(harness: &mut Harness) {
    for id in ["mine-1", "theirs-1", "mine-2", "theirs-2", "mine"] {
        session_with_texts(harness.store(), id, &["a needle"]).await;
    }
    session_with_texts(harness.store(), "mine-3", &["hay"]).await;
    let rules = ["mine-*", "none", "theirs"].map(SessionPattern::new);
    assert_durable!(harness, |store| {
        let all = SessionQuery { visible: VisibleSessions::only(rules.clone()), ..query("needle") };
        let mut found = store.list_sessions(&all).await.unwrap();
        found.sort_by(|one, other| one.key.cmp(&other.key));
        assert_eq!(ids(&found), ["mine-1", "mine-2"]);
        let page = SessionQuery { limit: 1, ..all };
        let first = store.list_sessions(&page).await.unwrap();
        let after = first.last().map(|record| (record.updated_ms, record.number));
        let second = store.list_sessions(&SessionQuery { after, ..page.clone() }).await.unwrap();
        let after = second.last().map(|record| (record.updated_ms, record.number));
        assert_eq!((first.len(), second.len()), (1, 1), "a page is full while there is more");
        assert_eq!(store.list_sessions(&SessionQuery { after, ..page }).await.unwrap(), []);
    });
}

pub(super) async fn a_list_that_may_take_no_time_is_too_slow_or_whole(harness: &mut Harness) {
    for at in 0..300 {
        session_with_texts(harness.store(), &at.to_string(), &["a needle in the hay"]).await;
    }
    let hurried = SessionQuery { max_time: Some(Duration::ZERO), ..query("needle") };
    assert_durable!(harness, |store| match store.list_sessions(&hurried).await {
        Ok(found) => assert_eq!(found.len(), 300),
        Err(error) => assert!(matches!(error, Error::TooSlow), "{error}"),
    });
    assert_durable!(harness, |store| assert_eq!(find(store, "needle").await.len(), 300));
}

pub(super) async fn a_search_knows_what_was_changed(harness: &mut Harness) {
    let store = harness.store();
    let mut owner = session_with_texts(store, "s", &["before", "beside"]).await;
    let title = |text: &str| SessionPatch { title: Some(text.to_owned()), metadata: None };
    store.patch_session(owner.no, title("heading")).await.unwrap();
    assert_eq!(find(store, "heading").await, ["s"]);
    store.patch_session(owner.no, title("caption")).await.unwrap();
    store.replace_messages(owner.no, vec![message("m0", 1, 2, "afterwards")]).await.unwrap();
    owner.now_ms = 10;
    store.append(owner.reply(1, "late", "finally")).await.unwrap();
    // Events are deleted, messages stay.
    let everything = Retention { before_ms: Some(100), ..Retention::default() };
    assert_eq!(store.apply_retention(everything).await.unwrap().events, 5);
    assert_durable!(harness, |store| {
        for words in ["caption", "afterwards", "beside", "finally"] {
            assert_eq!(find(store, words).await, ["s"], "{words}");
        }
        for words in ["heading", "before"] {
            assert_eq!(find(store, words).await, [""; 0], "{words}");
        }
    });
}

pub(super) async fn a_search_does_not_find_what_was_deleted(harness: &mut Harness) {
    for id in ["gone", "again"] {
        let owner = session_with_texts(harness.store(), id, &["a secret"]).await;
        let patch = SessionPatch { title: Some("secret".to_owned()), metadata: None };
        harness.store().patch_session(owner.no, patch).await.unwrap();
        harness.store().delete_session(owner.no).await.unwrap();
    }
    session_with_texts(harness.store(), "again", &["public"]).await;
    session_with_texts(harness.store(), "later", &["public"]).await;
    assert_durable!(harness, |store| {
        assert_eq!(find(store, "secret").await, [""; 0]);
        assert_eq!(find(store, "public").await, ["again", "later"]);
    });
}
