//! Bytes that have gone on and are not acknowledged yet.
//!
//! Theory of operation. What went on may be lost behind the middlebox, and a sender may repeat it with other
//! bytes. To make the copy agree with what functions have seen, the bytes are kept until the receiver has
//! acknowledged them. They are in blocks of a pool, which each direction links to a list. All memory is
//! reserved at the beginning. Without a free block, a direction forgets what it has, and begins anew. Then
//! the caller cannot compare a copy ([`KeptBytes::covers`]).

/// Bytes of a block. A power of two.
const BLOCK: usize = 2048;
/// Most bytes of a direction: a window of usual connections.
const MOST: u32 = 8 << 20;
/// Blocks from one to the block that its skip link names. A sender chooses which bytes it repeats, so no
/// search may walk along a whole list.
const SKIP: u32 = 64;
/// The end of a list.
const NONE: u32 = u32::MAX;

/// The kept bytes of one direction.
#[derive(Clone, Copy, Debug)]
struct Flow {
    first: u32,
    last: u32,
    /// The block that is [`SKIP`] blocks in front of `last`, if there are so many.
    lag: u32,
    /// Number of the first byte of block `first`.
    base: u32,
    /// Numbers of the first kept byte, and of the byte behind the last one.
    from: u32,
    to: u32,
}

/// Both directions of a connection, in one cache line.
#[repr(align(64))]
#[derive(Clone, Copy, Debug)]
struct Connection([Flow; 2]);

const EMPTY: Flow = Flow { first: NONE, last: NONE, lag: NONE, base: 0, from: 0, to: 0 };

/// The kept bytes of a worker's connections.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct KeptBytes {
    blocks: Vec<[u8; BLOCK]>,
    /// The block behind each block.
    next: Vec<u32>,
    /// The block that is [`SKIP`] blocks behind each block.
    skip: Vec<u32>,
    free: Vec<u32>,
    most_blocks: usize,
    connections: Vec<Connection>,
    free_connections: Vec<u32>,
    most_connections: usize,
}

impl KeptBytes {
    /// Reserves memory for bytes, and for connections. Memory that is not used stays with the kernel.
    pub fn new(bytes: usize, connections: usize) -> KeptBytes {
        let most_blocks = bytes / BLOCK;
        KeptBytes {
            blocks: Vec::with_capacity(most_blocks),
            next: Vec::with_capacity(most_blocks),
            skip: Vec::with_capacity(most_blocks),
            free: Vec::with_capacity(most_blocks),
            most_blocks,
            connections: Vec::with_capacity(connections),
            free_connections: Vec::with_capacity(connections),
            most_connections: connections,
        }
    }

    /// Adds a connection. Returns its number, which is not 0. None: there is no room.
    pub fn insert(&mut self) -> Option<u32> {
        if let Some(number) = self.free_connections.pop() {
            return Some(number);
        }
        if self.connections.len() == self.most_connections {
            return None;
        }
        self.connections.push(Connection([EMPTY; 2]));
        u32::try_from(self.connections.len()).ok()
    }

    /// Removes a connection. Its number may be given out again.
    pub fn remove(&mut self, number: u32) {
        if self.flow(number, 0).is_some() {
            self.clear(number, 0);
            self.clear(number, 1);
            self.free_connections.push(number);
        }
    }

    fn flow(&self, number: u32, direction: usize) -> Option<Flow> {
        Some(self.connections.get((number as usize).checked_sub(1)?)?.0[direction & 1])
    }

    fn set(&mut self, number: u32, direction: usize, flow: Flow) {
        let connection = (number as usize).checked_sub(1).and_then(|at| self.connections.get_mut(at));
        if let Some(connection) = connection {
            connection.0[direction & 1] = flow;
        }
    }

    /// Calls a closure with a byte of the cache line of a connection.
    #[inline(always)]
    pub(crate) fn for_each_line(&self, number: u32, mut f: impl FnMut(&u32)) {
        if let Some(Connection([one, _])) =
            (number as usize).checked_sub(1).and_then(|at| self.connections.get(at))
        {
            f(&one.first);
        }
    }

