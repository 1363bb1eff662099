//! The producers of a session and their fences.

use super::Transaction;
use crate::store::Producer;

/// How many former producers of a session are remembered.
const MAX_FORMER_PRODUCERS: usize = 16;

impl Transaction<'_> {
    /// The highest fence seen from a producer; 0 if it is unknown.
    pub fn producer_fence(&self, id: &str, holder: &str) -> u64 {
        self.producers().find(|known| known.matches(id, holder)).map_or(0, |known| known.fence)
    }

    /// The holder of the credentials of the producer that last published under this name.
    pub fn producer_holder(&self, id: &str) -> Option<&str> {
        self.producers().find(|known| known.id == id).map(|known| known.holder.as_str())
    }

    /// The current producer and the former ones, latest first.
    fn producers(&self) -> impl Iterator<Item = &Producer> {
        let state = &self.live.state;
        state.producer.iter().chain(state.former_producers.iter().rev())
    }

    /// Sets the producer that publishes from now on. Open replies belong to it until they end, so
    /// call this after the events.
    pub fn set_producer(&mut self, producer: Producer) {
        let state = &mut self.live.state;
        if state.producer.as_ref() != Some(&producer) {
            self.state_changed = true;
            let is_same = |known: &Producer| known.matches(&producer.id, &producer.holder);
            state.former_producers.retain(|former| !is_same(former));
            let overtaken =
                state.producer.take().filter(|known| known.fence > 0 && !is_same(known));
            state.former_producers.extend(overtaken);
            if state.former_producers.len() > MAX_FORMER_PRODUCERS {
                forget_oldest_producer(&mut state.former_producers);
            }
            state.producer = Some(producer);
        }
        state.is_produced = !self.live.replies.is_empty();
    }
}

/// Removes the oldest producer of the holder that has the most, so that a holder with many names
/// only loses its own fences.
fn forget_oldest_producer(former: &mut Vec<Producer>) {
    let count = |holder: &str| former.iter().filter(|known| known.holder == holder).count();
    // With equal counts the oldest holder is chosen.
    let most = former.iter().rev().max_by_key(|known| count(&known.holder));
    let Some(holder) = most.map(|known| known.holder.clone()) else { return };
    if let Some(at) = former.iter().position(|known| known.holder == holder) {
        former.remove(at);
    }
}
