//! A few entries that are compared one by one, as they say.
//!
//! Theory of operation. A leaf is a block of four entries, or a row of [blocks](crate::block) of sixteen, filled one after the other; a packet is
//! compared with all of them. It is meant for few: every change copies all.

use std::sync::Arc;

use mmb_packet::Window;
use mmb_packet::window::CHUNKS;

use crate::block::{Block, Narrow, Wide, chunk_of, first_words};
use crate::pattern::{Entry, Facts};
use crate::sink::Sink;
use crate::summary::Summary;
use crate::wide::Wide512;

/// Entries that a leaf holds where they are compared four at a time, and where sixteen.
const BY_FOUR: usize = 32;
const BY_SIXTEEN: usize = 64;

/// Those that ask for more than one chunk count so many times more.
const GUARDED: usize = 3;
/// Most entries that ask for more than one chunk and have, on average, nothing in it that tells them apart.
const ALIKE: usize = 4;

/// Wide blocks that a leaf has at most while it is not full.
const MOST_WIDE: usize = BY_SIXTEEN / 16 + CHUNKS;

/// Entries that a leaf holds on this machine.
pub(crate) fn most() -> usize {
    if Wide512::detect().is_some() { BY_SIXTEEN } else { BY_FOUR }
}

/// A rule's slot and one of its entries.
pub(crate) type Item = (u32, Arc<Entry>);

/// Some entries; cloning shares them.
#[derive(Clone, Debug, Default)]
pub(crate) enum Leaf {
    #[default]
    Empty,
    Narrow(Arc<Narrow>),
    Wide(Arc<[Wide]>),
}

impl FromIterator<Item> for Leaf {
    fn from_iter<I: IntoIterator<Item = Item>>(items: I) -> Self {
        let items: Vec<Item> = items.into_iter().collect();
        let Some(first) = items.first() else { return Leaf::Empty };
        let chunk = chunk_of(&first.1.cover);
        if items.len() <= 4 && items.iter().all(|item| chunk_of(&item.1.cover) == chunk) {
            let mut block = Narrow::about(chunk);
            items.into_iter().for_each(|item| block.push(item));
            return Leaf::Narrow(Arc::new(block));
        }
        let mut blocks: Vec<Wide> = Vec::new();
        for item in items {
            let chunk = chunk_of(&item.1.cover);
            if !blocks.iter().any(|block| block.has_room(chunk)) {
                blocks.push(Wide::about(chunk));
            }
            if let Some(block) = blocks.iter_mut().rfind(|block| block.has_room(chunk)) {
                block.push(item);
            }
        }
        Leaf::Wide(blocks.into())
    }
}

impl Leaf {
    /// Its blocks, of which there is at most one kind.
    #[inline(always)]
    pub fn blocks(&self) -> (Option<&Narrow>, &[Wide]) {
        match self {
            Leaf::Empty => (None, &[]),
            Leaf::Narrow(block) => (Some(block), &[]),
            Leaf::Wide(blocks) => (None, blocks),
        }
    }

