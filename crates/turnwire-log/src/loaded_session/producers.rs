//! Who publishes from elsewhere, and their fences.

use super::Transaction;
use crate::store::Producer;

/// How many producers of one session are remembered beside the present one.
const MAX_FORMER_PRODUCERS: usize = 16;

impl Transaction<'_> {
    /// The highest fence that was seen of a producer; 0 when it is not known.
    pub fn producer_fence(&self, id: &str, holder: &str) -> u64 {
        self.producers().find(|known| known.matches(id, holder)).map_or(0, |known| known.fence)
    }

    /// Who held the credentials of the producer that last published under this name.
    pub fn producer_holder(&self, id: &str) -> Option<&str> {
        self.producers().find(|known| known.id == id).map(|known| known.holder.as_str())
    }

    /// The producer and those before it, the latest first.
    fn producers(&self) -> impl Iterator<Item = &Producer> {
        let state = &self.live.state;
        state.producer.iter().chain(state.former_producers.iter().rev())
    }

    /// Says who publishes from elsewhere, from now on. What is open is theirs, until it has ended:
    /// so this comes behind the events.
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

/// Removes the oldest producer of the holder that has the most: whoever uses many names makes only its own
/// fences forgotten.
fn forget_oldest_producer(former: &mut Vec<Producer>) {
    let count = |holder: &str| former.iter().filter(|known| known.holder == holder).count();
    // The first one wins where several holders have as many.
    let most = former.iter().rev().max_by_key(|known| count(&known.holder));
    let Some(holder) = most.map(|known| known.holder.clone()) else { return };
    if let Some(at) = former.iter().position(|known| known.holder == holder) {
        former.remove(at);
    }
}
