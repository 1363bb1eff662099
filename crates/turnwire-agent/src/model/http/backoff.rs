//! Delays between retries of a model call.

use std::time::Duration;

/// The delays between retries. Each delay varies randomly by up to half.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    /// The delay before the first retry (0.5 s). It doubles with each further retry.
    pub first: Duration,
    /// The longest delay (1 min). If a provider asks for a longer one, the call fails instead.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(500), longest: Duration::from_mins(1) }
    }
}

impl Backoff {
    /// The delay before retry number `again`, counted from 0. `None`: do not retry, because the provider
    /// asks for too long a delay. `chance` is between 0 and 1, so that clients do not retry together.
    pub(super) fn delay(
        &self,
        again: u32,
        wanted: Option<Duration>,
        chance: f64,
    ) -> Option<Duration> {
        if wanted.is_some_and(|wanted| wanted > self.longest) {
            return None;
        }
        let doubled = self.first.saturating_mul(1_u32.checked_shl(again).unwrap_or(u32::MAX));
        let pause = doubled.min(self.longest).mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0);
        Some(pause.max(wanted.unwrap_or_default()))
    }
}

/// A random number between 0 and 1; 0.5 if the system has no randomness.
pub(super) fn jitter() -> f64 {
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_vary_by_half() {
        let pauses = Backoff::default();
        let millis = |again, chance| pauses.delay(again, None, chance).unwrap().as_millis();
        assert_eq!([millis(0, 1.0), millis(1, 1.0), millis(2, 1.0)], [500, 1000, 2000]);
        assert_eq!([millis(0, 0.0), millis(1, 0.5)], [250, 750]);
        assert_eq!([millis(20, 1.0), millis(99, 1.0)], [60_000, 60_000]);
        assert!((0.0..=1.0).contains(&jitter()));
    }

    #[test]
    fn a_retry_after_is_obeyed_or_ends_the_retries() {
        let pauses = Backoff::default();
        let seconds = |wanted| pauses.delay(0, Some(Duration::from_secs(wanted)), 1.0);
        assert_eq!(seconds(7), Some(Duration::from_secs(7)));
        assert_eq!(seconds(60), Some(Duration::from_mins(1)));
        assert_eq!(seconds(61), None);
        assert_eq!(seconds(0), Some(pauses.first), "at once is not at the same time");
    }
}
