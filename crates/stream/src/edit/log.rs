//! The edits of a direction that the receiver has not acknowledged, and the numbers on both sides of them.
//!
//! Theory of operation. An edit replaces at least one byte of the sender by any number of bytes for the
//! receiver. Edits are ordered and do not overlap. The numbers in front of the first edit differ by a
//! constant, those behind the last one by another. An acknowledged edit is folded into the first constant.
//! The edits are in blocks of a pool, so that a lookup skips a block at a time. New segments are behind the
//! last edit and acknowledgments at the first ones, whatever number of edits is between them: so a lookup
//! begins with the last edit, and goes on from the first block.

use crate::{is_after, is_before};

/// Edits of a block.
const EDITS: usize = 31;
/// The end of a list.
const NONE: u32 = u32::MAX;

/// Some bytes of the sender that are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Number of the first byte that is replaced, as the sender counts.
    pub from: u32,
    /// Bytes that are replaced, at least one.
    pub removed: u32,
    /// Number of the first byte in their place, as the receiver counts.
    pub to: u32,
    /// Bytes in their place.
    pub inserted: u32,
}

impl Edit {
    fn sender_end(self) -> u32 {
        self.from.wrapping_add(self.removed)
    }

    fn receiver_end(self) -> u32 {
        self.to.wrapping_add(self.inserted)
    }

    fn growth(self) -> u32 {
        self.inserted.wrapping_sub(self.removed)
    }
}

#[derive(Clone, Copy, Debug)]
struct Block {
    edits: [Edit; EDITS],
    start: u8,
    end: u8,
    next: u32,
}

const EMPTY: Block =
    Block { edits: [Edit { from: 0, removed: 0, to: 0, inserted: 0 }; EDITS], start: 0, end: 0, next: NONE };

impl Block {
    fn edits(&self) -> &[Edit] {
        self.edits.get(usize::from(self.start)..usize::from(self.end)).unwrap_or(&[])
    }
}

/// Memory for the edits of a worker.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct EditPool {
    blocks: Vec<Block>,
    free: Vec<u32>,
    most: usize,
}

impl EditPool {
    pub fn new(edits: usize) -> EditPool {
        let most = edits.div_ceil(EDITS);
        EditPool { blocks: Vec::with_capacity(most), free: Vec::with_capacity(most), most }
    }

    /// Whether there is room for so many more edits of one direction.
    pub fn has_room(&self, edits: usize) -> bool {
        self.most - (self.blocks.len() - self.free.len()) > edits.div_ceil(EDITS)
    }

    fn take(&mut self) -> Option<u32> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.blocks.len() < self.most => {
                self.blocks.push(EMPTY);
                self.blocks.len() as u32 - 1
            }
            None => return None,
        };
        // The edits of the block are overwritten one by one.
        let block = self.blocks.get_mut(at as usize)?;
        (block.start, block.end, block.next) = (0, 0, NONE);
        Some(at)
    }
}

/// The edits of a direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct EditLog {
    first: u32,
    last: u32,
    /// Edits that are not acknowledged.
    pub len: u32,
    /// The number that is added to a sender's number in front of the first edit, and behind the last one.
    base: u32,
    pub offset: u32,
}

impl EditLog {
    pub const EMPTY: EditLog = EditLog { first: NONE, last: NONE, len: 0, base: 0, offset: 0 };

    /// Appends an edit behind all others. Returns false if there is no room.
    pub fn push(&mut self, pool: &mut EditPool, edit: Edit) -> bool {
        let has_room = |block: &Block| usize::from(block.end) < EDITS;
        if !pool.blocks.get(self.last as usize).is_some_and(has_room) {
            let Some(block) = pool.take() else { return false };
            match pool.blocks.get_mut(self.last as usize) {
                Some(last) => last.next = block,
                None => self.first = block,
            }
            self.last = block;
        }
        if let Some(block) = pool.blocks.get_mut(self.last as usize)
            && let Some(place) = block.edits.get_mut(usize::from(block.end))
        {
            (*place, block.end) = (edit, block.end + 1);
            self.offset = self.offset.wrapping_add(edit.growth());
            self.len += 1;
        }
        true
    }

    /// The receiver has acknowledged all bytes in front of a number.
    pub fn fold(&mut self, pool: &mut EditPool, ack: u32) {
        while let Some(block) = pool.blocks.get_mut(self.first as usize) {
            while let Some(edit) = block.edits().first() {
                if is_after(edit.receiver_end(), ack) {
                    return;
                }
                self.base = self.base.wrapping_add(edit.growth());
                self.len -= 1;
                block.start += 1;
            }
            pool.free.push(self.first);
            self.first = block.next;
            if self.first == NONE {
                self.last = NONE;
            }
        }
    }

    /// Forgets all edits. The numbers behind the last one keep their offset.
    pub fn clear(&mut self, pool: &mut EditPool) {
        while let Some(block) = pool.blocks.get(self.first as usize) {
            pool.free.push(self.first);
            self.first = block.next;
        }
        *self = EditLog { base: self.offset, offset: self.offset, ..EditLog::EMPTY };
    }

    /// Returns the last edit for which a predicate holds that holds for all edits in front of it, and the
    /// offset in front of that edit.
    fn find(&self, pool: &EditPool, is: impl Fn(&Edit) -> bool) -> (Option<Edit>, u32) {
        let last_of = |at: u32| pool.blocks.get(at as usize).and_then(|block| block.edits().last());
        let mut found = last_of(self.last).filter(|edit| is(edit)).copied();
        let mut at = if found.is_none() { self.first } else { NONE };
        while let Some(block) = pool.blocks.get(at as usize) {
            let edits = block.edits();
            match edits.last().filter(|edit| is(edit)) {
                Some(&last) => (found, at) = (Some(last), block.next),
                None => {
                    let n = edits.partition_point(&is);
                    found = n.checked_sub(1).and_then(|last| edits.get(last)).copied().or(found);
                    break;
                }
            }
        }
        let before = found.map_or(self.base, |edit| edit.to.wrapping_sub(edit.from));
        (found, before)
    }

    /// Returns the receiver's numbers of a place in front of the sender's byte `seq`: the first one that can
    /// be meant, and the last one. They differ inside of an edit.
    pub fn receiver_numbers(&self, pool: &EditPool, seq: u32) -> (u32, u32) {
        match self.find(pool, |edit| is_before(edit.from, seq)) {
            (Some(edit), _) if is_before(seq, edit.sender_end()) => (edit.to, edit.receiver_end()),
            (Some(edit), before) => {
                let number = seq.wrapping_add(before).wrapping_add(edit.growth());
                (number, number)
            }
            (None, base) => (seq.wrapping_add(base), seq.wrapping_add(base)),
        }
    }

    /// Returns the sender's numbers of a place in front of the receiver's byte `number`: the first one that
    /// can be meant, and the last one. They differ inside of an edit. Bytes that were removed there are in
    /// front of the place.
    pub fn sender_numbers(&self, pool: &EditPool, number: u32) -> (u32, u32) {
        // An edit that inserts nothing is over where it begins.
        let begins = |edit: &Edit| is_before(edit.to, number) || edit.inserted == 0 && edit.to == number;
        match self.find(pool, begins) {
            (Some(edit), _) if is_before(number, edit.receiver_end()) => (edit.from, edit.sender_end()),
            (Some(edit), before) => {
                let seq = number.wrapping_sub(before).wrapping_sub(edit.growth());
                (seq, seq)
            }
            (None, base) => (number.wrapping_sub(base), number.wrapping_sub(base)),
        }
    }
}
