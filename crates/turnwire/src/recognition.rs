//! Notices that an input is not of the wire that was named, and guesses which wire it may be. `fold` and `convert` use it.

use crate::input::CommandError;
use turnwire_core::{EventKind, event_kinds};
use turnwire_wires::{Decoded, DecoderOptions, Wire};

/// How much of the input is kept to guess its wire.
pub(crate) const SAMPLE_BYTES: usize = 64 * 1024;

/// What the events of an input say about its wire.
pub(crate) struct Recognition {
    wire: &'static Wire,
    sample: Vec<u8>,
    counts: FrameCounts,
}

#[derive(Default)]
struct FrameCounts {
    recognised: u64,
    unknown: u64,
}

impl FrameCounts {
    fn add(&mut self, wire: &Wire, decoded: &Decoded<'_>) {
        match decoded.event.as_ref().map(|event| &event.kind) {
            Err(error) if is_incomplete(&error.to_string()) => self.recognised += 1,
            Err(_) | Ok(EventKind::Unknown(_)) => self.unknown += 1,
            // A decoder turns frames that it does not know into events with its own name.
            Ok(EventKind::Custom(custom)) if custom.name == wire.name => self.unknown += 1,
            // Decoders of model providers begin a reply with whatever comes first.
            Ok(EventKind::ReplyStart(_) | EventKind::ModelCallStart(_)) => {}
            Ok(
                event_kinds!(
                    ReplyEnd ModelCallEnd content tool pending_call notice Custom Message Supersede Reset
                ),
            ) => self.recognised += 1,
        }
    }
}

/// Whether an error is about an event that lacks a field: it is of the wire all the same.
fn is_incomplete(error: &str) -> bool {
    error.contains(" has no `") && !error.contains(" has no `type`")
}

impl Recognition {
    pub(crate) fn new(wire: &'static Wire) -> Self {
        Self { wire, sample: Vec::new(), counts: FrameCounts::default() }
    }

    /// Takes the next bytes of the input.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        let room = SAMPLE_BYTES - self.sample.len();
        self.sample.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    /// Takes an event that the decoder found in the bytes; not those that it adds at the end.
    pub(crate) fn push_decoded(&mut self, decoded: &Decoded<'_>) {
        self.counts.add(self.wire, decoded);
    }

    /// Whether there were frames, and none was of the wire.
    pub(crate) fn has_failed(&self) -> bool {
        self.counts.unknown > 0 && self.counts.recognised == 0
    }

    /// The error for an input in which nothing was recognised; `option` names the wire on the command line.
    pub(crate) fn error(&self, option: &str) -> CommandError {
        let message = format!("nothing in the input was recognised as {}", self.wire.name);
        let hint = match &*self.likely_wires() {
            [] => "`turnwire wires` lists the wires".to_owned(),
            names => {
                let options: Vec<String> =
                    names.iter().map(|name| format!("{option} {name}")).collect();
                format!("it looks like {}: use {}", names.join(" or "), options.join(" or "))
            }
        };
        CommandError::new(message, hint)
    }

    /// The wires that know the most of the sample.
    fn likely_wires(&self) -> Vec<&'static str> {
        let mut best = Vec::new();
        let mut fewest_unknown = u64::MAX;
        for wire in Wire::all().filter(|wire| wire.can_decode()) {
            let Ok(mut decoder) = wire.decoder(&DecoderOptions::default()) else { continue };
            let mut counts = FrameCounts::default();
            decoder.feed(&self.sample, &mut |decoded| counts.add(wire, &decoded));
            if counts.recognised == 0 || counts.unknown > fewest_unknown {
                continue;
            }
            if counts.unknown < fewest_unknown {
                best.clear();
            }
            fewest_unknown = counts.unknown;
            best.push(wire.name);
        }
        best
    }
}
