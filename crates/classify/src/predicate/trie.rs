//! A persistent map from byte strings, searched by prefix.
//!
//! Theory of operation. It is a radix tree. Each node stands for a string. Its label has the bytes that it
//! adds to its parent's string, and it has one child for each byte that can follow. A search descends while
//! the text agrees, so its cost does not depend on the number of strings. Clones share nodes; a change copies
//! the path to one node.

use std::sync::Arc;

/// A map from byte strings; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Trie<V> {
    root: Arc<Node<V>>,
}

#[derive(Clone, Debug)]
struct Node<V> {
    label: Box<[u8]>,
    value: Option<V>,
    /// Sorted by the first byte of their labels.
    children: Vec<(u8, Arc<Node<V>>)>,
}

impl<V> Default for Trie<V> {
    fn default() -> Self {
        Trie { root: Arc::new(Node { label: Box::default(), value: None, children: Vec::new() }) }
    }
}

impl<V> Node<V> {
    fn child(&self, byte: u8) -> Result<usize, usize> {
        self.children.binary_search_by_key(&byte, |(first, _)| *first)
    }
}

impl<V> Trie<V> {
    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.root.value.is_none() && self.root.children.is_empty()
    }

    /// Calls `visit` with the length and the value of each string that `text` starts with, shortest first.
    pub fn prefixes(&self, text: &[u8], mut visit: impl FnMut(usize, &V)) {
        let (mut node, mut at) = (&self.root, 0);
        loop {
            if let Some(value) = &node.value {
                visit(at, value);
            }
            let Some(byte) = text.get(at) else { return };
            let Ok(child) = node.child(*byte) else { return };
            node = &node.children[child].1;
            if !text[at..].starts_with(&node.label) {
                return;
            }
            at += node.label.len();
        }
    }

    /// The value of a string.
    pub fn get(&self, key: &[u8]) -> Option<&V> {
        let (mut node, mut rest) = (&self.root, key);
        while let Some(byte) = rest.first() {
            node = &node.children[node.child(*byte).ok()?].1;
            rest = rest.strip_prefix(&*node.label)?;
        }
        node.value.as_ref()
    }
}

impl<V: Clone> Trie<V> {
    /// Lets `change` set, change or remove the value of a string.
    pub fn change<R>(&mut self, key: &[u8], change: impl FnOnce(&mut Option<V>) -> R) -> R {
        Node::change(&mut self.root, key, change)
    }
}

impl<V: Clone> Node<V> {
    fn leaf(label: &[u8], value: V) -> Arc<Self> {
        Arc::new(Node { label: label.into(), value: Some(value), children: Vec::new() })
    }

    fn change<R>(this: &mut Arc<Self>, key: &[u8], change: impl FnOnce(&mut Option<V>) -> R) -> R {
        let node = Arc::make_mut(this);
        let Some(byte) = key.first() else { return change(&mut node.value) };
        let at = match node.child(*byte) {
            Ok(at) => at,
            Err(at) => {
                let mut value = None;
                let result = change(&mut value);
                node.children.splice(at..at, value.map(|value| (*byte, Self::leaf(key, value))));
                return result;
            }
        };
        let child = &mut node.children[at].1;
        let common = child.label.iter().zip(key).take_while(|(a, b)| a == b).count();
        if common < child.label.len() {
            let mut value = None;
            let result = change(&mut value);
            if let Some(value) = value {
                Self::fork(child, key, common, value);
            }
            return result;
        }
        let result = Self::change(child, &key[common..], change);
        match (&child.value, &child.children[..]) {
            (None, []) => drop(node.children.remove(at)),
            (None, [(_, only)]) => {
                let only = Node { label: [&*child.label, &*only.label].concat().into(), ..Node::clone(only) };
                *child = Arc::new(only);
            }
            _ => {}
        }
        result
    }

    /// Inserts `key` beside a node. Both share the first `common` bytes of the node's label, but not all of
    /// it.
    fn fork(this: &mut Arc<Self>, key: &[u8], common: usize, value: V) {
        let mut below = Node::clone(this);
        let label: Box<[u8]> = below.label[..common].into();
        below.label = below.label[common..].into();
        let mut children = vec![(below.label[0], Arc::new(below))];
        let (own, value) = match key.get(common) {
            None => (Some(value), None),
            Some(byte) => (None, Some((*byte, Self::leaf(&key[common..], value)))),
        };
        children.extend(value);
        children.sort_by_key(|(byte, _)| *byte);
        *this = Arc::new(Node { label, value: own, children });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(0u8..3, 0..7)
    }

    fn sound(node: &Node<u16>, is_root: bool) -> bool {
        let used = is_root || node.value.is_some() || node.children.len() > 1;
        let children =
            |(byte, child): &(u8, Arc<Node<u16>>)| child.label.first() == Some(byte) && sound(child, false);
        used && node.children.is_sorted_by(|a, b| a.0 < b.0) && node.children.iter().all(children)
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(ops in proptest::collection::vec((key(), any::<bool>(), any::<u16>()), 0..80), text in key()) {
            let (mut trie, mut map) = (Trie::default(), BTreeMap::new());
            let mut past = Vec::new();
            for (key, put, value) in ops {
                past.push((trie.clone(), map.clone()));
                let before = trie.change(&key, |old| std::mem::replace(old, put.then_some(value)));
                prop_assert_eq!(before, if put { map.insert(key, value) } else { map.remove(&key) });
            }
            past.push((trie, map));
            for (trie, map) in past {
                prop_assert!(sound(&trie.root, true));
                prop_assert_eq!(trie.is_empty(), map.is_empty());
                prop_assert_eq!(trie.get(&text), map.get(&text));
                let mut found = Vec::new();
                trie.prefixes(&text, |len, value| found.push((text[..len].to_vec(), *value)));
                let expected: Vec<_> =
                    map.into_iter().filter(|(key, _)| text.starts_with(key)).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