    /// Forgets the bytes of a direction.
    pub fn clear(&mut self, number: u32, direction: usize) {
        let Some(flow) = self.flow(number, direction) else { return };
        let mut at = flow.first;
        while let Some(&next) = self.next.get(at as usize) {
            self.free.push(at);
            at = next;
        }
        self.set(number, direction, EMPTY);
    }

    /// Returns the number of blocks in use.
    pub fn blocks(&self) -> usize {
        self.blocks.len() - self.free.len()
    }

    fn take_block(&mut self) -> Option<u32> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.blocks.len() < self.most_blocks => {
                self.blocks.push([0; BLOCK]);
                self.next.push(NONE);
                self.skip.push(NONE);
                self.blocks.len() as u32 - 1
            }
            None => return None,
        };
        *self.next.get_mut(at as usize)? = NONE;
        *self.skip.get_mut(at as usize)? = NONE;
        Some(at)
    }

    /// Keeps bytes that begin at a number. If they do not follow those that are kept, these are forgotten.
    /// Returns false if there is no room; nothing is kept of the direction then.
    pub fn append(&mut self, number: u32, direction: usize, seq: u32, mut bytes: &[u8]) -> bool {
        let Some(mut flow) = self.flow(number, direction) else { return false };
        if flow.first != NONE && flow.to != seq {
            self.clear(number, direction);
            flow = EMPTY;
        }
        if flow.first == NONE {
            flow = Flow { base: seq, from: seq, to: seq, ..EMPTY };
        }
        while !bytes.is_empty() {
            let offset = flow.to.wrapping_sub(flow.base) as usize % BLOCK;
            let is_full = flow.first == NONE || offset == 0;
            if is_full {
                let within = flow.to.wrapping_sub(flow.from) < MOST;
                let Some(block) = within.then(|| self.take_block()).flatten() else {
                    self.set(number, direction, flow);
                    self.clear(number, direction);
                    return false;
                };
                match self.next.get_mut(flow.last as usize) {
                    Some(next) => *next = block,
                    None => flow.first = block,
                }
                flow.last = block;
                self.link_skip(&mut flow);
            }
            let len = bytes.len().min(BLOCK - offset);
            let (now, rest) = bytes.split_at(len);
            if let Some(block) = self.blocks.get_mut(flow.last as usize) {
                block[offset..offset + len].copy_from_slice(now);
            }
            flow.to = flow.to.wrapping_add(len as u32);
            bytes = rest;
        }
        self.set(number, direction, flow);
        true
    }

    /// A block was added to a list: links the one that is [`SKIP`] blocks in front of it.
    fn link_skip(&mut self, flow: &mut Flow) {
        let in_front = flow.to.wrapping_sub(flow.base) / BLOCK as u32;
        flow.lag = match in_front {
            SKIP => flow.first,
            0..SKIP => return,
            _ => self.next.get(flow.lag as usize).copied().unwrap_or(NONE),
        };
        if let Some(skip) = self.skip.get_mut(flow.lag as usize) {
            *skip = flow.last;
        }
    }

    /// The receiver has acknowledged all bytes in front of a number.
    pub fn acknowledge(&mut self, number: u32, direction: usize, seq: u32) {
        let Some(mut flow) = self.flow(number, direction).filter(|flow| flow.first != NONE) else { return };
        if !crate::is_after(seq, flow.from) {
            return;
        }
        if !crate::is_before(seq, flow.to) {
            return self.clear(number, direction);
        }
        flow.from = seq;
        while flow.from.wrapping_sub(flow.base) as usize >= BLOCK
            && let Some(&next) = self.next.get(flow.first as usize)
        {
            self.free.push(flow.first);
            (flow.first, flow.base) = (next, flow.base.wrapping_add(BLOCK as u32));
        }
        self.set(number, direction, flow);
    }

    /// Returns a block at most [`SKIP`] blocks in front of the one with a number that is kept, and the number
    /// of its first byte.
    fn seek(&self, flow: &Flow, number: u32) -> (u32, u32) {
        let (mut block, mut base) = (flow.first, flow.base);
        while number.wrapping_sub(base) >= SKIP * BLOCK as u32
            && let Some(&skip) = self.skip.get(block as usize).filter(|skip| **skip != NONE)
        {
            (block, base) = (skip, base.wrapping_add(SKIP * BLOCK as u32));
        }
        (block, base)
    }

    /// Calls a closure with the pieces of a range that are kept: their distance from `seq`, and their bytes.
    pub(crate) fn pieces(
        &self,
        number: u32,
        direction: usize,
        seq: u32,
        len: usize,
        mut f: impl FnMut(usize, &[u8]),
    ) {
        let Some(flow) = self.flow(number, direction).filter(|flow| flow.first != NONE) else { return };
        let first = if crate::is_before(seq, flow.from) { flow.from } else { seq };
        let end = seq.wrapping_add(len as u32);
        let end = if crate::is_after(end, flow.to) { flow.to } else { end };
        let (mut block, mut base) = self.seek(&flow, first);
        let mut at = first;
        while crate::is_before(at, end)
            && let (Some(bytes), Some(&next)) =
                (self.blocks.get(block as usize), self.next.get(block as usize))
        {
            let offset = at.wrapping_sub(base) as usize;
            if offset < BLOCK {
                let len = (BLOCK - offset).min(end.wrapping_sub(at) as usize);
                f(at.wrapping_sub(seq) as usize, &bytes[offset..offset + len]);
                at = at.wrapping_add(len as u32);
            }
            (block, base) = (next, base.wrapping_add(BLOCK as u32));
        }
    }

    /// Returns the numbers of the first byte that is kept of a direction, and behind the last one. None:
    /// nothing is kept.
    pub fn range(&self, number: u32, direction: usize) -> Option<(u32, u32)> {
        self.flow(number, direction).filter(|flow| flow.first != NONE).map(|flow| (flow.from, flow.to))
    }

    /// Returns the number of bytes that are kept of a direction.
    pub fn len(&self, number: u32, direction: usize) -> usize {
        self.flow(number, direction).map_or(0, |flow| flow.to.wrapping_sub(flow.from) as usize)
    }

    /// Whether so many bytes more can be kept of a direction.
    pub fn has_room(&self, number: u32, direction: usize, bytes: usize) -> bool {
        let Some(flow) = self.flow(number, direction) else { return false };
        let free = self.free.len() + (self.most_blocks - self.blocks.len());
        flow.to.wrapping_sub(flow.from) as usize + bytes <= MOST as usize && bytes / BLOCK + 2 <= free
    }

    /// Appends kept bytes of a range to a buffer. Returns whether all of them are kept.
    pub fn read(&self, number: u32, direction: usize, seq: u32, len: usize, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        self.pieces(number, direction, seq, len, |_, kept| out.extend_from_slice(kept));
        out.len() == before + len
    }

    /// Whether all bytes of a range are kept.
    pub fn covers(&self, number: u32, direction: usize, seq: u32, len: usize) -> bool {
        let flow = self.flow(number, direction).filter(|flow| flow.first != NONE);
        flow.is_some_and(|flow| {
            !crate::is_before(seq, flow.from) && !crate::is_after(seq.wrapping_add(len as u32), flow.to)
        })
    }

    /// Whether nothing is kept of a connection.
    pub fn is_empty(&self, number: u32) -> bool {
        [0, 1].iter().all(|at| self.flow(number, *at).is_none_or(|flow| flow.first == NONE))
    }

    /// Whether bytes that begin at a number differ from those that are kept.
    pub fn differs(&self, number: u32, direction: usize, seq: u32, bytes: &[u8]) -> bool {
        let mut differs = false;
        self.pieces(number, direction, seq, bytes.len(), |at, kept| {
            differs |= bytes.get(at..at + kept.len()) != Some(kept);
        });
        differs
    }

    /// Overwrites bytes that begin at a number by those that are kept.
    pub fn restore(&self, number: u32, direction: usize, seq: u32, bytes: &mut [u8]) {
        let len = bytes.len();
        self.pieces(number, direction, seq, len, |at, kept| {
            if let Some(place) = bytes.get_mut(at..at + kept.len()) {
                place.copy_from_slice(kept);
            }
        });
    }
}

#[cfg(test)]
mod tests;
