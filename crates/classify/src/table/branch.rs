//! Branches: the values of a table's keys.

use std::sync::Arc;

use mmb_packet::Window;

use super::extra_bits::{ANY_VALUE, ExtraBits};
use super::hash::Seeds;
use super::node::Node;
use super::page::PageValue;
use super::path::{MAX_LEAF_ENTRIES, Path, is_exact};
use crate::leaf::Row;
use crate::pattern::{Entry, RuleEntry, TruePredicates};
use crate::vector::{HitSink, LookupPacket, Simd};

/// What a key of a table leads to.
#[derive(Clone, Debug)]
pub(crate) enum Branch {
    /// Nothing; the lane is free.
    Free,
    /// One rule, whose entry has no condition but the key.
    Rule(u32),
    /// Two or more rules, whose entries have no condition but the key.
    Rules(Arc<[u32]>),
    /// A few entries. They are compared with the packet in full, so the key need not be checked.
    Leaf(Row<8>),
    /// Many entries, in a node for packets with this key only.
    Node(Arc<Node>),
}

const _: () = assert!(size_of::<Branch>() <= 24);

impl PageValue for Branch {
    const FREE: Branch = Branch::Free;

    #[inline(always)]
    fn of_rule(slot: u32) -> Branch {
        Branch::Rule(slot)
    }

    #[inline(always)]
    fn as_rule(&self) -> Option<u32> {
        if let Branch::Rule(slot) = self { Some(*slot) } else { None }
    }

    #[inline(always)]
    fn is_free(&self) -> bool {
        matches!(self, Branch::Free)
    }

    fn accepted(&self, extra: &ExtraBits) -> u16 {
        match self {
            Branch::Leaf(leaf) => leaf.entries().fold(0, |all, entry| all | extra.accepted(entry)),
            Branch::Free | Branch::Rule(_) | Branch::Rules(_) | Branch::Node(_) => ANY_VALUE,
        }
    }
}

/// Maximum number of rules in [`Branch::Rules`], which every change copies.
const MAX_SHARED_KEY: usize = 64;

impl Branch {
    /// The branch for these entries, which all require this key. `path` includes the key.
    pub fn of(items: &[RuleEntry], path: &Path, seeds: Seeds) -> Branch {
        if items.len() <= MAX_SHARED_KEY && items.iter().all(|(_, entry)| is_exact(entry, path)) {
            return Branch::of_rules(items.iter().map(|(slot, _)| *slot).collect());
        }
        let leaf: Row<8> = items.iter().cloned().collect();
        if leaf.is_full(false) {
            Branch::Node(Arc::new(Node::build(items.to_vec(), path, seeds)))
        } else {
            Branch::Leaf(leaf)
        }
    }

    /// The branch for entries that require the key and nothing else.
    fn of_rules(slots: Vec<u32>) -> Branch {
        match slots[..] {
            [] => Branch::Free,
            [slot] => Branch::Rule(slot),
            _ => Branch::Rules(slots.into()),
        }
    }

    pub fn insert(&mut self, item: RuleEntry, path: &Path, seeds: Seeds) {
        match self {
            Branch::Free => *self = Branch::of(&[item], path, seeds),
            Branch::Rule(_) | Branch::Rules(_) => {
                let items: Vec<RuleEntry> = self.items(path).into_iter().chain([item]).collect();
                *self = Branch::of(&items, path, seeds);
            }
            Branch::Leaf(leaf) => {
                leaf.push(item);
                if leaf.is_full(false) {
                    let items = leaf.items().collect();
                    *self = Branch::Node(Arc::new(Node::build(items, path, seeds)));
                }
            }
            Branch::Node(node) => Arc::make_mut(node).insert(item, path),
        }
    }

    /// Removes an entry. Returns false if it is not here.
    pub fn remove(&mut self, slot: u32, entry: &Entry, path: &Path) -> bool {
        match self {
            Branch::Free => false,
            Branch::Rule(own) => {
                let removed = *own == slot;
                if removed {
                    *self = Branch::Free;
                }
                removed
            }
            Branch::Rules(slots) => {
                let removed = slots.contains(&slot) && is_exact(entry, path);
                if removed {
                    *self = Branch::of_rules(slots.iter().copied().filter(|other| *other != slot).collect());
                }
                removed
            }
            Branch::Leaf(leaf) => {
                let removed = leaf.remove(slot, entry);
                if leaf.is_empty() {
                    *self = Branch::Free;
                }
                removed
            }
            Branch::Node(node) => {
                let node = Arc::make_mut(node);
                let removed = node.remove(slot, entry, path);
                if node.len() <= MAX_LEAF_ENTRIES {
                    let leaf: Row<8> = node.items(path).into_iter().collect();
                    *self = if leaf.is_empty() { Branch::Free } else { Branch::Leaf(leaf) };
                }
                removed
            }
        }
    }

    /// All entries; `path` includes the key.
    pub fn items(&self, path: &Path) -> Vec<RuleEntry> {
        match self {
            Branch::Free => Vec::new(),
            Branch::Rule(slot) => vec![(*slot, path.entry())],
            Branch::Rules(slots) => slots.iter().map(|slot| (*slot, path.entry())).collect(),
            Branch::Leaf(leaf) => leaf.items().collect(),
            Branch::Node(node) => node.items(path),
        }
    }

    /// Whether the rule `slot` has an entry here that requires nothing but the key.
    pub fn has_exact(&self, slot: u32) -> bool {
        match self {
            Branch::Free => false,
            Branch::Rule(own) => *own == slot,
            Branch::Rules(slots) => slots.contains(&slot),
            Branch::Leaf(leaf) => leaf.items().any(|item| item.0 == slot),
            Branch::Node(node) => node.has_exact(slot),
        }
    }

    /// Adds the rules that match a packet to `sink`. `same_key` says whether the packet has the key.
    pub fn visit(&self, same_key: bool, window: &Window, facts: TruePredicates<'_>, sink: &mut HitSink<'_>) {
        match self {
            Branch::Leaf(leaf) => leaf.visit(window, facts, sink),
            Branch::Rule(slot) if same_key => sink.push(*slot),
            Branch::Rules(slots) if same_key => slots.iter().for_each(|slot| sink.push(*slot)),
            Branch::Node(node) if same_key => {
                sink.with(|head, hits| {
                    node.visit(&[LookupPacket { window, facts, head }], Simd::PORTABLE, hits)
                });
            }
            Branch::Free | Branch::Rule(_) | Branch::Rules(_) | Branch::Node(_) => {}
        }
    }
}
