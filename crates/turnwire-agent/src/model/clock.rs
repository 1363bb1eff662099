//! The `clock` model for load tests: streams timestamps instead of text. `turnwire bench replies` uses it.
//!
//! The message sets the number of tokens and their rate: `500 tokens, 50 a second`. Each token contains its
//! position and the time at which it was due. So any reader, in any process, can tell whether a token is
//! missing and how long it took to arrive.

use super::{Model, ModelError, ModelRequest, ModelStream};
use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;
use turnwire_core::event::{
    ModelCallEnd, ModelCallStart, TextBlockDelta, TextBlockEnd, TextBlockStart, TokenCounts,
};
use turnwire_core::{Event, EventKind, Fields, Msg, Role};

/// A model that streams timestamps.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClockModel;

/// How many tokens to stream, and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockRequest {
    /// The number of tokens.
    pub tokens: u32,
    /// Tokens per second.
    pub rate: u32,
}

impl ClockRequest {
    /// The most tokens of one answer.
    pub const MAX_TOKENS: u32 = 1_000_000;

    /// Reads the first two numbers of a message.
    pub fn parse(text: &str) -> Self {
        let mut numbers = text
            .split(|letter: char| !letter.is_ascii_digit())
            .filter(|digits| !digits.is_empty())
            .map(|digits| digits.parse().unwrap_or(u32::MAX));
        let tokens = numbers.next().unwrap_or(500).min(Self::MAX_TOKENS);
        let rate = numbers.next().unwrap_or(50).clamp(1, 100_000);
        Self { tokens, rate }
    }

    /// When a token is due, from the start of the answer.
    pub fn due(self, token: u32) -> Duration {
        Duration::from_nanos(u64::from(token) * 1_000_000_000 / u64::from(self.rate.max(1)))
    }
}

impl std::fmt::Display for ClockRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tokens, {} a second", self.tokens, self.rate)
    }
}

/// A token: its position and its time, in as few characters as possible. Real tokens have four or five
/// characters; longer ones would distort the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedToken {
    /// The last digits of its position in the answer, from 0.
    nth: u32,
    /// Time in units of 10 µs since 1970, modulo [`TICK_RANGE`](Self::TICK_RANGE).
    ticks: u64,
}

impl TimedToken {
    /// The number of digits after the `#` of a token.
    pub const DIGITS: u8 = 9;

    /// Positions are written modulo this.
    const POSITIONS: u32 = 100;

    /// Ticks are written modulo this: about 100 seconds.
    const TICK_RANGE: u64 = 10_000_000;

    const TICK: Duration = Duration::from_micros(10);

    /// A token for this position and time.
    pub fn new(nth: u32, sent_at: SystemTime) -> Self {
        let since = sent_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let ticks = since.as_micros() / Self::TICK.as_micros() % u128::from(Self::TICK_RANGE);
        Self { nth: nth % Self::POSITIONS, ticks: u64::try_from(ticks).unwrap_or_default() }
    }

    /// Parses the digits of a token.
    pub fn from_digits(digits: u64) -> Self {
        let nth = u32::try_from(digits / Self::TICK_RANGE).unwrap_or(u32::MAX);
        Self { nth: nth % Self::POSITIONS, ticks: digits % Self::TICK_RANGE }
    }

    /// Its position in the answer: the first possible one from `next` on.
    pub fn position(self, next: u64) -> u64 {
        let places = u64::from(Self::POSITIONS);
        next + (u64::from(self.nth) + places - next % places) % places
    }

    /// How long it took to arrive at this time.
    pub fn age(self, now: SystemTime) -> Duration {
        let age = (Self::new(0, now).ticks + Self::TICK_RANGE - self.ticks) % Self::TICK_RANGE;
        // Two clocks of one machine may differ slightly.
        let age = if age > Self::TICK_RANGE / 2 { 0 } else { age };
        Self::TICK * u32::try_from(age).unwrap_or(u32::MAX)
    }
}

impl std::fmt::Display for TimedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{:02}{:07}", self.nth, self.ticks)
    }
}

/// The progress of an answer.
struct ClockStream {
    request: ClockRequest,
    reply: String,
    block: String,
    begin: (Instant, SystemTime),
    /// The index of the next event.
    at: u32,
}

