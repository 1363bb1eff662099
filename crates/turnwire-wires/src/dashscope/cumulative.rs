//! Finds what is new in a frame. Without `incremental_output` each frame repeats all the text so far.
//!
//! Frames do not say which mode they are in, so the first ones must show it. If the second frame does not begin with the
//! first, the stream is incremental. If it does, and the first is long enough, the stream is cumulative. Otherwise the second
//! frame is held back until the third decides. At most two frames are kept, and only a length once the mode is known.

/// Whether frames repeat the earlier text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Unknown,
    Incremental,
    Cumulative,
}

/// A repetition of this many bytes is no coincidence.
const CERTAIN_LENGTH: usize = 16;

/// One text of a stream: the answer, the reasoning, or the arguments of a call.
#[derive(Debug, Default)]
pub(super) struct CumulativeText {
    /// The length of what was emitted.
    len: usize,
    /// The first frame, while the mode is unknown.
    first: String,
    /// A frame that begins with the first one, but may still be new text.
    held: String,
}

impl CumulativeText {
    /// Takes the text of the next frame, and emits what is new.
    pub(super) fn push_frame(&mut self, mode: &mut Mode, text: &str, mut new: impl FnMut(&str)) {
        if text.is_empty() {
            return;
        }
        if *mode == Mode::Unknown && self.len > 0 {
            let before = if self.held.is_empty() { &self.first } else { &self.held };
            if !text.starts_with(before.as_str()) {
                *mode = Mode::Incremental;
            } else if before.len() >= CERTAIN_LENGTH || !self.held.is_empty() {
                *mode = Mode::Cumulative;
            } else {
                text.clone_into(&mut self.held);
                return;
            }
        }
        match mode {
            Mode::Unknown => {
                text.clone_into(&mut self.first);
                self.len = text.len();
                new(text);
            }
            Mode::Incremental => {
                self.first = String::new();
                let held = std::mem::take(&mut self.held);
                if !held.is_empty() {
                    new(&held);
                }
                new(text);
            }
            Mode::Cumulative => {
                (self.first, self.held) = (String::new(), String::new());
                self.pass_rest(text, new);
            }
        }
    }

    /// Emits what was held back.
    pub(super) fn flush(&mut self, mode: Mode, mut new: impl FnMut(&str)) {
        let held = std::mem::take(&mut self.held);
        match mode {
            _ if held.is_empty() => {}
            Mode::Incremental => new(&held),
            Mode::Unknown | Mode::Cumulative => {
                self.pass_rest(&held, new);
                self.first = held;
            }
        }
    }

    /// Emits the text after what was emitted before.
    fn pass_rest(&mut self, text: &str, mut new: impl FnMut(&str)) {
        if let Some(rest) = text.get(self.len..)
            && !rest.is_empty()
        {
            self.len = text.len();
            new(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(frames: &[&str]) -> (Mode, String) {
        let (mut mode, mut text, mut all) =
            (Mode::default(), CumulativeText::default(), String::new());
        for frame in frames {
            text.push_frame(&mut mode, frame, |new| {
                assert!(!new.is_empty());
                all.push_str(new);
            });
        }
        text.flush(mode, |new| all.push_str(new));
        (mode, all)
    }

    #[test]
    fn frames_that_repeat_the_earlier_text_are_cumulative() {
        for frames in [
            &["He", "Hello", "Hello, wörld", "Hello, wörld"][..],
            &["", "A long enough beginning", "A long enough beginning, and more"],
            &["é", "é", "éa", "éa"],
        ] {
            assert_eq!(new(frames), (Mode::Cumulative, (*frames.last().unwrap()).to_owned()));
        }
    }

    #[test]
    fn frames_that_continue_the_text_are_incremental() {
        for frames in [
            &["He", "llo", "", ", wörld"][..],
            &["1", "10", " is", " more"],
            &["ha", "ha", "!"],
            &["a", "ab", "a", "abab"],
        ] {
            assert_eq!(new(frames), (Mode::Incremental, frames.concat()));
        }
    }

    #[test]
    fn an_undecided_stream_counts_as_cumulative() {
        assert_eq!(new(&["Hi", "Hi!"]), (Mode::Unknown, "Hi!".to_owned()));
    }

    #[test]
    fn a_text_that_shrinks_or_is_cut_inside_a_character_does_not_panic() {
        let frames =
            ["a long beginning here", "a long beginning here é", "a", "a long beginning here"];
        assert_eq!(new(&frames).1, "a long beginning here é");
        new(&["a long beginning herex", "a long beginning herexy", "éééééééééééééééé"]);
    }
}
