//! A person at a terminal.

use crate::harness::TestHome;
use crate::tmux::{Terminal, is_missing};

const ASKS: &str = "Allow execute_trade? [y]es [n]o [a]lways [e]dit:";
const BOLD: u8 = 1;
const DIM: u8 = 2;
const STORE: [&str; 3] = ["chat", "--store", "sqlite:talk.db"];

#[test]
fn a_conversation_is_shown_remembered_and_resumed() {
    if is_missing() {
        return;
    }
    let world = TestHome::new();
    let terminal = Terminal::start(&world, &[], &STORE);
    terminal.wait_for_prompt("›");
    terminal.type_line("hello");
    let text = terminal.wait_for("tokens in", 1);
    for part in ["✻ No word here", "What you said", "▏ hello", "I am a demo:", "• team asks"]
    {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let styled = terminal.styled_text();
    assert!(terminal.has_style("What you said", BOLD), "a heading is bold:\n{styled}");
    assert!(!terminal.has_style("I am a demo", BOLD), "a sentence is not:\n{styled}");
    assert!(terminal.has_style("No word here", DIM), "thinking is dim:\n{styled}");
    assert!(!terminal.has_style("I am a demo", DIM), "the answer is not:\n{styled}");

    // y: yes.
    terminal.wait_for_prompt("›");
    terminal.type_line("approve");
    terminal.wait_for_prompt(ASKS);
    terminal.type_line("y");
    terminal.wait_for("Done. Bought 100 ACME", 1);

    // The arrow key brings back what was written; e: edit.
    terminal.wait_for_prompt("›");
    terminal.press_key("Up");
    terminal.wait_for_prompt("› approve");
    terminal.press_key("Enter");
    terminal.wait_for_prompt(ASKS);
    terminal.type_line("e");
    terminal.wait_for_prompt("Input: {\"symbol\":\"ACME\",\"quantity\":100}");
    for _ in 0..4 {
        terminal.press_key("BSpace");
    }
    terminal.type_line("7");
    terminal.wait_for("That cannot be used", 1);
    terminal.type_line("}");
    terminal.wait_for("with {\"symbol\":\"ACME\",\"quantity\":7}", 1);
    terminal.wait_for("Done. Bought 7 ACME", 1);

    // n: no.
    terminal.wait_for_prompt("›");
    terminal.type_line("approve");
    terminal.wait_for_prompt(ASKS);
    terminal.type_line("n");
    terminal.wait_for("You said no", 1);

    // A tool of the client, a team, an image.
    terminal.wait_for_prompt("›");
    terminal.type_line("browser");
    terminal.wait_for_prompt("What did open_page give? (empty: nobody executes it)");
    terminal.type_line("a page about herons");
    terminal.wait_for("▏ a page about herons", 1);
    terminal.wait_for_prompt("›");
    terminal.type_line("/nonsense");
    terminal.wait_for("There is no /nonsense", 1);
    terminal.type_line("/help");
    terminal.wait_for("/sessions   the sessions", 1);
    terminal.type_line("fail");
    terminal.wait_for("✗ The reply failed (upstream)", 1);
    terminal.wait_for_prompt("›");
    terminal.type_line("/retry");
    terminal.wait_for("✗ The reply failed (upstream)", 2);

    // Leaving in the middle of a question; --resume asks it again.
    terminal.wait_for_prompt("›");
    terminal.type_line("approve");
    terminal.wait_for_prompt(ASKS);
    terminal.press_key("C-d");
    terminal.wait_for("left with 0", 1);
    drop(terminal);
    let terminal = Terminal::start(&world, &[], &[&STORE[..], &["--resume"]].concat());
    terminal.wait_for_prompt(ASKS);
    let text = terminal.screen_text();
    assert!(text.contains("› approve") && text.contains("The reply failed"), "{text}");
    terminal.type_line("y");
    terminal.wait_for("Done. Bought 100 ACME", 1);
    terminal.wait_for_prompt("›");
    // What was written the last time is there, too.
    terminal.press_key("Up");
    terminal.wait_for_prompt("› approve");
    terminal.press_key("C-u");
    terminal.type_line("/quit");
    terminal.wait_for("left with 0", 1);
}

#[test]
fn ctrl_c_stops_the_answer_and_a_second_one_leaves() {
    if is_missing() {
        return;
    }
    let mut world = TestHome::new();
    world.rate = "50";
    let terminal = Terminal::start(&world, &[], &STORE);
    terminal.wait_for_prompt("›");
    terminal.type_line("long 100000");
    // It is seen while it comes: it would take half an hour.
    terminal.wait_for("0000012", 1);
    terminal.press_key("C-c");
    terminal.wait_for("■ stopped", 1);
    terminal.wait_for_prompt("›");
    // It was the reply that was stopped, not the program.
    terminal.type_line("weather");
    terminal.wait_for("It is 18 °C in Paris", 1);
    terminal.wait_for_prompt("›");
    terminal.type_line("long 100000");
    terminal.wait_for("0000012", 2);
    terminal.press_key("C-c");
    terminal.wait_for("■ stopped", 2);
    terminal.wait_for_prompt("›");
    terminal.press_key("C-c");
    terminal.wait_for("left with 0", 1);
}

#[test]
fn a_lost_server_is_said_and_the_answer_goes_on_when_it_is_back() {
    if is_missing() {
        return;
    }
    let mut world = TestHome::new();
    world.rate = "100";
    let server = world.serve();
    let address = server.address.clone();
    let terminal = Terminal::start(&world, &[], &["chat", "--url", &server.url]);
    terminal.wait_for_prompt("›");
    terminal.type_line("long 300");
    terminal.wait_for("0000030", 1);
    server.kill();
    terminal.wait_for("! connection lost", 1);
    let _again = world.serve_at(&address);
    terminal.wait_for("✓ connected again", 1);
    let text = terminal.wait_for("tokens in", 1);
    for n in 1..=300 {
        assert_eq!(text.matches(&format!("{n:07}")).count(), 1, "{n}:\n{text}");
    }
    terminal.wait_for_prompt("›");
    terminal.press_key("C-d");
    terminal.wait_for("left with 0", 1);
}

#[test]
fn a_question_survives_its_server_and_one_of_another_client_is_asked() {
    if is_missing() {
        return;
    }
    let world = TestHome::new();
    let server = world.serve();
    let address = server.address.clone();
    server.post("/v1/sessions", "{\"id\": \"s\"}");
    server.post("/v1/sessions/s/messages", "{\"content\": \"approve\"}");
    let terminal = Terminal::start(&world, &[], &["chat", "--url", &server.url, "--session", "s"]);
    terminal.wait_for_prompt("›");
    // A reply waits already: it is shown instead, and what was written can be sent again.
    terminal.type_line("weather");
    terminal.wait_for_prompt(ASKS);
    server.kill();
    let again = world.serve_at(&address);
    terminal.type_line("a");
    terminal.wait_for("1: Always allow `execute_trade` for ACME", 1);
    terminal.type_line("1");
    terminal.wait_for("was allowed, always", 1);
    terminal.wait_for("Done. Bought 100 ACME", 1);
    terminal.wait_for_prompt("› weather");
    terminal.press_key("Enter");
    terminal.wait_for("It is 18 °C in Paris", 1);
    assert!(again.get("/v1/sessions/s").contains("\"status\":\"idle\""));
    // Somebody else answers before we do.
    terminal.wait_for_prompt("›");
    terminal.type_line("parallel");
    terminal.wait_for_prompt(ASKS);
    again.post(
        "/v1/sessions/s/events",
        "{\"type\": \"USER_INTERRUPT\", \"id\": \"other\", \"reply_id\": \"\"}",
    );
    terminal.type_line("y");
    terminal.wait_for("answered already, elsewhere", 1);
    terminal.wait_for("■ stopped", 1);
    terminal.wait_for_prompt("›");
    terminal.type_line("/sessions");
    terminal.wait_for("* s ", 1);
    terminal.type_line("/new");
    terminal.wait_for("A new session:", 1);
    terminal.type_line("/quit");
    terminal.wait_for("left with 0", 1);
}

#[test]
fn what_is_piped_in_is_answered_plainly_and_what_is_said_at_once_with_style() {
    if is_missing() {
        return;
    }
    let world = TestHome::new();
    let terminal = Terminal::start(&world, &[("CHAT_SAYS", "hello")], &STORE);
    terminal.wait_for("left with 0", 1);
    let styled = terminal.styled_text();
    assert!(styled.contains("I am a **demo**") && !styled.contains('\u{1b}'), "{styled:?}");
    // One message, and the question that comes with it.
    let terminal = Terminal::start(&world, &[], &[&STORE[..], &["please approve"]].concat());
    terminal.wait_for_prompt(ASKS);
    terminal.type_line("y");
    terminal.wait_for("Done. Bought 100 ACME", 1);
    terminal.wait_for("left with 0", 1);
    assert!(terminal.styled_text().contains("\u{1b}["));
}

#[test]
fn without_colours_there_are_none() {
    if is_missing() {
        return;
    }
    let world = TestHome::new();
    for env in [("NO_COLOR", "1"), ("CHAT_TERM", "dumb")] {
        let terminal = Terminal::start(&world, &[env], &STORE);
        terminal.wait_for("session", 1);
        terminal.type_line("weather");
        terminal.wait_for("tokens in", 1);
        let styled = terminal.styled_text();
        assert!(styled.contains("It is 18 °C in Paris"), "{env:?}:\n{styled}");
        assert!(!styled.contains('\u{1b}'), "{env:?}:\n{styled:?}");
        // A terminal that can do nothing sends a signal, and no key.
        let key = if env.0 == "NO_COLOR" { "C-d" } else { "C-c" };
        terminal.press_key(key);
        terminal.wait_for("left with 0", 1);
    }
}
