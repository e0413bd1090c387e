//! Lists of numbers that many sessions have in common, kept once and named by a number.
//!
//! Theory of operation. A list is looked up by its contents in an open table of (hash, number) and counted: every holder
//! of the number has taken it once, and gives it back once. When the last one has done so, the list goes and its number
//! is given out again, so that there are never more lists than holders. The table probes linearly and closes the gap
//! when an entry leaves it, so that it knows no tombstones and never has to be cleaned. Short lists, which nearly all
//! are, lie in the entry itself.

/// Number of the empty list, which is always there and is not counted.
pub(crate) const EMPTY: u32 = 0;

const INLINE: usize = 6;
const LEAST: usize = 64;

#[derive(Debug)]
enum List {
    Short(u8, [u32; INLINE]),
    Long(Box<[u32]>),
}

impl List {
    fn new(list: &[u32]) -> List {
        if list.len() > INLINE {
            return List::Long(list.into());
        }
        let mut short = [0; INLINE];
        short[..list.len()].copy_from_slice(list);
        List::Short(list.len() as u8, short)
    }

    fn get(&self) -> &[u32] {
        match self {
            List::Short(len, list) => &list[..usize::from(*len).min(INLINE)],
            List::Long(list) => list,
        }
    }
}

#[derive(Debug)]
struct Entry {
    /// How often the number was taken; 0: the entry is free.
    refs: u32,
    /// What tells apart lists with the same numbers in them.
    tag: u32,
    list: List,
}

impl Entry {
    /// Whether it is in use, and for this list.
    fn is(&self, tag: u32, list: &[u32]) -> bool {
        let own = self.list.get();
        // Short as they are, it is not worth a call.
        self.refs > 0
            && self.tag == tag
            && own.len() == list.len()
            && own.iter().zip(list).all(|(a, b)| a == b)
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Lists {
    entries: Vec<Entry>,
    /// Hash and number; number 0: empty. A power of two of them, at most half in use.
    index: Vec<(u32, u32)>,
    free: Vec<u32>,
    /// Numbers stay below this.
    most: u32,
    /// The one that was taken last: likely the next one to be.
    last: u32,
    /// How many lists have gone so far.
    gone: u64,
}

/// A list that was taken, to be taken once more without a look at what is in it: until any list goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Again {
    number: u32,
    gone: u64,
}

/// What [`Lists::take`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub number: u32,
    /// The list was not there before.
    pub new: bool,
}

impl Lists {
    /// No lists but the empty one; all numbers will be below `most`.
    pub fn new(most: u32) -> Lists {
        let empty = Entry { refs: 0, tag: 0, list: List::new(&[]) };
        Lists {
            entries: vec![empty],
            index: vec![(0, 0); LEAST],
            free: Vec::new(),
            most,
            last: EMPTY,
            gone: 0,
        }
    }

    /// How many lists there are, but for the empty one.
    pub fn len(&self) -> usize {
        self.entries.len() - 1 - self.free.len()
    }

    /// The list with this number; empty if there is none.
    #[inline]
    pub fn get(&self, number: u32) -> &[u32] {
        self.entries.get(number as usize).map_or(&[], |entry| entry.list.get())
    }

    /// How often a number was taken and not given back.
    pub fn refs(&self, number: u32) -> u32 {
        self.entries.get(number as usize).map_or(0, |entry| entry.refs)
    }

    /// The number of the list with this tag and these contents, taken once more. None: all numbers are in use.
    pub fn take(&mut self, tag: u32, list: &[u32]) -> Option<Taken> {
        if let Some(entry) = self.entries.get_mut(self.last as usize)
            && entry.is(tag, list)
        {
            entry.refs += 1;
            return Some(Taken { number: self.last, new: false });
        }
        let hash = hash(tag, list);
        let mask = self.index.len() - 1;
        let mut at = hash as usize & mask;
        while let Some(&(other, number)) = self.index.get(at)
            && number != 0
        {
            if other == hash
                && let Some(entry) = self.entries.get_mut(number as usize)
                && entry.is(tag, list)
            {
                entry.refs += 1;
                self.last = number;
                return Some(Taken { number, new: false });
            }
            at = (at + 1) & mask;
        }
        self.add(tag, list, hash).map(|number| Taken { number, new: true })
    }

    /// What the list with this number, which the caller has, can be taken by once more.
    pub fn again(&self, number: u32) -> Again {
        Again { number, gone: self.gone }
    }

    /// Takes a list once more. None: it may not be there any more, and has to be looked up.
    #[inline]
    pub fn take_again(&mut self, again: Again) -> Option<u32> {
        let entry = self.entries.get_mut(again.number as usize).filter(|_| again.gone == self.gone)?;
        entry.refs += 1;
        Some(again.number)
    }