    pub fn len(&self) -> usize {
        let (narrow, wide) = self.blocks();
        narrow.map_or(0, Block::len) + wide.iter().map(Block::len).sum::<usize>()
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Leaf::Empty)
    }

    /// Whether it is time for tables or bit vectors.
    pub fn is_full(&self) -> bool {
        let (narrow, wide) = self.blocks();
        let guarded = narrow.map_or(0, Block::guards) + wide.iter().map(Block::guards).sum::<usize>();
        self.len() + guarded * GUARDED > most() || guarded > ALIKE && self.is_crowded()
    }

    /// Whether a packet with the chunk of one of the entries would be compared further with many.
    fn is_crowded(&self) -> bool {
        let (narrow, wide) = self.blocks();
        let mut firsts: Vec<_> = narrow.into_iter().flat_map(Block::guarded).collect();
        firsts.extend(wide.iter().flat_map(Block::guarded));
        let alike = |a: &(u128, u128), b: &(u128, u128)| a.0 & b.0 & (a.1 ^ b.1) == 0;
        let pairs: usize = firsts.iter().map(|a| firsts.iter().filter(|b| alike(a, b)).count()).sum();
        pairs > ALIKE * firsts.len()
    }

    /// All entries, with the slots of their rules.
    pub fn items(&self) -> impl Iterator<Item = Item> + '_ {
        let (narrow, wide) = self.blocks();
        narrow.into_iter().flat_map(Block::items).chain(wide.iter().flat_map(Block::items))
    }

    /// The chunks by which its entries are compared, as bits.
    pub fn chunks(&self) -> u8 {
        let (narrow, wide) = self.blocks();
        let narrow = narrow.map_or(0, |block| 1 << block.chunk());
        wide.iter().fold(narrow, |bits, block| bits | 1 << block.chunk())
    }

    pub fn push(&mut self, item: Item) {
        let chunk = chunk_of(&item.1.cover);
        match self {
            Leaf::Narrow(block) if block.has_room(chunk) => Arc::make_mut(block).push(item),
            Leaf::Wide(blocks) if blocks.iter().any(|block| block.has_room(chunk)) => {
                let block = Arc::make_mut(blocks).iter_mut().rfind(|block| block.has_room(chunk));
                block.into_iter().for_each(|block| block.push(item.clone()));
            }
            _ => *self = self.items().chain([item]).collect(),
        }
    }

    /// Takes an entry out; false: it is not here.
    pub fn remove(&mut self, slot: u32, entry: &Entry) -> bool {
        let is_it = |item: &Item| item.0 == slot && *item.1 == *entry;
        if !self.items().any(|item| is_it(&item)) {
            return false;
        }
        *self = self.items().filter(|item| !is_it(item)).collect();
        true
    }

    /// Bytes of memory, entries not included.
    pub fn bytes(&self) -> usize {
        let (narrow, wide) = self.blocks();
        narrow.map_or(0, size_of_val) + size_of_val(wide)
    }

    /// Brings the beginning close.
    #[inline(always)]
    pub fn prefetch(&self) {
        match self {
            Leaf::Empty => {}
            Leaf::Narrow(block) => block.prefetch(),
            Leaf::Wide(blocks) => blocks.iter().take(1).for_each(Block::prefetch),
        }
    }

    /// Those of its blocks that some packet of a vector may match.
    pub fn concerned(&self, summary: &Summary) -> Concerned<'_> {
        let (narrow, blocks) = self.blocks();
        let narrow = narrow.filter(|block| !summary.excludes_block(block));
        let (mut wide, mut n) = ([&NOTHING; MOST_WIDE], 0);
        for block in blocks.iter().filter(|block| !summary.excludes_block(block)) {
            wide[n % MOST_WIDE] = block;
            n += 1;
        }
        Concerned { narrow, wide, n: n.min(MOST_WIDE) }
    }

    /// Gives `sink` the entries that hold for a packet.
    #[inline(always)]
    pub fn visit(&self, window: &Window, facts: Facts<'_>, sink: &mut Sink<'_>) {
        let words = first_words(window.chunk[0]);
        match self {
            Leaf::Empty => {}
            Leaf::Narrow(block) => sink.lanes(block.matches(&words, window, || facts), &block.slots),
            Leaf::Wide(blocks) => {
                for block in blocks.iter() {
                    sink.lanes(block.matches(&words, window, || facts), &block.slots);
                }
            }
        }
    }
}

/// A block without entries.
static NOTHING: Wide = Wide::EMPTY;

/// Blocks that every packet of a vector is compared with.
#[derive(Clone, Debug)]
pub(crate) struct Concerned<'a> {
    pub narrow: Option<&'a Narrow>,
    wide: [&'a Wide; MOST_WIDE],
    n: usize,
}

impl<'a> Concerned<'a> {
    #[inline(always)]
    pub fn wide(&self) -> &[&'a Wide] {
        &self.wide[..self.n]
    }

    pub fn is_empty(&self) -> bool {
        self.narrow.is_none() && self.n == 0
    }

    /// How many comparisons of four entries it takes.
    pub fn quads(&self) -> usize {
        usize::from(self.narrow.is_some())
            + self.wide().iter().map(|block| block.len().div_ceil(4)).sum::<usize>()
    }

    /// Whether any of some packets may match one of the entries: block by block, which is faster where none does.
    pub fn agrees_with_any(&self, windows: &[Window]) -> bool {
        self.narrow.is_some_and(|block| block.agrees_with_any(windows))
            || self.wide().iter().any(|block| block.agrees_with_any(windows))
    }

    /// Whether a packet may match one of the entries: certain of those that may not.
    #[inline(always)]
    pub fn agree(&self, window: &Window) -> u32 {
        let words = first_words(window.chunk[0]);
        let narrow = self.narrow.map_or(0, |block| block.agree(&words, window));
        self.wide().iter().fold(narrow, |any, block| any | block.agree(&words, window))
    }
}
