//! A page of a table: up to 256 keys whose hashes share their first bits.
//!
//! Theory of operation. A key's hash chooses one group of eight lanes; the key lives in one of them or not in this page.
//! A lookup therefore looks at one group of tags, and at what stands in a lane only where a tag agrees. A full group
//! makes the page double its groups, up to [`MAX_GROUPS`], and then split. Tags stand apart from keys and owners: the
//! tags are what every packet touches.

use std::sync::Arc;

use mmb_packet::prefetch;

use crate::group::{Group, LANES};
use crate::hash::{Hash, Seeds};
use crate::owner::Owner;

/// Most groups in a page; a power of two. At 32 a page's copy (tags, keys, owners) is some 6 KiB, what its keys lead to not counted.
pub(crate) const MAX_GROUPS: usize = 32;

/// A page whose two halves together hold no more keys than this becomes one again.
const MERGE: usize = MAX_GROUPS * LANES / 8;

/// A page; cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub tags: Arc<[Group]>,
    pub body: Arc<Body>,
}

/// What belongs to the tags: arrays over all lanes, lane `i` of group `g` at `g * LANES + i`. One cache line.
#[repr(align(64))]
#[derive(Clone, Debug)]
pub(crate) struct Body {
    /// How many leading hash bits the page's keys share.
    pub depth: u32,
    /// Keys in the page.
    pub len: u32,
    keys: Box<[u128]>,
    values: Box<[Value]>,
    owners: Vec<Owner>,
}

const _: () = assert!(size_of::<Body>() == 64);

/// A slot, or with the top bit set an index in [`Body::owners`]: most keys have one rule.
#[derive(Clone, Copy, Debug, Default)]
struct Value(u32);

impl Value {
    /// Slots are below this.
    const OWNER: u32 = 1 << 31;

    fn owner(self) -> Option<usize> {
        (self.0 & Self::OWNER != 0).then_some((self.0 & !Self::OWNER) as usize)
    }
}

impl Page {
    /// An empty page.
    pub fn new(depth: u32, groups: usize) -> Self {
        let lanes = groups * LANES;
        let (keys, values) = (vec![0; lanes].into(), vec![Value::default(); lanes].into());
        let body = Body { depth, len: 0, keys, values, owners: Vec::new() };
        Page { tags: vec![Group::EMPTY; groups].into(), body: Arc::new(body) }
    }

    /// A page with these keys, with as few groups as hold them; None if [`MAX_GROUPS`] do not.
    fn build(seeds: &Seeds, depth: u32, least: usize, keys: &[(u128, Owner)]) -> Option<Self> {
        let mut groups = least.max((keys.len() * 2 / LANES).next_power_of_two().min(MAX_GROUPS));
        while groups <= MAX_GROUPS {
            let mut page = Page::new(depth, groups);
            if keys.iter().all(|(key, owner)| page.place(seeds.hash(*key), *key, owner.clone())) {
                return Some(page);
            }
            groups *= 2;
        }
        None
    }

    /// Puts a key that is not in the page into a free lane of its group; false: there is none.
    pub fn place(&mut self, hash: Hash, key: u128, owner: Owner) -> bool {
        let group = hash.group(self.tags.len());
        let Some(lane) = self.tags[group].free() else { return false };
        Arc::make_mut(&mut self.tags)[group].set(lane, hash.tag());
        let body = Arc::make_mut(&mut self.body);
        body.keys[group * LANES + lane] = key;
        body.set(group * LANES + lane, owner);
        body.len += 1;
        true
    }

    /// Frees a lane.
    pub fn free(&mut self, at: usize) {
        Arc::make_mut(&mut self.tags)[at / LANES].set(at % LANES, 0);
        let body = Arc::make_mut(&mut self.body);
        body.set(at, Owner::One(0));
        body.len -= 1;
    }

