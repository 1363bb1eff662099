//! Replies that an agent elsewhere may publish. The cluster tests use them, too.

use turnwire_core::EventKind;
use turnwire_testkit::{Rng, random_reply};

/// Id and JSON of each event of a finished random reply. The ids contain the position.
pub fn published_reply(rng: &mut Rng, id: &str) -> Vec<(String, String)> {
    let made = loop {
        let made = random_reply(rng, id);
        let can_be_sent = made.events.iter().all(|event| {
            !matches!(event.kind, EventKind::UserConfirmResult(_) | EventKind::UserInterrupt(_))
        });
        if can_be_sent && made.message.finished_at().is_some() {
            break made;
        }
    };
    let events = made.events.into_iter().enumerate().map(|(at, mut event)| {
        let id = format!("{id}-{at}");
        event.id = id.clone().into();
        (id, event.to_json())
    });
    events.collect()
}
