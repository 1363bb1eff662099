//! Unique ids for the tool calls of one model call.

use std::collections::HashMap;

/// Makes ids of tool calls unique: two calls with one id would be one call.
#[derive(Debug, Default)]
pub(super) struct UniqueCallIds {
    /// How often each id was requested.
    counts: HashMap<String, usize>,
    calls: u64,
}

impl UniqueCallIds {
    /// This id, with a number appended if another call has it.
    pub(super) fn make_unique(&mut self, mut id: String) -> String {
        self.calls += 1;
        while let Some(count) = self.counts.get_mut(&id) {
            *count += 1;
            id = format!("{id}-{count}");
        }
        self.counts.insert(id.clone(), 1);
        id
    }

    /// The number of calls.
    pub(super) fn len(&self) -> u64 {
        self.calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_id_gets_a_number() {
        let mut ids = UniqueCallIds::default();
        let given = ["a", "a-2", "a", "a", "b"].map(|id| ids.make_unique(id.to_owned()));
        assert_eq!(given, ["a", "a-2", "a-2-2", "a-3", "b"]);
    }
}
