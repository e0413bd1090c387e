//! Timers: a hierarchical timer wheel.
//!
//! # Theory of operation
//!
//! Time is a 32-bit clock of milliseconds that wraps after 49.7 days. Deadlines lie less than half of that
//! ahead. A tick is 64 ms, so the number of a tick has 26 bits: the lowest ten select a slot of level 0, the
//! next eight a slot of level 1, the last eight a slot of level 2. A timer waits in the lowest level whose
//! window contains the present tick: in level 0 if all bits above the lowest ten equal those of the present
//! tick, and so on. When the present enters a new window of level 0 or 1, the timers of the corresponding
//! slot above move down, one at a time. So the caller can bound the work of a call. Each timer moves at most
//! twice and expires once.
//!
//! A slot is a doubly linked list through the [`SessionState`]s. The first link of the first timer of a list
//! is the number of the slot with [`SLOT`] set. A timer expires after its tick is over: up to 64 ms after the
//! deadline, and never before it. Packets do not touch timers. When the timer of a session that saw packets
//! expires, the caller arms it again for the remaining time.

use crate::fcb::{SessionId, SessionState};

/// log2 of the milliseconds in a tick.
const TICK_BITS: u32 = 6;
/// Bits of the number of a tick. All arithmetic on ticks is modulo 2^`BITS`.
const BITS: u32 = 32 - TICK_BITS;
const MASK: u32 = (1 << BITS) - 1;
/// Bits of level 0, and of levels 0 and 1.
const LOW: u32 = 10;
const MIDDLE: u32 = 18;
/// First slots of levels 1 and 2.
const LEVEL1: u32 = 1 << LOW;
const LEVEL2: u32 = LEVEL1 + (1 << (MIDDLE - LOW));
const SLOTS: u32 = LEVEL2 + (1 << (BITS - MIDDLE));

/// No link: the timer is not armed, or the list ends.
const NONE: u32 = u32::MAX;
/// Set in the first link of a list, which is the number of the slot.
const SLOT: u32 = 1 << 31;
/// The links of a timer that is not armed.
pub(crate) const UNARMED: [u32; 2] = [NONE; 2];

/// The timers of a table. The links lie in the session states, which each method takes as an argument.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// First timer of each slot.
    heads: Box<[u32]>,
    /// Which slots of level 0 have timers.
    occupied: [u64; (LEVEL1 / 64) as usize],
    /// The tick whose timers expire next.
    tick: u32,
    armed: u32,
}

impl Wheel {
    pub fn new() -> Self {
        Wheel { heads: vec![NONE; SLOTS as usize].into(), occupied: [0; _], tick: 0, armed: 0 }
    }

    /// Number of armed timers.
    pub fn armed(&self) -> u32 {
        self.armed
    }

    /// Sets the present time if no timer is armed. So a long pause leaves nothing overdue.
    pub fn start(&mut self, now: u32) {
        if self.armed == 0 {
            self.tick = now >> TICK_BITS;
        }
    }

    /// Arms a timer for `blocks[id].expires`. It must not be armed.
    pub fn arm(&mut self, blocks: &mut [SessionState], id: SessionId) {
        self.armed += 1;
        self.link(blocks, id.0);
    }

    /// Disarms a timer. Does nothing if it is not armed.
    pub fn disarm(&mut self, blocks: &mut [SessionState], id: SessionId) {
        if blocks[id.0 as usize].timer[0] != NONE {
            self.armed -= 1;
            self.unlink(blocks, id.0);
        }
    }

    /// Returns the next timer that has expired by `now`, and disarms it. `budget` decreases by one for each
    /// timer that moves or expires. At zero the result is none; the next call continues.
    pub fn due(&mut self, blocks: &mut [SessionState], now: u32, budget: &mut u32) -> Option<SessionId> {
        self.start(now);
        let now = now >> TICK_BITS;
        while *budget > 0 {
            let above = [LEVEL2 + (self.tick >> MIDDLE), LEVEL1 + (self.tick >> LOW) % (LEVEL2 - LEVEL1)];
            if let Some(&id) = above.iter().map(|&slot| &self.heads[slot as usize]).find(|&&id| id != NONE) {
                *budget -= 1;
                self.unlink(blocks, id);
                self.link(blocks, id);
                continue;
            }
            let behind = now.wrapping_sub(self.tick) & MASK;
            if behind == 0 || behind > MASK / 2 {
                return None;
            }
            let id = self.heads[(self.tick % LEVEL1) as usize];
            if id != NONE {
                *budget -= 1;
                self.armed -= 1;
                self.unlink(blocks, id);
                return Some(SessionId(id));
            }
            self.tick = (self.tick + behind.min(self.idle())) & MASK;
        }
        None
    }

    /// The timer that expires next, if its tick is over or nearly over. For a prefetch.
    pub fn next(&self) -> Option<SessionId> {
        let id = self.heads[(self.tick % LEVEL1) as usize];
        (id != NONE).then_some(SessionId(id))
    }

    /// Ticks until the next tick of level 0 with timers, or until the end of the window.
    fn idle(&self) -> u32 {
        let at = self.tick % LEVEL1;
        let (word, bit) = ((at / 64) as usize, at % 64);
        let rest = self.occupied[word] >> bit;
        if rest != 0 {
            return rest.trailing_zeros();
        }
        let later = self.occupied[word + 1..].iter().position(|&w| w != 0);
        match later {
            Some(n) => (n as u32 + 1) * 64 - bit + self.occupied[word + 1 + n].trailing_zeros(),
            None => LEVEL1 - at,
        }
    }

    /// The slot of a deadline. Past deadlines get the present slot.
    fn slot(&self, expires: u32) -> u32 {
        let mut tick = expires >> TICK_BITS;
        if tick.wrapping_sub(self.tick) & MASK > MASK / 2 {
            tick = self.tick;
        }
        match tick ^ self.tick {
            d if d >> LOW == 0 => tick % LEVEL1,
            d if d >> MIDDLE == 0 => LEVEL1 + (tick >> LOW) % (LEVEL2 - LEVEL1),
            _ => LEVEL2 + (tick >> MIDDLE),
        }
    }

    fn link(&mut self, blocks: &mut [SessionState], id: u32) {
        let slot = self.slot(blocks[id as usize].expires);
        let next = std::mem::replace(&mut self.heads[slot as usize], id);
        if let Some(next) = blocks.get_mut(next as usize) {
            next.timer[0] = id;
        }
        blocks[id as usize].timer = [SLOT | slot, next];
        if slot < LEVEL1 {
            self.occupied[(slot / 64) as usize] |= 1 << (slot % 64);
        }
    }

    fn unlink(&mut self, blocks: &mut [SessionState], id: u32) {
        let [previous, next] = std::mem::replace(&mut blocks[id as usize].timer, UNARMED);
        if let Some(next) = blocks.get_mut(next as usize) {
            next.timer[0] = previous;
        }
        if previous & SLOT == 0 {
            blocks[previous as usize].timer[1] = next;
            return;
        }
        let slot = previous & !SLOT;
        self.heads[slot as usize] = next;
        if slot < LEVEL1 && next == NONE {
            self.occupied[(slot / 64) as usize] &= !(1 << (slot % 64));
        }
    }
}

#[cfg(test)]
mod tests;
