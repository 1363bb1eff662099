//! Law 6: the same on every wire.

use turnwire_testkit::{check, values};
use turnwire_wires::Wire;

#[test]
fn law_6_same_on_every_wire_for_events() {
    check("law_6_same_on_every_wire_for_events", 5000, |rng| {
        let event = values::event(rng);
        for wire in Wire::ALL {
            let line = wire.encode_event(&event);
            assert!(!line.contains('\n'));
            assert_eq!(wire.decode_event(&line).unwrap(), event, "{}: {line}", wire.name());
        }
    });
}

#[test]
fn law_6_same_on_every_wire_for_messages() {
    check("law_6_same_on_every_wire_for_messages", 5000, |rng| {
        let msg = values::message(rng);
        for wire in Wire::ALL {
            let line = wire.encode_message(&msg);
            assert_eq!(wire.decode_message(&line).unwrap(), msg, "{}: {line}", wire.name());
        }
    });
}

#[test]
fn a_field_of_somebody_elses_that_has_the_name_of_ours_survives() {
    let line = r#"{"type":"USER_INTERRUPT","reply_id":"r","turnwire":1}"#;
    let event = Wire::Agentscope.decode_event(line).unwrap();
    assert_eq!(event.rest.get::<u8>("turnwire").unwrap(), Some(1));
    let again = Wire::Agentscope.encode_event(&event);
    assert_eq!(Wire::Agentscope.decode_event(&again).unwrap(), event);
}

#[test]
fn a_custom_event_that_looks_like_one_of_ours_comes_back_as_it_was() {
    let line =
        r#"{"type":"CUSTOM","name":"supersede","value":{"type":"SUPERSEDE","message_ids":["m"]}}"#;
    let event = Wire::Turnwire.decode_event(line).unwrap();
    let written = Wire::Agentscope.encode_event(&event);
    assert_eq!(Wire::Agentscope.decode_event(&written).unwrap(), event);
}

#[test]
fn a_custom_event_of_somebody_elses_stays_one() {
    for line in [
        r#"{"type":"CUSTOM","name":"block","value":{"type":"CUSTOM","name":"x"}}"#,
        r#"{"type":"CUSTOM","name":"message","value":{"type":"SUPERSEDE","message_ids":[]}}"#,
        r#"{"type":"CUSTOM","name":"reset","value":{}}"#,
    ] {
        let event = Wire::Agentscope.decode_event(line).unwrap();
        assert_eq!(event.kind.type_name(), "CUSTOM", "{line}");
    }
}
