//! A page of a table: up to 512 keys whose hashes share their first bits.
//!
//! Theory of operation. A key's hash chooses one group of eight lanes; the key lives in one of them or not in this page.
//! A lookup therefore looks at one group of tags, and at keys only where a tag agrees. A full group makes the page
//! double its groups, up to [`MAX_GROUPS`], and then split. Tags stand apart from keys and values: the tags are what
//! every packet touches.

use std::sync::Arc;

use mmb_packet::prefetch;

use crate::group::{Group, LANES};
use crate::hash::{Hash, Seeds};
use crate::rules::{Nots, Owner, RuleList};

/// Most groups in a page; a power of two. At 64 a page's copy (tags, keys, values) is some 11 KiB for one-chunk keys.
pub(crate) const MAX_GROUPS: usize = 64;

/// A page whose two halves together hold no more keys than this becomes one again.
const MERGE: usize = MAX_GROUPS * LANES / 8;

/// A page; cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Page<const N: usize> {
    pub tags: Arc<[Group]>,
    pub body: Arc<Body<N>>,
}

/// What belongs to the tags: arrays over all lanes, lane `i` of group `g` at `g * LANES + i`.
#[derive(Clone, Debug)]
pub(crate) struct Body<const N: usize> {
    /// How many leading hash bits the page's keys share.
    pub depth: u32,
    /// Keys in the page.
    pub len: usize,
    keys: Vec<[u128; N]>,
    values: Vec<Value>,
    lists: Vec<Arc<RuleList>>,
}

/// A rule's slot, or with the top bit set an index in [`Body::lists`].
#[derive(Clone, Copy, Debug, Default)]
struct Value(u32);

impl Value {
    /// Slots are below this.
    const LIST: u32 = 1 << 31;

    fn list(self) -> Option<usize> {
        (self.0 & Self::LIST != 0).then_some((self.0 & !Self::LIST) as usize)
    }
}

/// What became of an insertion.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Insertion {
    /// The key is new.
    New,
    /// The key was there and has one rule more.
    Joined,
    /// No room for the key; nothing was done.
    Full,
}

/// What became of a removal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    /// The chunks that the rule's residual constraints read, as bits.
    pub chunks: u8,
    /// It was the key's last rule.
    pub last: bool,
}

impl<const N: usize> Page<N> {
    /// An empty page.
    pub fn new(depth: u32, groups: usize) -> Self {
        let lanes = groups * LANES;
        let (keys, values) = (vec![[0; N]; lanes], vec![Value::default(); lanes]);
        Page {
            tags: vec![Group::EMPTY; groups].into(),
            body: Arc::new(Body { depth, len: 0, keys, values, lists: Vec::new() }),
        }
    }

    /// A page with these keys, with as few groups as hold them; None if [`MAX_GROUPS`] do not.
    fn build(seeds: &Seeds, depth: u32, least: usize, keys: &[([u128; N], Owner)]) -> Option<Self> {
        let mut groups = least.max((keys.len() * 2 / LANES).next_power_of_two().min(MAX_GROUPS));
        while groups <= MAX_GROUPS {
            let mut page = Page::new(depth, groups);
            let (tags, body) = (Arc::make_mut(&mut page.tags), Arc::make_mut(&mut page.body));
            if keys.iter().all(|(key, owner)| body.place(tags, seeds.hash(key), key, owner)) {
                return Some(page);
            }
            groups *= 2;
        }
        None
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
            self.keys().partition(|(key, _)| seeds.hash(key).directory(depth) & 1 != 0);
        Some((Self::build(seeds, depth, 1, &low)?, Self::build(seeds, depth, 1, &high)?))
    }

    /// One page with the keys of both halves, if they are few.
    pub fn merged(&self, other: &Self, seeds: &Seeds) -> Option<Self> {
        if self.body.depth == 0
            || self.body.depth != other.body.depth
            || self.body.len + other.body.len > MERGE
        {
            return None;
        }
        let keys: Vec<_> = self.keys().chain(other.keys()).collect();
        Self::build(seeds, self.body.depth - 1, 1, &keys)
    }

    /// All keys and their owners.
    fn keys(&self) -> impl Iterator<Item = ([u128; N], Owner)> {
        let lanes =
            self.tags.iter().enumerate().flat_map(|(g, group)| group.used().map(move |l| g * LANES + l));
        lanes.map(|at| (self.body.keys[at], self.body.owner(at)))
    }

