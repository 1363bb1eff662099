//! A user at a terminal.

use crate::harness::TestHome;
use crate::tmux::{Terminal, skip_without_tmux};

const ASKS: &str = "Allow execute_trade? [y]es [n]o [a]lways [e]dit:";
const BOLD: u8 = 1;
const DIM: u8 = 2;
const YELLOW: u8 = 33;
const MAGENTA: u8 = 35;
const STORE: [&str; 3] = ["chat", "--store", "sqlite:talk.db"];

#[test]
fn a_conversation_is_shown_remembered_and_resumed() {
    if skip_without_tmux() {
        return;
    }
    let home = TestHome::new();
    let terminal = Terminal::start(&home, &[], &STORE);
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
    terminal.press_key("y");
    terminal.wait_for("Done. Bought 100 ACME", 1);

    // The arrow key recalls the last input; e: edit.
    terminal.wait_for_prompt("›");
    terminal.press_key("Up");
    terminal.wait_for_prompt("› approve");
    terminal.press_key("Enter");
    terminal.wait_for_prompt(ASKS);
    terminal.press_key("e");
    terminal.wait_for_prompt("Input: {\"symbol\":\"ACME\",\"quantity\":100}");
    for _ in 0..4 {
        terminal.press_key("BSpace");
    }
    terminal.type_line("7");
    terminal.wait_for("Invalid input", 1);
    terminal.type_line("}");
    terminal.wait_for("with {\"symbol\":\"ACME\",\"quantity\":7}", 1);
    terminal.wait_for("Done. Bought 7 ACME", 1);

    // n: no.
    terminal.wait_for_prompt("›");
    terminal.type_line("approve");
    terminal.wait_for_prompt(ASKS);
    terminal.press_key("n");
    terminal.wait_for("You said no", 1);

    // A client-side tool, sub-agents, an image.
    terminal.wait_for_prompt("›");
    terminal.type_line("browser");
    terminal.wait_for_prompt("Result of open_page (empty: not executed):");
    terminal.type_line("a page about herons");
    terminal.wait_for("▏ a page about herons", 1);
    terminal.wait_for_prompt("›");
    terminal.type_line("/nonsense");
    terminal.wait_for("Unknown command /nonsense", 1);
    terminal.type_line("/help");
    terminal.wait_for("/sessions   list the latest", 1);
    terminal.type_line("fail");
    terminal.wait_for("✗ The reply failed (upstream)", 1);
    terminal.wait_for_prompt("›");
    terminal.type_line("/retry");
    terminal.wait_for("✗ The reply failed (upstream)", 2);

    // Quitting during a prompt; --resume asks again.
    terminal.wait_for_prompt("›");
    terminal.type_line("approve");
    terminal.wait_for_prompt(ASKS);
    terminal.press_key("C-d");
    terminal.wait_for("left with 0", 1);
    drop(terminal);
    let terminal = Terminal::start(&home, &[], &[&STORE[..], &["--resume"]].concat());
    terminal.wait_for_prompt(ASKS);
    let text = terminal.screen_text();
    assert!(text.contains("› approve") && text.contains("The reply failed"), "{text}");
    terminal.press_key("y");
    terminal.wait_for("Done. Bought 100 ACME", 1);
    terminal.wait_for_prompt("›");
    // The history of the last run is there, too.
    terminal.press_key("Up");
    terminal.wait_for_prompt("› approve");
    terminal.press_key("C-u");
    terminal.type_line("/quit");
    terminal.wait_for("left with 0", 1);
}

