//! A page of a table: up to 256 keys whose hashes share their first bits.
//!
//! Theory of operation. The hash of a key selects one group of eight lanes. The key is in one of them or not
//! in the page. A lookup reads one group, a cache line with tags and values, and looks at a lane only if its
//! tag agrees. When a group is full, the page doubles its groups up to [`MAX_GROUPS`], and then splits. Keys
//! are stored apart, because they are read only for values that are single rules.

use std::sync::Arc;

use super::extra_bits::{ANY_VALUE, ExtraBits};
use super::hash::{Hash, Seeds};
use super::tag_group::{LANES, LaneBits, TagGroup};

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
    /// The values of the extra bits that some entry accepts.
    fn accepted(&self, extra: &ExtraBits) -> u16;
}

/// How a table's keys are hashed and checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashing {
    pub seeds: Seeds,
    pub extra: ExtraBits,
}

impl Hashing {
    /// The hash of a key.
    #[inline(always)]
    pub fn hash(&self, key: u128) -> Hash {
        self.seeds.hash(key)
    }
}

/// A page; cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Page<V> {
    pub groups: Arc<[Group]>,
    pub body: Arc<PageBody<V>>,
}

/// Tags and values of eight lanes. One cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub tags: TagGroup,
    /// For each lane the values of [`ExtraBits`] that are accepted.
    accepted: [u16; LANES],
    values: [LaneValue; LANES],
}

const _: () = assert!(size_of::<Group>() == 64);

impl Group {
    /// A group without used lanes.
    pub const EMPTY: Group =
        Group { tags: TagGroup::EMPTY, accepted: [ANY_VALUE; LANES], values: [LaneValue(0); LANES] };

    /// The lanes that hold a tag and accept a value of the extra bits.
    #[inline(always)]
    pub fn find(&self, tag: u16, value: u16) -> LaneBits {
        self.tags.find_accepting(tag, &self.accepted, value)
    }

    /// For each lane the values of the extra bits that are accepted.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn accepted(&self) -> &[u16; LANES] {
        &self.accepted
    }

    /// The value in a lane.
    #[inline(always)]
    pub fn value(&self, lane: usize) -> &LaneValue {
        &self.values[lane % LANES]
    }
}

/// Data that few lookups read. Lane `i` of group `g` is at `g * LANES + i`. One cache line.
#[repr(align(64))]
#[derive(Clone, Debug)]
pub(crate) struct PageBody<V> {
    /// Number of leading hash bits that the page's keys share.
    pub depth: u32,
    /// Number of keys in the page.
    pub len: u32,
    keys: Box<[u128]>,
    stored: Vec<V>,
}

const _: () = assert!(size_of::<PageBody<u128>>() == 64);

/// A slot, or with the top bit set an index of a stored value. Most keys have one rule.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneValue(u32);

impl LaneValue {
    /// Slots are below this.
    const STORED: u32 = 1 << 31;

    fn stored(index: usize) -> LaneValue {
        LaneValue(index as u32 | Self::STORED)
    }

    #[inline(always)]
    fn index(self) -> Option<usize> {
        (self.0 & Self::STORED != 0).then_some((self.0 & !Self::STORED) as usize)
    }
}

impl<V: PageValue> Page<V> {
    /// An empty page.
    pub fn new(depth: u32, groups: usize) -> Self {
        let lanes = groups * LANES;
        let body = PageBody { depth, len: 0, keys: vec![0; lanes].into(), stored: Vec::new() };
        Page { groups: vec![Group::EMPTY; groups].into(), body: Arc::new(body) }
    }

    /// A page with these keys and as few groups as possible. None if [`MAX_GROUPS`] are not enough.
    fn build(hashing: &Hashing, depth: u32, least: usize, keys: &[(u128, V)]) -> Option<Self> {
        let mut groups = least.max((keys.len() * 2 / LANES).next_power_of_two().min(MAX_GROUPS));
        while groups <= MAX_GROUPS {
            let mut page = Page::new(depth, groups);
            if keys.iter().all(|(key, value)| page.place(hashing, *key, value.clone())) {
                return Some(page);
            }
            groups *= 2;
        }
        None
    }

    /// Inserts a key that is not in the page. Returns false if its group is full.
    pub fn place(&mut self, hashing: &Hashing, key: u128, value: V) -> bool {
        let hash = hashing.hash(key);
        let group = hash.group(self.groups.len());
        let Some(lane) = self.groups[group].tags.first_free() else { return false };
        Arc::make_mut(&mut self.groups)[group].tags.set(lane, hash.tag());
        self.set(group * LANES + lane, value, &hashing.extra);
        let body = Arc::make_mut(&mut self.body);
        body.keys[group * LANES + lane] = key;
        body.len += 1;
        true
    }

    /// Frees a lane.
    pub fn free(&mut self, at: usize) {
        Arc::make_mut(&mut self.groups)[at / LANES].tags.set(at % LANES, 0);
        self.set(at, V::of_rule(0), &ExtraBits::default());
        Arc::make_mut(&mut self.body).len -= 1;
    }

    /// Changes the value of a lane's key. A free value frees the lane. Also returns whether the lane was
    /// freed.
    pub fn change<R>(&mut self, at: usize, extra: &ExtraBits, change: impl FnOnce(&mut V) -> R) -> (R, bool) {
        let value = self.lane_value(at);
        let mut value = match value.index() {
            Some(index) => std::mem::replace(&mut Arc::make_mut(&mut self.body).stored[index], V::FREE),
            None => V::of_rule(value.0),
        };
        let result = change(&mut value);
        if value.is_free() {
            self.free(at);
            return (result, true);
        }
        self.set(at, value, extra);
        (result, false)
    }

