//! A page of a table: up to 256 keys whose hashes share their first bits.
//!
//! Theory of operation. The hash of a key selects one group of eight lanes. The key is in one of them or not
//! in the page. A lookup reads one group of tags, and reads a lane only if its tag agrees. When a group is
//! full, the page doubles its groups up to [`MAX_GROUPS`], and then splits. Tags are stored apart from keys
//! and values, because every packet reads the tags.

use std::sync::Arc;

use mmb_packet::prefetch;

use super::hash::{Hash, Seeds};
use super::tag_group::{LANES, TagGroup};

/// Maximum number of groups in a page; a power of two. A copy of a page with 32 groups is about 6 KiB,
/// without the memory that values refer to.
pub(crate) const MAX_GROUPS: usize = 32;

/// Two halves with at most this many keys together are merged into one page.
const MAX_MERGED_KEYS: usize = MAX_GROUPS * LANES / 8;

/// The value of a key in a page. Values that are a single rule's slot are stored in place.
pub(crate) trait PageValue: Clone {
    /// The value of a free lane.
    const FREE: Self;
    /// The value for a single slot.
    fn of_rule(slot: u32) -> Self;
    /// The slot, if the value is a single slot.
    fn as_rule(&self) -> Option<u32>;
    /// Whether the key leads to nothing.
    fn is_free(&self) -> bool;
}

/// A page; cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Page<V> {
    pub tags: Arc<[TagGroup]>,
    pub body: Arc<PageBody<V>>,
}

/// Keys and values over all lanes; lane `i` of group `g` is at `g * LANES + i`. One cache line.
#[repr(align(64))]
#[derive(Clone, Debug)]
pub(crate) struct PageBody<V> {
    /// Number of leading hash bits that the page's keys share.
    pub depth: u32,
    /// Number of keys in the page.
    pub len: u32,
    keys: Box<[u128]>,
    values: Box<[LaneValue]>,
    stored: Vec<V>,
}

const _: () = assert!(size_of::<PageBody<u128>>() == 64);

/// A slot, or with the top bit set an index in [`PageBody::stored`]. Most keys have one rule.
#[derive(Clone, Copy, Debug, Default)]
struct LaneValue(u32);

impl LaneValue {
    /// Slots are below this.
    const STORED: u32 = 1 << 31;

    fn index(self) -> Option<usize> {
        (self.0 & Self::STORED != 0).then_some((self.0 & !Self::STORED) as usize)
    }
}

impl<V: PageValue> Page<V> {
    /// An empty page.
    pub fn new(depth: u32, groups: usize) -> Self {
        let lanes = groups * LANES;
        let (keys, values) = (vec![0; lanes].into(), vec![LaneValue::default(); lanes].into());
        let body = PageBody { depth, len: 0, keys, values, stored: Vec::new() };
        Page { tags: vec![TagGroup::EMPTY; groups].into(), body: Arc::new(body) }
    }

    /// A page with these keys and as few groups as possible. None if [`MAX_GROUPS`] are not enough.
    fn build(seeds: &Seeds, depth: u32, least: usize, keys: &[(u128, V)]) -> Option<Self> {
        let mut groups = least.max((keys.len() * 2 / LANES).next_power_of_two().min(MAX_GROUPS));
        while groups <= MAX_GROUPS {
            let mut page = Page::new(depth, groups);
            if keys.iter().all(|(key, value)| page.place(seeds.hash(*key), *key, value.clone())) {
                return Some(page);
            }
            groups *= 2;
        }
        None
    }

    /// Inserts a key that is not in the page. Returns false if its group is full.
    pub fn place(&mut self, hash: Hash, key: u128, value: V) -> bool {
        let group = hash.group(self.tags.len());
        let Some(lane) = self.tags[group].first_free() else { return false };
        Arc::make_mut(&mut self.tags)[group].set(lane, hash.tag());
        let body = Arc::make_mut(&mut self.body);
        body.keys[group * LANES + lane] = key;
        body.set(group * LANES + lane, value);
        body.len += 1;
        true
    }

    /// Frees a lane.
    pub fn free(&mut self, at: usize) {
        Arc::make_mut(&mut self.tags)[at / LANES].set(at % LANES, 0);
        let body = Arc::make_mut(&mut self.body);
        body.set(at, V::of_rule(0));
        body.len -= 1;
    }

