//! Finds a block of a message in constant time.

use crate::block::{ContentBlock, Part, Payload};
use crate::work;
use hashbrown::HashTable;
use std::hash::BuildHasher;

macro_rules! families {
    ($($name:ident)+) => {
        /// Blocks that share a namespace of ids. A tool call and its result have the same id, and a text and a
        /// thinking block may.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(super) enum Family {
            $($name,)+
        }

        impl Family {
            const ALL: &[Self] = &[$(Self::$name,)+];
        }

        impl From<&ContentBlock> for Family {
            #[inline]
            fn from(block: &ContentBlock) -> Self {
                match block {
                    $(ContentBlock::$name(_) => Self::$name,)+
                }
            }
        }
    };
}

// One for each variant of `ContentBlock`.
families! { Text Thinking Data Hint ToolCall ToolResult Other }

/// Finds blocks by family and id, and the data parts of a result by their ids.
///
/// It stores positions only; ids are compared in the message itself. A message with few blocks is searched
/// from its end, without a table. If several blocks have the same id, which only happens in messages from
/// elsewhere, both ways find the last one.
#[derive(Clone, Default)]
pub(super) struct BlockIndex {
    /// Position of the block of the last event.
    last: Option<usize>,
    /// The block that made the last role check fail.
    pub(super) refused_role: Option<usize>,
    /// The data, by block and place in it, that made the last end check fail.
    pub(super) refused_end: Option<(usize, usize)>,
    table: Option<Box<Table>>,
}

#[derive(Clone, Default)]
struct Table {
    hasher: foldhash::fast::RandomState,
    blocks: HashTable<usize>,
    /// (the result's position, the part's position)
    parts: HashTable<(usize, usize)>,
}

/// Up to this many blocks or parts a linear search is faster than a table.
const SCAN_LIMIT: usize = 8;

impl BlockIndex {
    /// Clears the index, because positions have changed.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    #[inline]
    pub(super) fn find(
        &mut self,
        content: &[ContentBlock],
        family: Family,
        id: &str,
    ) -> Option<usize> {
        let is_it = |block: &ContentBlock| is_block(block, family, id);
        if let Some(last) = self.last
            && content.get(last).is_some_and(is_it)
        {
            return Some(last);
        }
        let found = self.find_elsewhere(content, family, id);
        if found.is_some() {
            self.last = found;
        }
        found
    }

    fn find_elsewhere(
        &mut self,
        content: &[ContentBlock],
        family: Family,
        id: &str,
    ) -> Option<usize> {
        let is_it = |block: &ContentBlock| is_block(block, family, id);
        if content.len() <= SCAN_LIMIT {
            return content.iter().rposition(is_it);
        }
        let table = self.table(content);
        let hash = table.hasher.hash_one((family, id));
        table.blocks.find(hash, |at| content.get(*at).is_some_and(is_it)).copied()
    }

    /// The data part of a result's output.
    pub(super) fn find_part(
        &mut self,
        content: &[ContentBlock],
        result: usize,
        id: &str,
    ) -> Option<usize> {
        let parts = result_parts(content.get(result)?);
        let is_it = |part: &Part| {
            work::count(1);
            matches!(part, Part::Data(block) if block.id == id)
        };
        if parts.len() <= SCAN_LIMIT {
            return parts.iter().rposition(is_it);
        }
        let table = self.table(content);
        let hash = table.hasher.hash_one((result, id));
        let found = table
            .parts
            .find(hash, |&(block, at)| block == result && parts.get(at).is_some_and(is_it));
        found.map(|&(_, at)| at)
    }

    /// The first block with this id, in all families.
    pub(super) fn find_first(&mut self, content: &[ContentBlock], id: &str) -> Option<usize> {
        Family::ALL.iter().filter_map(|family| self.find(content, *family, id)).min()
    }

