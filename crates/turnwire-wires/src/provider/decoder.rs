//! What the decoders of all providers do alike: frames after the end, `[DONE]`, and the end of the body.

use super::ModelCall;
use crate::stream::{Decode, EventSink};
use turnwire_core::Result;

/// The part of a decoder that differs between providers. [`ProviderStream`] adds the rest.
pub(crate) trait ProviderDecoder: Send {
    /// The events of the reply.
    fn call(&self) -> &ModelCall;
    fn call_mut(&mut self) -> &mut ModelCall;

    /// Reads one frame of a reply that has not ended.
    fn read_frame(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()>;

    /// Reads `[DONE]`. Most providers do not send it, but a proxy may add it.
    fn read_done(&mut self, out: &mut EventSink<'_>) {
        let _ = out;
    }

    /// Closes what is open, because the body has ended.
    fn close_at_end(&mut self, out: &mut EventSink<'_>);
}

/// The model call of a decoder, in this field: `call` and `call_mut` of [`ProviderDecoder`].
macro_rules! model_call_in {
    ($($field:ident).+) => {
        fn call(&self) -> &ModelCall {
            &self.$($field).+
        }
        fn call_mut(&mut self) -> &mut ModelCall {
            &mut self.$($field).+
        }
    };
}
pub(crate) use model_call_in;

/// A provider's stream as a decoder.
pub(crate) struct ProviderStream<D>(pub D);

impl<D: ProviderDecoder> Decode for ProviderStream<D> {
    fn decode(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        if self.0.call().has_ended() {
            return Ok(());
        }
        if text.trim_ascii() == "[DONE]" {
            self.0.read_done(out);
            return Ok(());
        }
        self.0.read_frame(text, out)
    }

    fn end(&mut self, out: &mut EventSink<'_>) -> Result<()> {
        if !self.0.call().has_ended() {
            self.0.close_at_end(out);
            self.0.call_mut().end_of_stream(out);
        }
        Ok(())
    }

    fn find_reply_id(&self, _: &str) -> Option<String> {
        let id = self.0.call().reply_id();
        (!id.is_empty()).then(|| id.to_owned())
    }

    fn reports_truncation(&self) -> bool {
        true
    }
}