impl ClockStream {
    async fn next(&mut self) -> Option<EventKind<'static>> {
        let (at, tokens) = (self.at, self.request.tokens);
        self.at += 1;
        let block_id = || self.block.clone().into();
        Some(match at {
            0 => ModelCallStart { model_name: NAME.to_owned() }.into(),
            1 => TextBlockStart { block_id: block_id() }.into(),
            _ if at - 2 < tokens => {
                let due = self.request.due(at - 2);
                tokio::time::sleep_until(self.begin.0 + due).await;
                let delta = TimedToken::new(at - 2, self.begin.1 + due).to_string().into();
                TextBlockDelta { block_id: block_id(), delta }.into()
            }
            _ if at - 2 == tokens => {
                TextBlockEnd { block_id: block_id(), text: None, extra: Fields::default() }.into()
            }
            _ if at - 3 == tokens => {
                let output_tokens = i64::from(tokens);
                let usage = TokenCounts { output_tokens, ..TokenCounts::default() };
                ModelCallEnd { usage, ..ModelCallEnd::default() }.into()
            }
            _ => return None,
        })
    }
}

const NAME: &str = "clock";

#[async_trait]
impl Model for ClockModel {
    fn name(&self) -> &str {
        NAME
    }

    async fn stream(&self, ask: ModelRequest<'_>) -> Result<ModelStream, ModelError> {
        let question = ask.messages.iter().rev().find(|msg| msg.role() == Role::User);
        let question = question.and_then(|msg: &Msg| msg.text("\n")).unwrap_or_default();
        let clock = ClockStream {
            request: ClockRequest::parse(&question),
            reply: ask.reply_id.to_owned(),
            block: format!("{}1", ask.block_prefix),
            begin: (Instant::now(), SystemTime::now()),
            at: 0,
        };
        let events = stream::unfold(clock, |mut clock| async move {
            let kind = clock.next().await?;
            Some((Ok(Event::new(clock.reply.clone(), kind)), clock))
        });
        Ok(events.boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Agent;

    #[test]
    fn a_token_has_its_position_and_time() {
        let sent_at = UNIX_EPOCH + Duration::from_micros(1_723_456_789_012_345);
        let token = TimedToken::new(1_342, sent_at);
        let text = token.to_string();
        assert_eq!(text, "#428901234");
        assert_eq!(text.len(), 1 + usize::from(TimedToken::DIGITS));
        assert_eq!(TimedToken::from_digits(text[1..].parse().unwrap()), token);
        assert_eq!([0, 42, 43, 1_342].map(|next| token.position(next)), [42, 42, 142, 1_342]);
        let age = token.age(sent_at + Duration::from_millis(3));
        assert_eq!(age, Duration::from_millis(3));
        assert_eq!(token.age(sent_at - Duration::from_millis(3)), Duration::ZERO);
        // The digits wrap around in between.
        let ticks = |ticks: u64| UNIX_EPOCH + Duration::from_micros(10 * ticks);
        let late = TimedToken::new(0, ticks(TimedToken::TICK_RANGE - 5));
        assert_eq!(late.age(ticks(TimedToken::TICK_RANGE + 5)), Duration::from_micros(100));
    }

    #[test]
    fn a_message_sets_the_number_of_tokens_and_their_rate() {
        let request = |tokens, rate| ClockRequest { tokens, rate };
        assert_eq!(ClockRequest::parse("30 tokens, 10 a second"), request(30, 10));
        assert_eq!(ClockRequest::parse(&request(7, 9).to_string()), request(7, 9));
        assert_eq!(ClockRequest::parse("Hello!"), request(500, 50));
        assert_eq!(
            ClockRequest::parse("99999999999999999999 at 0/s"),
            request(ClockRequest::MAX_TOKENS, 1)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn each_token_is_sent_when_it_is_due() {
        let agent = Agent::builder("clock", ClockModel).build();
        let begin = Instant::now();
        let reply = agent.call([Msg::user("ann", "26 tokens, 50 a second")]).await.unwrap();
        assert_eq!(begin.elapsed(), Duration::from_millis(500));
        let text = reply.text("").unwrap();
        let digits: Vec<u64> = text.split('#').skip(1).map(|it| it.parse().unwrap()).collect();
        let tokens: Vec<TimedToken> = digits.into_iter().map(TimedToken::from_digits).collect();
        assert_eq!(
            tokens.iter().map(|token| token.nth).collect::<Vec<_>>(),
            (0..26).collect::<Vec<_>>()
        );
        let apart = |pair: &[TimedToken]| pair[1].ticks + TimedToken::TICK_RANGE - pair[0].ticks;
        assert!(
            tokens.windows(2).all(|pair| apart(pair) % TimedToken::TICK_RANGE == 2_000),
            "{text}"
        );
        assert!(reply.finished_at().is_some());
    }
}