    /// Removes the blocks from this position on.
    pub(super) fn forget_from(&mut self, content: &[ContentBlock], first: usize) {
        (self.last, self.refused_role, self.refused_end) = (None, None, None);
        let Some(table) = &mut self.table else { return };
        for (at, block) in content.iter().enumerate().skip(first) {
            table.remove(at, block);
        }
    }

    /// Adds the last block.
    #[inline]
    pub(super) fn note_pushed(&mut self, content: &[ContentBlock]) {
        self.last = content.len().checked_sub(1);
        if let (Some(table), Some(at), Some(block)) = (&mut self.table, self.last, content.last()) {
            table.add(content, at, block);
        }
    }

    /// Adds the last part of a result's output.
    pub(super) fn note_pushed_part(&mut self, content: &[ContentBlock], result: usize) {
        let Some(table) = &mut self.table else { return };
        let Some(parts) = content.get(result).map(result_parts) else { return };
        if let Some(part) = parts.last() {
            table.add_part(content, (result, parts.len() - 1), part);
        }
    }

    fn table(&mut self, content: &[ContentBlock]) -> &Table {
        self.table.get_or_insert_with(|| {
            let mut table = Box::<Table>::default();
            for (at, block) in content.iter().enumerate() {
                table.add(content, at, block);
            }
            table
        })
    }
}

#[inline]
fn is_block(block: &ContentBlock, family: Family, id: &str) -> bool {
    work::count(1);
    Family::from(block) == family && block.id() == id
}

fn result_parts(block: &ContentBlock) -> &[Part] {
    let ContentBlock::ToolResult(result) = block else { return &[] };
    match &result.output {
        Payload::Parts(parts) => parts,
        Payload::Text(_) => &[],
    }
}

impl Table {
    fn add(&mut self, content: &[ContentBlock], at: usize, block: &ContentBlock) {
        work::count(1);
        let (family, id) = (Family::from(block), block.id());
        let hash = self.hasher.hash_one((family, id));
        let is_it = |at: &usize| content.get(*at).is_some_and(|it| is_block(it, family, id));
        if let Some(known) = self.blocks.find_mut(hash, is_it) {
            *known = at;
        } else {
            let Self { hasher, blocks, .. } = self;
            let rehash = |at: &usize| {
                content.get(*at).map_or(0, |it| hasher.hash_one((Family::from(it), it.id())))
            };
            blocks.insert_unique(hash, at, rehash);
        }
        for (place, part) in result_parts(block).iter().enumerate() {
            self.add_part(content, (at, place), part);
        }
    }

    fn remove(&mut self, at: usize, block: &ContentBlock) {
        work::count(1);
        let hash = self.hasher.hash_one((Family::from(block), block.id()));
        if let Ok(entry) = self.blocks.find_entry(hash, |known| *known == at) {
            entry.remove();
        }
        for (place, part) in result_parts(block).iter().enumerate() {
            work::count(1);
            let hash = self.hasher.hash_one((at, part.id()));
            if let Ok(entry) = self.parts.find_entry(hash, |known| *known == (at, place)) {
                entry.remove();
            }
        }
    }

    fn add_part(&mut self, content: &[ContentBlock], at: (usize, usize), part: &Part) {
        work::count(1);
        let Part::Data(block) = part else { return };
        let part_at =
            |&(block, place): &(usize, usize)| result_parts(content.get(block)?).get(place);
        let is_it = |it: &(usize, usize)| {
            it.0 == at.0 && matches!(part_at(it), Some(Part::Data(it)) if it.id == block.id)
        };
        let hash = self.hasher.hash_one((at.0, block.id.as_str()));
        if let Some(known) = self.parts.find_mut(hash, is_it) {
            *known = at;
            return;
        }
        let Self { hasher, parts, .. } = self;
        let rehash =
            |it: &(usize, usize)| hasher.hash_one((it.0, part_at(it).map_or("", Part::id)));
        parts.insert_unique(hash, at, rehash);
    }
}