    /// The lanes of the keys that may be the one with this hash.
    #[inline(always)]
    pub fn candidates(&self, hash: Hash) -> impl Iterator<Item = usize> + use<N> {
        let group = hash.group(self.tags.len());
        self.tags[group].find(hash.tag()).map(move |lane| group * LANES + lane)
    }

    /// Adds a rule to a key, and the key if it is not there.
    pub fn insert(&mut self, hash: Hash, key: &[u128; N], slot: u32, nots: Option<&Nots>) -> Insertion {
        let Some(at) = self.candidates(hash).find(|&at| self.body.keys[at] == *key) else {
            if self.tags[hash.group(self.tags.len())].free().is_none() {
                return Insertion::Full;
            }
            let (tags, body) = (Arc::make_mut(&mut self.tags), Arc::make_mut(&mut self.body));
            body.place(tags, hash, key, &Owner::new(slot, nots));
            return Insertion::New;
        };
        let body = Arc::make_mut(&mut self.body);
        match body.values[at].list() {
            Some(list) => Arc::make_mut(&mut body.lists[list]).insert(slot, nots),
            None => {
                let mut list = RuleList::default();
                list.insert(body.values[at].0, None);
                list.insert(slot, nots);
                body.set_owner(at, Owner::Many(Arc::new(list)));
            }
        }
        Insertion::Joined
    }

    /// Takes a rule out; None: it is not here.
    pub fn remove(&mut self, hash: Hash, slot: u32) -> Option<Removal> {
        let at = self.candidates(hash).find(|&at| self.body.owns(at, slot))?;
        let body = Arc::make_mut(&mut self.body);
        let mut chunks = 0;
        let mut last = true;
        if let Some(index) = body.values[at].list() {
            let list = Arc::make_mut(&mut body.lists[index]);
            chunks = list.remove(slot)?;
            last = list.len() == 0;
            if let Some(only) = list.single() {
                body.set_owner(at, Owner::One(only));
            }
        }
        if last {
            body.set_owner(at, Owner::One(0));
            body.len -= 1;
            Arc::make_mut(&mut self.tags)[at / LANES].set(at % LANES, 0);
        }
        Some(Removal { chunks, last })
    }

    /// Bytes of memory, clones' shares included.
    pub fn bytes(&self) -> usize {
        let lanes = self.tags.len() * LANES;
        let lists: usize = self.body.lists.iter().map(|list| list.bytes()).sum();
        let lanes = lanes * (size_of::<u16>() + size_of::<[u128; N]>() + size_of::<Value>());
        lanes + lists + size_of::<Body<N>>() + size_of::<Self>()
    }
}

impl<const N: usize> Body<N> {
    fn owner(&self, at: usize) -> Owner {
        match self.values[at].list() {
            Some(list) => Owner::Many(self.lists[list].clone()),
            None => Owner::One(self.values[at].0),
        }
    }

    fn owns(&self, at: usize, slot: u32) -> bool {
        match self.values[at].list() {
            Some(list) => self.lists[list].contains(slot),
            None => self.values[at].0 == slot,
        }
    }

    /// Puts a key that is not in the page into a free lane of its group; false: there is none.
    fn place(&mut self, tags: &mut [Group], hash: Hash, key: &[u128; N], owner: &Owner) -> bool {
        let group = hash.group(tags.len());
        let Some(lane) = tags[group].free() else { return false };
        tags[group].set(lane, hash.tag());
        let at = group * LANES + lane;
        self.keys[at] = *key;
        self.len += 1;
        self.set_owner(at, owner.clone());
        true
    }

    /// Replaces a lane's owner; lists stay dense.
    fn set_owner(&mut self, at: usize, owner: Owner) {
        if let Some(old) = self.values[at].list() {
            self.values[at] = Value::default();
            let moved = Value((self.lists.len() - 1) as u32 | Value::LIST);
            self.lists.swap_remove(old);
            for value in self.values.iter_mut().filter(|v| v.0 == moved.0) {
                value.0 = old as u32 | Value::LIST;
            }
        }
        self.values[at] = match owner {
            Owner::One(slot) => Value(slot & !Value::LIST),
            Owner::Many(list) => {
                self.lists.push(list);
                Value((self.lists.len() - 1) as u32 | Value::LIST)
            }
        };
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
    pub fn key(&self, at: usize) -> Option<&[u128; N]> {
        self.keys.get(at)
    }

    /// What a lane's key leads to: one rule, or a list.
    #[inline(always)]
    pub fn value(&self, at: usize) -> Result<u32, &RuleList> {
        let value = self.values[at];
        match value.list() {
            None => Ok(value.0),
            Some(list) => Err(&self.lists[list]),
        }
    }
}