    /// Changes the value of a lane's key. A free value frees the lane. Also returns whether the lane was
    /// freed.
    pub fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut V) -> R) -> (R, bool) {
        let body = Arc::make_mut(&mut self.body);
        let mut value = match body.values[at].index() {
            Some(index) => std::mem::replace(&mut body.stored[index], V::FREE),
            None => V::of_rule(body.values[at].0),
        };
        let result = change(&mut value);
        if value.is_free() {
            self.free(at);
            return (result, true);
        }
        body.set(at, value);
        (result, false)
    }

    /// The lane of a key.
    pub fn find(&self, hash: Hash, key: u128) -> Option<usize> {
        self.candidates(hash).find(|&at| self.body.keys[at] == key)
    }

    /// A page with the same keys in more groups. None if the page already has [`MAX_GROUPS`].
    pub fn grown(&self, seeds: &Seeds) -> Option<Self> {
        let keys: Vec<_> = self.keys().collect();
        Self::build(seeds, self.body.depth, self.tags.len() * 2, &keys)
    }

    /// The keys whose next hash bit is 0, and those whose next bit is 1.
    pub fn split(&self, seeds: &Seeds) -> Option<(Self, Self)> {
        let depth = self.body.depth + 1;
        let (high, low): (Vec<_>, Vec<_>) =
            self.keys().partition(|(key, _)| seeds.hash(*key).directory(depth) & 1 != 0);
        Some((Self::build(seeds, depth, 1, &low)?, Self::build(seeds, depth, 1, &high)?))
    }

    /// One page with the keys of both halves, if they are few enough.
    pub fn merged(&self, other: &Self, seeds: &Seeds) -> Option<Self> {
        if self.body.depth == 0
            || self.body.depth != other.body.depth
            || (self.body.len + other.body.len) as usize > MAX_MERGED_KEYS
        {
            return None;
        }
        let keys: Vec<_> = self.keys().chain(other.keys()).collect();
        Self::build(seeds, self.body.depth - 1, 1, &keys)
    }

    /// All keys and their values.
    pub fn keys(&self) -> impl Iterator<Item = (u128, V)> + '_ {
        self.lanes().map(|at| self.lane(at))
    }

    /// A lane's key and value.
    pub fn lane(&self, at: usize) -> (u128, V) {
        (self.body.keys[at], self.body.get(at))
    }

    /// The lanes in use.
    pub fn lanes(&self) -> impl Iterator<Item = usize> + '_ {
        self.tags.iter().enumerate().flat_map(|(g, group)| group.used().map(move |l| g * LANES + l))
    }

    /// The first lane of the group for a hash, and the group.
    #[inline(always)]
    pub fn group(&self, hash: Hash) -> (usize, &TagGroup) {
        let group = hash.group(self.tags.len());
        (group * LANES, &self.tags[group])
    }

    /// The lanes whose tags agree with the hash.
    #[inline(always)]
    pub fn candidates(&self, hash: Hash) -> impl Iterator<Item = usize> + use<V> {
        let group = hash.group(self.tags.len());
        self.tags[group].find(hash.tag()).map(move |lane| group * LANES + lane)
    }

    /// Bytes of memory, including memory shared with clones, without memory that values refer to.
    pub fn bytes(&self) -> usize {
        let lanes = self.tags.len() * LANES;
        lanes * (size_of::<u16>() + size_of::<u128>() + size_of::<LaneValue>())
            + self.body.stored.len() * size_of::<V>()
            + size_of::<PageBody<V>>()
    }
}

impl<V: PageValue> PageBody<V> {
    /// The value in a lane.
    pub fn get(&self, at: usize) -> V {
        match self.values[at].index() {
            Some(index) => self.stored[index].clone(),
            None => V::of_rule(self.values[at].0),
        }
    }

    /// Replaces the value in a lane. `stored` stays dense.
    fn set(&mut self, at: usize, value: V) {
        let index = self.values[at].index();
        match (index, value.as_rule()) {
            (None, Some(slot)) => self.values[at] = LaneValue(slot & !LaneValue::STORED),
            (Some(index), Some(slot)) => {
                self.values[at] = LaneValue(slot & !LaneValue::STORED);
                self.stored.swap_remove(index);
                let moved = LaneValue(self.stored.len() as u32 | LaneValue::STORED);
                if let Some(value) = self.values.iter_mut().find(|value| value.0 == moved.0) {
                    *value = LaneValue(index as u32 | LaneValue::STORED);
                }
            }
            (Some(index), None) => self.stored[index] = value,
            (None, None) => {
                self.values[at] = LaneValue(self.stored.len() as u32 | LaneValue::STORED);
                self.stored.push(value);
            }
        }
    }

    /// Prefetches a lane's key and value.
    #[inline(always)]
    pub fn prefetch(&self, at: usize) {
        if let (Some(key), Some(value)) = (self.keys.get(at), self.values.get(at)) {
            prefetch::read(key);
            prefetch::read(value);
        }
    }

    /// The key in a lane.
    #[inline(always)]
    pub fn key(&self, at: usize) -> u128 {
        self.keys[at]
    }

    /// The value in a lane: a slot in place, or a stored value.
    #[inline(always)]
    pub fn value(&self, at: usize) -> Result<&u32, &V> {
        let value = &self.values[at];
        value.index().map_or(Ok(&value.0), |index| Err(&self.stored[index]))
    }
}
