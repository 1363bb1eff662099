//! Ids of tool calls, kept apart.

use std::collections::HashMap;

/// The ids that were given to tool calls of one stream. Two calls of one id would be one call.
#[derive(Debug, Default)]
pub(crate) struct UniqueCallIds {
    /// How often each was asked for.
    counts: HashMap<String, usize>,
    calls: u64,
}

impl UniqueCallIds {
    /// This id, or, where another call has it already, the same with a number behind it.
    pub(crate) fn make_unique(&mut self, mut id: String) -> String {
        self.calls += 1;
        while let Some(count) = self.counts.get_mut(&id) {
            *count += 1;
            id = format!("{id}-{count}");
        }
        self.counts.insert(id.clone(), 1);
        id
    }

    /// How many calls there were.
    pub(crate) fn len(&self) -> u64 {
        self.calls
    }

    /// Whether there was any call.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_taken_gets_a_number() {
        let mut ids = UniqueCallIds::default();
        let given = ["a", "a-2", "a", "a", "b"].map(|id| ids.make_unique(id.to_owned()));
        assert_eq!(given, ["a", "a-2", "a-2-2", "a-3", "b"]);
    }
}