    fn add(&mut self, tag: u32, list: &[u32], hash: u32) -> Option<u32> {
        let entry = Entry { refs: 1, tag, list: List::new(list) };
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.entries.len() >= self.most as usize => return None,
            None => {
                self.entries.push(Entry { refs: 0, tag: 0, list: List::new(&[]) });
                self.entries.len() as u32 - 1
            }
        };
        *self.entries.get_mut(number as usize)? = entry;
        if self.len() * 2 > self.index.len() {
            self.grow();
        }
        self.place(hash, number);
        Some(number)
    }

    /// Writes an entry to the first empty place from its hash on.
    fn place(&mut self, hash: u32, number: u32) {
        let mask = self.index.len() - 1;
        let mut at = hash as usize & mask;
        while self.index[at].1 != 0 {
            at = (at + 1) & mask;
        }
        self.index[at] = (hash, number);
    }

    fn grow(&mut self) {
        let larger = vec![(0, 0); self.index.len() * 2];
        for (hash, number) in std::mem::replace(&mut self.index, larger) {
            if number != 0 {
                self.place(hash, number);
            }
        }
    }

    /// Gives a number back. True: nobody has it any more, and the list is gone.
    pub fn give_back(&mut self, number: u32) -> bool {
        let Some(entry) = self.entries.get_mut(number as usize).filter(|_| number != EMPTY) else {
            return false;
        };
        if entry.refs > 1 {
            entry.refs -= 1;
            return false;
        }
        let hash = hash(entry.tag, entry.list.get());
        *entry = Entry { refs: 0, tag: 0, list: List::new(&[]) };
        self.unplace(hash, number);
        self.free.push(number);
        self.gone += 1;
        true
    }

    /// Takes an entry out of the index and closes the gap: what follows moves up unless that would put it before the
    /// place that its hash names.
    fn unplace(&mut self, hash: u32, number: u32) {
        let mask = self.index.len() - 1;
        let mut gap = hash as usize & mask;
        while self.index[gap].1 != number {
            if self.index[gap].1 == 0 {
                return;
            }
            gap = (gap + 1) & mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let (hash, number) = self.index[at];
            if number == 0 {
                break;
            }
            let home = hash as usize & mask;
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(gap) & mask {
                self.index[gap] = (hash, number);
                gap = at;
            }
        }
        self.index[gap] = (0, 0);
    }
}

/// Multiplies and folds. Numbers of rules are not a stranger's to choose, so that no secret is needed.
#[inline]
fn hash(tag: u32, list: &[u32]) -> u32 {
    let mut h = u64::from(tag) ^ 0x9e37_79b9_7f4a_7c15;
    for &n in list {
        h = (h ^ u64::from(n)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        h ^= h >> 32;
    }
    h = h.wrapping_mul(0xa076_1d64_78bd_642f);
    (h >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn the_empty_list_needs_no_number() {
        let mut lists = Lists::new(10);
        assert_eq!(lists.get(EMPTY), &[] as &[u32]);
        assert!(!lists.give_back(EMPTY) && !lists.give_back(EMPTY));
        assert_eq!((lists.len(), lists.get(99)), (0, &[] as &[u32]));
    }

    #[test]
    fn numbers_run_out_and_come_back() {
        let mut lists = Lists::new(3);
        let first = lists.take(0, &[1]).expect("room");
        assert!(lists.take(0, &[2]).is_some() && lists.take(0, &[3]).is_none());
        assert_eq!(
            lists.take(0, &[1]),
            Some(Taken { number: first.number, new: false }),
            "that one is there"
        );
        assert!(!lists.give_back(first.number) && lists.give_back(first.number));
        assert_eq!(lists.take(0, &[3]), Some(Taken { number: first.number, new: true }));
    }

    #[test]
    fn what_may_have_gone_is_not_taken_again() {
        let mut lists = Lists::new(10);
        let kept = lists.take(0, &[1]).expect("room").number;
        let again = lists.again(kept);
        assert_eq!((lists.take_again(again), lists.refs(kept)), (Some(kept), 2));
        let other = lists.take(0, &[2]).expect("room").number;
        assert_eq!(lists.take_again(again), Some(kept), "others may come");
        assert!(lists.give_back(other) && lists.take_again(again).is_none(), "but not go");
        assert_eq!(lists.refs(kept), 3);
    }

    proptest! {
        /// Any order of taking and giving back, against a map: equal lists have equal numbers, different ones have not,
        /// and a list is there exactly as long as somebody has it.
        #[test]
        fn as_a_map(steps in prop::collection::vec((any::<bool>(), 0u32..3, prop::collection::vec(0u32..4, 0..9)), 1..400)) {
            let mut lists = Lists::new(1000);
            let mut model: HashMap<(u32, Vec<u32>), (u32, u32)> = HashMap::new();
            for (take, tag, list) in steps {
                let key = (tag, list.clone());
                if take {
                    let taken = lists.take(tag, &list).expect("room");
                    let entry = model.entry(key).or_insert((taken.number, 0));
                    prop_assert_eq!(taken, Taken { number: entry.0, new: entry.1 == 0 });
                    entry.1 += 1;
                } else if let Some(entry) = model.get_mut(&key) {
                    entry.1 -= 1;
                    prop_assert_eq!(lists.give_back(entry.0), entry.1 == 0);
                    if entry.1 == 0 {
                        model.remove(&key);
                    }
                }
                prop_assert_eq!(lists.len(), model.len());
                for ((_, list), (number, _)) in &model {
                    prop_assert_eq!(lists.get(*number), &list[..]);
                }
            }
        }
    }
}