    /// The lane of a key.
    pub fn find(&self, hash: Hash, key: u128) -> Option<usize> {
        self.candidates(hash).find(|&at| self.body.keys[at] == key)
    }

    /// A page with the same keys in more groups. None if the page already has [`MAX_GROUPS`].
    pub fn grown(&self, hashing: &Hashing) -> Option<Self> {
        let keys: Vec<_> = self.keys().collect();
        Self::build(hashing, self.body.depth, self.groups.len() * 2, &keys)
    }

    /// The keys whose next hash bit is 0, and those whose next bit is 1.
    pub fn split(&self, hashing: &Hashing) -> Option<(Self, Self)> {
        let depth = self.body.depth + 1;
        let (high, low): (Vec<_>, Vec<_>) =
            self.keys().partition(|(key, _)| hashing.hash(*key).directory(depth) & 1 != 0);
        Some((Self::build(hashing, depth, 1, &low)?, Self::build(hashing, depth, 1, &high)?))
    }

    /// One page with the keys of both halves, if they are few enough.
    pub fn merged(&self, other: &Self, hashing: &Hashing) -> Option<Self> {
        if self.body.depth == 0
            || self.body.depth != other.body.depth
            || (self.body.len + other.body.len) as usize > MAX_MERGED_KEYS
        {
            return None;
        }
        let keys: Vec<_> = self.keys().chain(other.keys()).collect();
        Self::build(hashing, self.body.depth - 1, 1, &keys)
    }

    /// All keys and their values.
    pub fn keys(&self) -> impl Iterator<Item = (u128, V)> + '_ {
        self.lanes().map(|at| self.lane(at))
    }

    /// A lane's key and value.
    pub fn lane(&self, at: usize) -> (u128, V) {
        (self.body.keys[at], self.value(at).map_or_else(V::clone, |slot| V::of_rule(*slot)))
    }

    /// The lanes in use.
    pub fn lanes(&self) -> impl Iterator<Item = usize> + '_ {
        self.groups.iter().enumerate().flat_map(|(g, group)| group.tags.used().map(move |l| g * LANES + l))
    }

    /// The group for a hash.
    #[inline(always)]
    pub fn group(&self, hash: Hash) -> &Group {
        &self.groups[hash.group(self.groups.len())]
    }

    /// The position of a lane in the group for a hash.
    #[inline(always)]
    pub fn position(&self, hash: Hash, lane: usize) -> usize {
        hash.group(self.groups.len()) * LANES + lane
    }

    /// The lanes whose tags agree with the hash, and whose entries may accept the value of the extra bits.
    #[inline(always)]
    pub fn accepting(&self, hash: Hash, value: impl FnOnce() -> u16) -> impl Iterator<Item = usize> {
        let (first, group) = (self.position(hash, 0), self.group(hash));
        let tagged = group.tags.find(hash.tag());
        // Most keys that pass a filter by mistake stop here.
        let lanes = if tagged.is_empty() { tagged } else { group.find(hash.tag(), value()) };
        lanes.map(move |lane| first + lane)
    }

    /// The lanes whose tags agree with the hash.
    pub fn candidates(&self, hash: Hash) -> impl Iterator<Item = usize> + use<V> {
        let first = self.position(hash, 0);
        self.group(hash).tags.find(hash.tag()).map(move |lane| first + lane)
    }

    /// Bytes of memory, including memory shared with clones, without memory that values refer to.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.groups)
            + size_of_val(&*self.body.keys)
            + self.body.stored.len() * size_of::<V>()
            + size_of::<PageBody<V>>()
    }

    fn lane_value(&self, at: usize) -> LaneValue {
        self.groups[at / LANES].values[at % LANES]
    }

    /// The value in a lane: a slot in place, or a stored value.
    #[inline(always)]
    pub fn value(&self, at: usize) -> Result<&u32, &V> {
        self.body.resolve(self.groups[at / LANES].value(at % LANES))
    }

    /// Replaces the value in a lane. `stored` stays dense.
    fn set(&mut self, at: usize, value: V, extra: &ExtraBits) {
        let groups = Arc::make_mut(&mut self.groups);
        groups[at / LANES].accepted[at % LANES] = value.accepted(extra);
        let own = &mut groups[at / LANES].values[at % LANES];
        let index = own.index();
        if let (None, Some(slot)) = (index, value.as_rule()) {
            *own = LaneValue(slot & !LaneValue::STORED);
            return;
        }
        let stored = &mut Arc::make_mut(&mut self.body).stored;
        match (index, value.as_rule()) {
            (Some(index), Some(slot)) => {
                *own = LaneValue(slot & !LaneValue::STORED);
                stored.swap_remove(index);
                let moved = LaneValue::stored(stored.len());
                let mut values = groups.iter_mut().flat_map(|group| &mut group.values);
                if let Some(value) = values.find(|value| value.0 == moved.0) {
                    *value = LaneValue::stored(index);
                }
            }
            (Some(index), None) => stored[index] = value,
            (None, _) => {
                *own = LaneValue::stored(stored.len());
                stored.push(value);
            }
        }
    }
}

impl<V: PageValue> PageBody<V> {
    /// The key in a lane.
    #[inline(always)]
    pub fn key(&self, at: usize) -> &u128 {
        &self.keys[at]
    }

    /// A lane's value: a slot, or a stored value.
    #[inline(always)]
    pub fn resolve<'a>(&'a self, value: &'a LaneValue) -> Result<&'a u32, &'a V> {
        value.index().map_or(Ok(&value.0), |index| Err(&self.stored[index]))
    }
}
