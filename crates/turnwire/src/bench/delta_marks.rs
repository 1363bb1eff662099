//! Finds the marks of deltas in received bytes, wherever they are split.
//!
//! A server may merge waiting deltas: their texts, and so their marks, then follow one another.
//! Nothing else of an event has to be read, which lets one thread follow a million events per
//! second.

use super::event_script::MARK_DIGITS;
use memchr::memchr;

/// The scanner of one subscriber.
#[derive(Debug)]
pub(super) struct MarkScanner {
    /// Digits of a mark.
    digits: u8,
    /// A mark at the end of the last bytes: count and value of its digits.
    partial: Option<(u8, u64)>,
}

impl Default for MarkScanner {
    fn default() -> Self {
        Self::with_digits(MARK_DIGITS)
    }
}

impl MarkScanner {
    /// A scanner for marks with this many digits.
    pub(super) fn with_digits(digits: u8) -> Self {
        Self { digits, partial: None }
    }

    /// Scans bytes, and passes the number of each complete mark to `each`.
    pub(super) fn feed(&mut self, mut bytes: &[u8], each: &mut impl FnMut(u64)) {
        loop {
            let (mut digits, mut value) = match self.partial.take() {
                Some(cut) => cut,
                None => match memchr(b'#', bytes) {
                    Some(at) => {
                        bytes = bytes.get(at + 1..).unwrap_or_default();
                        (0, 0)
                    }
                    None => return,
                },
            };
            while digits < self.digits {
                let Some((&byte, rest)) = bytes.split_first() else {
                    self.partial = Some((digits, value));
                    return;
                };
                if !byte.is_ascii_digit() {
                    break;
                }
                value = value * 10 + u64::from(byte - b'0');
                digits += 1;
                bytes = rest;
            }
            if digits == self.digits {
                each(value);
            }
        }
    }
}

/// Checks that marks arrive in order, each once.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct OrderCheck {
    pub(super) first: Option<u64>,
    pub(super) next: u64,
    /// How many were not the expected one.
    pub(super) wrong: u64,
}

impl OrderCheck {
    pub(super) fn record(&mut self, mark: u64) {
        match self.first {
            None => self.first = Some(mark),
            Some(_) if mark == self.next => {}
            Some(_) => self.wrong += 1,
        }
        self.next = mark + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] =
        br##"data: {"delta":"#0000001"} data: {"delta":"#0000002#0000003"} #12 #x"##;

    #[test]
    fn marks_are_found_wherever_the_bytes_are_cut() {
        for cut in 0..TEXT.len() {
            let mut marks = MarkScanner::default();
            let mut found = Vec::new();
            marks.feed(&TEXT[..cut], &mut |mark| found.push(mark));
            marks.feed(&TEXT[cut..], &mut |mark| found.push(mark));
            assert_eq!(found, [1, 2, 3], "cut at {cut}");
        }
    }

    #[test]
    fn a_mark_that_is_missing_double_or_late_is_noticed() {
        let wrong = |marks: &[u64]| {
            let mut order = OrderCheck::default();
            for &mark in marks {
                order.record(mark);
            }
            order.wrong
        };
        assert_eq!(wrong(&[5, 6, 7]), 0);
        assert_eq!(wrong(&[5, 7, 8]), 1);
        assert_eq!(wrong(&[5, 5, 6]), 1);
        assert_eq!(wrong(&[5, 6, 4]), 1);
    }
}
