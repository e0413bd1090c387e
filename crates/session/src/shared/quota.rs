//! Room for sessions, which the workers borrow in blocks.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

/// Largest block.
const BLOCK: u32 = 256;
/// Blocks that the room has for each worker, at least.
const BLOCKS_EACH: u32 = 16;

/// Room for the sessions of all workers.
#[derive(Debug)]
pub(crate) struct Quota {
    total: u32,
    block: u32,
    left: AtomicU32,
    /// Some worker has found nothing left.
    is_wanted: AtomicBool,
}

/// Room that one worker has borrowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Sessions that the worker may have.
    pub limit: u32,
}

impl Quota {
    pub fn new(total: u32, workers: u16) -> Quota {
        let block = match workers {
            0 | 1 => total,
            _ => (total / (u32::from(workers) * BLOCKS_EACH)).clamp(1, BLOCK),
        };
        Quota { total, block, left: total.into(), is_wanted: false.into() }
    }

    /// The maximum number of sessions.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Room that no worker has borrowed.
    pub fn left(&self) -> u32 {
        self.left.load(Relaxed)
    }

    /// Borrows one more block. False if nothing is left.
    pub fn borrow(&self, room: &mut Room) -> bool {
        let mut taken = 0;
        let _ = self.left.fetch_update(Relaxed, Relaxed, |left| {
            taken = left.min(self.block);
            (taken > 0).then_some(left - taken)
        });
        room.limit += taken;
        if taken == 0 {
            self.is_wanted.store(true, Relaxed);
        }
        taken > 0
    }

    /// Gives back what a worker with `used` sessions does not need soon.
    pub fn give_back(&self, room: &mut Room, used: u32) {
        let unused = room.limit.saturating_sub(used);
        let is_wanted = self.is_wanted.load(Relaxed);
        let keep = if is_wanted || used == 0 { 0 } else { self.block };
        // Between one and two blocks, nothing moves: a worker does not give back what it borrows next.
        if unused > 2 * keep && self.block < self.total {
            room.limit -= unused - keep;
            self.left.fetch_add(unused - keep, Relaxed);
            if is_wanted {
                self.is_wanted.store(false, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_has_all_room() {
        let (quota, mut room) = (Quota::new(1000, 1), Room::default());
        assert!(quota.borrow(&mut room) && !quota.borrow(&mut room));
        assert_eq!((room.limit, quota.left()), (1000, 0));
        quota.give_back(&mut room, 0);
        assert_eq!(room.limit, 1000, "nobody else needs it");
    }

    #[test]
    fn any_worker_can_have_all_room() {
        let quota = Quota::new(1000, 4);
        let mut rooms = [Room::default(); 4];
        assert!(quota.borrow(&mut rooms[1]) && quota.borrow(&mut rooms[2]));
        while quota.borrow(&mut rooms[0]) {}
        assert_eq!(rooms.iter().map(|room| room.limit).sum::<u32>(), 1000);
        assert!(rooms[0].limit > 900);
        // Room that others do not use comes back when it is wanted.
        rooms[1..].iter_mut().for_each(|room| quota.give_back(room, 0));
        while quota.borrow(&mut rooms[0]) {}
        assert_eq!(rooms[0].limit, 1000);
        quota.give_back(&mut rooms[0], 10);
        assert_eq!((rooms[0].limit, quota.left()), (10, 990));
    }

    #[test]
    fn a_small_reserve_stays() {
        let quota = Quota::new(100_000, 2);
        let mut room = Room::default();
        for _ in 0..4 {
            quota.borrow(&mut room);
        }
        quota.give_back(&mut room, 100);
        assert_eq!(room.limit, 100 + BLOCK);
        quota.give_back(&mut room, 10);
        assert_eq!(room.limit, 100 + BLOCK);
    }
}
