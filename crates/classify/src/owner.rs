//! What a key of a table leads to.

use std::sync::Arc;

use mmb_packet::Window;

use crate::bitvec::Packet;
use crate::hash::Seeds;
use crate::leaf::{Item, Leaf};
use crate::node::{self, Node, Path};
use crate::pattern::{Entry, Facts};
use crate::sink::Sink;

/// What a key of a table leads to.
#[derive(Clone, Debug)]
pub(crate) enum Owner {
    /// Nothing: the lane is free.
    Free,
    /// One entry that asks for nothing but the key.
    One(u32),
    /// Some entries that all ask for nothing but the key: two or more.
    Same(Arc<[u32]>),
    /// A few entries, which are compared with the packet as a whole: the key need not be.
    Leaf(Leaf),
    /// Many entries, whose node is about packets with the key only.
    Node(Arc<Node>),
}

const _: () = assert!(size_of::<Owner>() <= 24);

/// Most entries of [`Owner::Same`], which every change copies.
const MOST_SAME: usize = 64;

impl Owner {
    /// The owner of a key that some packets have and these entries ask for; `path` includes the key's mask.
    pub fn of(items: &[Item], path: &Path, seeds: Seeds) -> Owner {
        if items.len() <= MOST_SAME && items.iter().all(|(_, entry)| node::is_exact(entry, path)) {
            return Owner::same(items.iter().map(|(slot, _)| *slot).collect());
        }
        let leaf: Leaf = items.iter().cloned().collect();
        if leaf.is_full() {
            Owner::Node(Arc::new(Node::build(items.to_vec(), path, seeds)))
        } else {
            Owner::Leaf(leaf)
        }
    }

    /// The owner of a key for which these rules' entries ask and for nothing else.
    fn same(slots: Vec<u32>) -> Owner {
        match slots[..] {
            [] => Owner::Free,
            [slot] => Owner::One(slot),
            _ => Owner::Same(slots.into()),
        }
    }

    pub fn insert(&mut self, item: Item, path: &Path, seeds: Seeds) {
        match self {
            Owner::Free => *self = Owner::of(&[item], path, seeds),
            Owner::One(_) | Owner::Same(_) => {
                let items: Vec<Item> = self.items(path).into_iter().chain([item]).collect();
                *self = Owner::of(&items, path, seeds);
            }
            Owner::Leaf(leaf) => {
                leaf.push(item);
                if leaf.is_full() {
                    let items = leaf.items().collect();
                    *self = Owner::Node(Arc::new(Node::build(items, path, seeds)));
                }
            }
            Owner::Node(node) => Arc::make_mut(node).insert(item, path),
        }
    }

    /// Takes an entry out; false: it is not here.
    pub fn remove(&mut self, slot: u32, entry: &Entry, path: &Path) -> bool {
        match self {
            Owner::Free => false,
            Owner::One(own) => {
                let removed = *own == slot;
                if removed {
                    *self = Owner::Free;
                }
                removed
            }
            Owner::Same(slots) => {
                let removed = slots.contains(&slot) && node::is_exact(entry, path);
                if removed {
                    *self = Owner::same(slots.iter().copied().filter(|other| *other != slot).collect());
                }
                removed
            }
            Owner::Leaf(leaf) => {
                let removed = leaf.remove(slot, entry);
                if leaf.is_empty() {
                    *self = Owner::Free;
                }
                removed
            }
            Owner::Node(node) => {
                let node = Arc::make_mut(node);
                let removed = node.remove(slot, entry, path);
                if node.len() <= node::SMALL {
                    let leaf: Leaf = node.items(path).into_iter().collect();
                    *self = if leaf.is_empty() { Owner::Free } else { Owner::Leaf(leaf) };
                }
                removed
            }
        }
    }

    /// The entries; `path` includes the key.
    pub fn items(&self, path: &Path) -> Vec<Item> {
        match self {
            Owner::Free => Vec::new(),
            Owner::One(slot) => vec![(*slot, path.entry())],
            Owner::Same(slots) => slots.iter().map(|slot| (*slot, path.entry())).collect(),
            Owner::Leaf(leaf) => leaf.items().collect(),
            Owner::Node(node) => node.items(path),
        }
    }

    /// Whether the rule `slot` has an entry here that asks for nothing but the key.
    pub fn has_exact(&self, slot: u32) -> bool {
        match self {
            Owner::Free => false,
            Owner::One(own) => *own == slot,
            Owner::Same(slots) => slots.contains(&slot),
            Owner::Leaf(leaf) => leaf.items().any(|item| item.0 == slot),
            Owner::Node(node) => node.has_exact(slot),
        }
    }

    /// Gives `sink` what matches a packet, of whose key nothing is known yet.
    pub fn visit(&self, same_key: bool, window: &Window, facts: Facts<'_>, sink: &mut Sink<'_>) {
        match self {
            Owner::Leaf(leaf) => leaf.visit(window, facts, sink),
            Owner::One(slot) if same_key => sink.one(*slot),
            Owner::Same(slots) if same_key => slots.iter().for_each(|slot| sink.one(*slot)),
            Owner::Node(node) if same_key => {
                sink.with(|head, hits| node.visit(&[Packet { window, facts, head }], hits));
            }
            Owner::Free | Owner::One(_) | Owner::Same(_) | Owner::Node(_) => {}
        }
    }
}