    /// Changes what a lane's key leads to; [`Owner::Free`] frees the lane. Returns whether it did, too.
    pub fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut Owner) -> R) -> (R, bool) {
        let body = Arc::make_mut(&mut self.body);
        let mut owner = match body.values[at].owner() {
            Some(index) => std::mem::replace(&mut body.owners[index], Owner::Free),
            None => Owner::One(body.values[at].0),
        };
        let result = change(&mut owner);
        if matches!(owner, Owner::Free) {
            self.free(at);
            return (result, true);
        }
        body.set(at, owner);
        (result, false)
    }

    /// The lane of a key.
    pub fn find(&self, hash: Hash, key: u128) -> Option<usize> {
        self.candidates(hash).find(|&at| self.body.keys[at] == key)
    }

    /// The same keys in more groups; None if the page has [`MAX_GROUPS`] already.
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

    /// One page with the keys of both halves, if they are few.
    pub fn merged(&self, other: &Self, seeds: &Seeds) -> Option<Self> {
        if self.body.depth == 0
            || self.body.depth != other.body.depth
            || (self.body.len + other.body.len) as usize > MERGE
        {
            return None;
        }
        let keys: Vec<_> = self.keys().chain(other.keys()).collect();
        Self::build(seeds, self.body.depth - 1, 1, &keys)
    }

    /// All keys and their owners.
    pub fn keys(&self) -> impl Iterator<Item = (u128, Owner)> + '_ {
        self.lanes().map(|at| self.lane(at))
    }

    /// A lane's key and owner.
    pub fn lane(&self, at: usize) -> (u128, Owner) {
        (self.body.keys[at], self.body.get(at))
    }

    /// The lanes in use.
    pub fn lanes(&self) -> impl Iterator<Item = usize> + '_ {
        self.tags.iter().enumerate().flat_map(|(g, group)| group.used().map(move |l| g * LANES + l))
    }

    /// The group for a hash, and its first lane.
    #[inline(always)]
    pub fn group(&self, hash: Hash) -> (usize, &Group) {
        let group = hash.group(self.tags.len());
        (group * LANES, &self.tags[group])
    }

    /// The lanes of the keys that may be the one with this hash.
    #[inline(always)]
    pub fn candidates(&self, hash: Hash) -> impl Iterator<Item = usize> + use<> {
        let group = hash.group(self.tags.len());
        self.tags[group].find(hash.tag()).map(move |lane| group * LANES + lane)
    }

    /// Bytes of memory, clones' shares included; what owners point to is not.
    pub fn bytes(&self) -> usize {
        let lanes = self.tags.len() * LANES;
        lanes * (size_of::<u16>() + size_of::<u128>() + size_of::<Value>())
            + self.body.owners.len() * size_of::<Owner>()
            + size_of::<Body>()
    }
}

impl Body {
    /// What a lane's key leads to.
    pub fn get(&self, at: usize) -> Owner {
        match self.values[at].owner() {
            Some(index) => self.owners[index].clone(),
            None => Owner::One(self.values[at].0),
        }
    }

    /// Replaces what a lane's key leads to; owners stay dense.
    fn set(&mut self, at: usize, owner: Owner) {
        let index = self.values[at].owner();
        match (index, owner) {
            (None, Owner::One(slot)) => self.values[at] = Value(slot & !Value::OWNER),
            (Some(index), Owner::One(slot)) => {
                self.values[at] = Value(slot & !Value::OWNER);
                self.owners.swap_remove(index);
                let moved = Value(self.owners.len() as u32 | Value::OWNER);
                if let Some(value) = self.values.iter_mut().find(|value| value.0 == moved.0) {
                    *value = Value(index as u32 | Value::OWNER);
                }
            }
            (Some(index), owner) => self.owners[index] = owner,
            (None, owner) => {
                self.values[at] = Value(self.owners.len() as u32 | Value::OWNER);
                self.owners.push(owner);
            }
        }
    }

    /// Brings a lane's key and value close.
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

    /// What the key in a lane leads to: a slot or an owner.
    #[inline(always)]
    pub fn value(&self, at: usize) -> Result<&u32, &Owner> {
        let value = &self.values[at];
        value.owner().map_or(Ok(&value.0), |index| Err(&self.owners[index]))
    }
}
