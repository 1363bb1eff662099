//! The cost of model calls.
//!
//! The price is applied when a call ends: its cost is in the metadata of its `MODEL_CALL_END`, as
//! `cost`. So sums do not change when prices do.

mod totals;

#[cfg(feature = "postgres")]
pub(crate) use totals::ExactSum;
pub use totals::{AgentTotals, SessionUsage};

use serde::{Deserialize, Serialize};
use turnwire_core::{Event, EventKind, Usage};

/// The metadata field of a `MODEL_CALL_END`, and of a message, that has the cost.
pub const COST_FIELD: &str = "cost";

/// An amount of money in any currency, in units of 10⁻¹². Integers, so that sums are equal in any
/// order and on any machine.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Cost(u64);

/// How many units are 1.
const UNITS_PER_ONE: f64 = 1e12;

impl Cost {
    /// An amount; `None` if it is negative or not a finite number.
    pub fn new(amount: f64) -> Option<Self> {
        let is_amount = amount.is_finite() && amount >= 0.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is not negative, and what is too large is the largest"
        )]
        is_amount.then(|| Self((amount * UNITS_PER_ONE).round() as u64))
    }

    /// The amount.
    pub fn amount(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "exact below 9,000; then to 16 digits")]
        let amount = self.0 as f64 / UNITS_PER_ONE;
        amount
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least 0.
    #[must_use]
    pub fn minus(self, part: Self) -> Self {
        Self(self.0.saturating_sub(part.0))
    }

    /// The cost of a model call, if this event is its end and has one.
    pub fn from_event(event: &Event<'_>) -> Option<Self> {
        let EventKind::ModelCallEnd(_) = &event.kind else { return None };
        event.metadata.get::<f64>(COST_FIELD).ok().flatten().and_then(Self::new)
    }
}

/// Tokens, and their cost if it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageTotal {
    /// The tokens.
    pub usage: Usage,
    /// Their cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

impl UsageTotal {
    /// Adds usage and cost.
    pub fn add(&mut self, usage: &Usage, cost: Option<Cost>) {
        let add = |sum: &mut i64, count: i64| *sum = sum.saturating_add(count);
        add(&mut self.usage.input_tokens, usage.input_tokens);
        add(&mut self.usage.output_tokens, usage.output_tokens);
        add(&mut self.usage.cache_input_tokens, usage.cache_input_tokens);
        add(&mut self.usage.cache_creation_input_tokens, usage.cache_creation_input_tokens);
        if let Some(cost) = cost {
            self.cost = Some(self.cost.unwrap_or_default().plus(cost));
        }
    }
}

impl UsageTotal {
    /// Subtracts a part.
    pub fn subtract(&mut self, part: &Self) {
        let take = |sum: &mut i64, count: i64| *sum = sum.saturating_sub(count);
        take(&mut self.usage.input_tokens, part.usage.input_tokens);
        take(&mut self.usage.output_tokens, part.usage.output_tokens);
        take(&mut self.usage.cache_input_tokens, part.usage.cache_input_tokens);
        take(&mut self.usage.cache_creation_input_tokens, part.usage.cache_creation_input_tokens);
        self.cost = self.cost.map(|cost| cost.minus(part.cost.unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_add_up_to_what_one_expects() {
        let sum = (0..10).fold(Cost::default(), |sum, _| sum.plus(Cost::new(0.1).unwrap()));
        assert_eq!(sum.amount().to_string(), "1");
        let sum = Cost::new(0.1).unwrap().plus(Cost::new(0.2).unwrap());
        assert_eq!(sum.amount().to_string(), "0.3");
        assert_eq!(Cost::new(0.000_000_037_5).unwrap().amount().to_string(), "0.0000000375");
    }

    #[test]
    fn what_is_no_amount_is_none() {
        for amount in [-0.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Cost::new(amount), None);
        }
        let most = Cost::new(f64::MAX).unwrap();
        assert_eq!(most.plus(most), most);
    }
}