#[test]
fn ctrl_c_stops_the_reply_and_a_second_one_quits() {
    if skip_without_tmux() {
        return;
    }
    let mut home = TestHome::new();
    home.rate = "50";
    let terminal = Terminal::start(&home, &[], &STORE);
    terminal.wait_for_prompt("›");
    terminal.type_line("long 100000");
    // Shown while it arrives: the whole reply would take half an hour.
    terminal.wait_for("0000012", 1);
    terminal.press_key("C-c");
    terminal.wait_for("■ stopped", 1);
    terminal.wait_for_prompt("›");
    // The reply was stopped, not the program.
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
fn a_lost_server_is_reported_and_the_reply_continues_after_it_returns() {
    if skip_without_tmux() {
        return;
    }
    let mut home = TestHome::new();
    home.rate = "100";
    let server = home.serve();
    let address = server.address.clone();
    let terminal = Terminal::start(&home, &[], &["chat", "--url", &server.url]);
    terminal.wait_for_prompt("›");
    terminal.type_line("long 300");
    terminal.wait_for("0000030", 1);
    server.kill();
    terminal.wait_for("! connection lost", 1);
    let _again = home.serve_at(&address);
    terminal.wait_for("✓ reconnected", 1);
    let text = terminal.wait_for("tokens in", 1);
    for n in 1..=300 {
        assert_eq!(text.matches(&format!("{n:07}")).count(), 1, "{n}:\n{text}");
    }
    terminal.wait_for_prompt("›");
    terminal.press_key("C-d");
    terminal.wait_for("left with 0", 1);
}

#[test]
fn a_pending_approval_survives_a_restart_and_another_clients_answer_is_reported() {
    if skip_without_tmux() {
        return;
    }
    let home = TestHome::new();
    let server = home.serve();
    let address = server.address.clone();
    server.post("/v1/sessions", "{\"id\": \"s\"}");
    server.post("/v1/sessions/s/messages", "{\"content\": \"approve\"}");
    let terminal = Terminal::start(&home, &[], &["chat", "--url", &server.url, "--session", "s"]);
    terminal.wait_for_prompt("›");
    // A reply is already waiting: it is shown, and the input can be sent again.
    terminal.type_line("weather");
    terminal.wait_for_prompt(ASKS);
    server.kill();
    let again = home.serve_at(&address);
    terminal.press_key("a");
    terminal.wait_for("1: Always allow `execute_trade` with exactly symbol = \"ACME\"", 1);
    terminal.press_key("1");
    terminal.wait_for("was allowed, always", 1);
    terminal.wait_for("Done. Bought 100 ACME", 1);
    terminal.wait_for_prompt("› weather");
    terminal.press_key("Enter");
    terminal.wait_for("It is 18 °C in Paris", 1);
    assert!(again.get("/v1/sessions/s").contains("\"status\":\"idle\""));
    // Another client answers first, in a session without the rule.
    terminal.wait_for_prompt("›");
    terminal.type_line("/quit");
    terminal.wait_for("left with 0", 1);
    again.post("/v1/sessions", "{\"id\": \"t\"}");
    let terminal = Terminal::start(&home, &[], &["chat", "--url", &again.url, "--session", "t"]);
    terminal.wait_for_prompt("›");
    terminal.type_line("parallel");
    terminal.wait_for_prompt(ASKS);
    again.post(
        "/v1/sessions/t/events",
        "{\"type\": \"USER_INTERRUPT\", \"id\": \"other\", \"reply_id\": \"\"}",
    );
    terminal.press_key("y");
    terminal.wait_for("another client has already answered", 1);
    terminal.wait_for("■ stopped", 1);
    terminal.wait_for_prompt("›");
    terminal.type_line("/sessions");
    terminal.wait_for("* t ", 1);
    terminal.type_line("/new");
    terminal.wait_for("New session:", 1);
    terminal.type_line("/quit");
    terminal.wait_for("left with 0", 1);
}

#[test]
fn piped_input_gets_plain_text_and_an_argument_at_a_terminal_gets_styles() {
    if skip_without_tmux() {
        return;
    }
    let home = TestHome::new();
    let terminal = Terminal::start(&home, &[("CHAT_SAYS", "hello")], &STORE);
    terminal.wait_for("left with 0", 1);
    let styled = terminal.styled_text();
    assert!(styled.contains("I am a **demo**") && !styled.contains('\u{1b}'), "{styled:?}");
    // One message, and its prompt.
    let terminal = Terminal::start(&home, &[], &[&STORE[..], &["please approve"]].concat());
    terminal.wait_for_prompt(ASKS);
    terminal.press_key("y");
    terminal.wait_for("Done. Bought 100 ACME", 1);
    terminal.wait_for("left with 0", 1);
    assert!(terminal.styled_text().contains("\u{1b}["));
}

#[test]
fn no_color_and_dumb_terminals_get_no_styles() {
    if skip_without_tmux() {
        return;
    }
    let home = TestHome::new();
    for env in [("NO_COLOR", "1"), ("CHAT_TERM", "dumb")] {
        let terminal = Terminal::start(&home, &[env], &STORE);
        terminal.wait_for("session", 1);
        terminal.type_line("weather");
        terminal.wait_for("tokens in", 1);
        let styled = terminal.styled_text();
        assert!(styled.contains("It is 18 °C in Paris"), "{env:?}:\n{styled}");
        assert!(!styled.contains('\u{1b}'), "{env:?}:\n{styled:?}");
        // A dumb terminal sends a signal instead of a key.
        let key = if env.0 == "NO_COLOR" { "C-d" } else { "C-c" };
        terminal.press_key(key);
        terminal.wait_for("left with 0", 1);
    }
}

#[test]
fn keys_that_were_not_meant_for_a_question_decide_nothing() {
    if skip_without_tmux() {
        return;
    }
    let mut home = TestHome::new();
    home.rate = "5";
    let terminal = Terminal::start(&home, &[], &STORE);
    terminal.wait_for_prompt("›");
    terminal.type_line("approve");
    // Typed before the question, and keys that are no answer.
    terminal.press_key("y");
    terminal.press_key("a");
    terminal.wait_for_prompt(ASKS);
    terminal.press_key("Up");
    terminal.wait_for("e: edit its input first", 1);
    terminal.wait_for_prompt(ASKS);
    terminal.press_key("Enter");
    terminal.wait_for("e: edit its input first", 2);
    // An Enter after `e` changes nothing, and asks again.
    terminal.wait_for_prompt(ASKS);
    terminal.press_key("e");
    terminal.wait_for_prompt("Input: {\"symbol\":\"ACME\",\"quantity\":100}");
    terminal.press_key("Enter");
    terminal.wait_for("The input is unchanged", 1);
    terminal.wait_for_prompt(ASKS);
    terminal.press_key("C-c");
    terminal.wait_for("■ stopped", 1);
    assert!(!terminal.screen_text().contains("was allowed"), "{}", terminal.screen_text());
}

#[test]
fn the_agent_is_switched_in_a_new_session() {
    if skip_without_tmux() {
        return;
    }
    let home = TestHome::new();
    let settings = "[agents.friday]\nmodel = \"demo\"\n\n[agents.robin]\nmodel = \"demo\"\n";
    std::fs::write(home.path().join("turnwire.toml"), settings).unwrap();
    let terminal = Terminal::start(&home, &[], &[&STORE[..], &["--agent", "robin"]].concat());
    terminal.wait_for_prompt("›");
    terminal.type_line("/agent");
    let text = terminal.wait_for("/agent NAME starts", 1);
    assert!(text.contains("* robin") && text.contains("  friday"), "{text}");
    terminal.type_line("/agent nobody");
    terminal.wait_for("✗ no such agent", 1);
    terminal.wait_for_prompt("›");
    terminal.type_line("/agent friday");
    terminal.wait_for("New session with the agent friday", 1);
    terminal.type_line("weather");
    terminal.wait_for("It is 18 °C in Paris", 1);
    terminal.wait_for_prompt("›");
    terminal.type_line("/agent friday");
    terminal.wait_for("has the agent friday already", 1);
    terminal.type_line("/quit");
    terminal.wait_for("left with 0", 1);
}

#[test]
fn files_are_attached_to_the_next_message() {
    if skip_without_tmux() {
        return;
    }
    let home = TestHome::new();
    let server = home.serve();
    let png = b"\x89PNG\r\n\x1a\n0000";
    std::fs::write(home.path().join("a photo.png"), png).unwrap();
    std::fs::write(home.path().join("notes.txt"), "one\n").unwrap();
    std::fs::write(home.path().join("a.out"), b"\x7fELF\0").unwrap();
    let args = ["chat", "--url", &server.url, "--session", "s"];
    let terminal = Terminal::start(&home, &[], &args);
    terminal.wait_for_prompt("›");
    terminal.type_line("/attach missing.png 'a photo.png' a.out notes.txt");
    let text = terminal.wait_for("notes.txt (text/plain, 4 B)", 1);
    for part in [
        "✗ cannot attach missing.png: No such file",
        "attached to the next message: a photo.png (image/png, 12 B)",
        "✗ cannot attach a.out: files of the type application/octet-stream",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    terminal.wait_for_prompt("›");
    terminal.type_line("weather");
    terminal.wait_for("It is 18 °C in Paris", 1);
    let messages = server.get("/v1/sessions/s/messages");
    for part in ["\"text\":\"weather\"", "\"name\":\"a photo.png\"", "\"name\":\"notes.txt\""] {
        assert!(messages.contains(part), "{part}: {messages}");
    }
    // Only to that message.
    terminal.wait_for_prompt("›");
    terminal.type_line("/attach");
    terminal.wait_for("No files are attached", 1);
    terminal.type_line("/quit");
    terminal.wait_for("left with 0", 1);
}

#[test]
fn text_wraps_at_the_new_width_after_a_resize() {
    if skip_without_tmux() {
        return;
    }
    let home = TestHome::new();
    let terminal = Terminal::start(&home, &[], &STORE);
    terminal.wait_for_prompt("›");
    terminal.resize(40);
    terminal.type_line("hello");
    terminal.wait_for("tokens in", 1);
    // A line that the terminal itself had to break would be longer.
    let text = terminal.joined_text();
    let reply = text.split("What you said").nth(1).unwrap();
    let widest = reply.lines().map(|line| line.trim_end().chars().count()).max().unwrap();
    assert!((30..=40).contains(&widest), "{widest}:\n{reply}");
    terminal.wait_for_prompt("›");
    // During a question, too.
    terminal.type_line("approve");
    terminal.wait_for("[e]dit:", 1);
    terminal.resize(70);
    terminal.press_key("y");
    terminal.wait_for("Done. Bought 100 ACME", 1);
    terminal.wait_for_prompt("›");
    terminal.type_line("/quit");
    terminal.wait_for("left with 0", 1);
}

#[test]
fn code_has_colours_unless_no_color_is_set() {
    if skip_without_tmux() {
        return;
    }
    let home = TestHome::new();
    let server = home.serve();
    server.post("/v1/sessions", "{\"id\": \"s\", \"agent\": \"external\"}");
    server.post("/v1/sessions/s/messages", "{\"content\": \"hi\"}");
    let text = "```rust\\nlet answer = 42; // why\\n```";
    let reply = format!(
        "{{\"id\":\"1\",\"reply_id\":\"r\",\"type\":\"REPLY_START\",\"name\":\"x\"}}\n\
         {{\"id\":\"2\",\"reply_id\":\"r\",\"type\":\"BLOCK\",\"block\":{{\"type\":\"text\",\"id\":\"b\",\"text\":\"{text}\"}}}}\n\
         {{\"id\":\"3\",\"reply_id\":\"r\",\"type\":\"REPLY_END\"}}"
    );
    let published = server.publish("s", &reply);
    assert!(published.contains("\"stored\":3"), "{published}");
    let args = ["chat", "--url", &server.url, "--session", "s", "--resume"];
    let terminal = Terminal::start(&home, &[], &args);
    terminal.wait_for("answer = 42; // why", 1);
    terminal.wait_for_prompt("›");
    for (part, colour) in [("let", MAGENTA), ("42", YELLOW), ("// why", DIM)] {
        assert!(terminal.has_style(part, colour), "{part}: {:?}", terminal.styled_text());
    }
    drop(terminal);
    let terminal = Terminal::start(&home, &[("NO_COLOR", "1")], &args);
    terminal.wait_for("answer = 42; // why", 1);
    assert!(!terminal.styled_text().contains('\u{1b}'), "{:?}", terminal.styled_text());
}
