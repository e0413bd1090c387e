//! A sorted set of pages.

use std::sync::Arc;

/// An element of a [`SortedPages`] has a key. Keys in a set are unique.
pub trait Keyed: Clone {
    /// The type of keys.
    type Key: Copy + Ord;

    /// The key.
    fn key(&self) -> Self::Key;
}

impl Keyed for u32 {
    type Key = u32;

    fn key(&self) -> u32 {
        *self
    }
}

/// A key and its value.
impl<K: Copy + Ord, V: Clone> Keyed for (K, V) {
    type Key = K;

    fn key(&self) -> K {
        self.0
    }
}

/// A persistent set sorted by key, in pages of at most `PAGE` elements. Ascending insertion fills the pages.
#[derive(Clone, Debug)]
pub struct SortedPages<T, const PAGE: usize> {
    /// No page is empty. The elements of a page precede those of the next page.
    pages: Arc<Vec<Arc<Vec<T>>>>,
    len: usize,
}

impl<T, const PAGE: usize> Default for SortedPages<T, PAGE> {
    fn default() -> Self {
        SortedPages { pages: Arc::default(), len: 0 }
    }
}

impl<T: Keyed, const PAGE: usize> SortedPages<T, PAGE> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The page that has or would have `key` (0 if there are no pages).
    fn page_of(&self, key: T::Key) -> usize {
        self.pages.partition_point(|page| page[0].key() <= key).saturating_sub(1)
    }

    /// The element with this key.
    pub fn get(&self, key: T::Key) -> Option<&T> {
        let page = self.pages.get(self.page_of(key))?;
        page.binary_search_by_key(&key, Keyed::key).ok().map(|at| &page[at])
    }

    /// Mutable access to the element with this key; copies its page if it is shared. The key must not change.
    pub fn get_mut(&mut self, key: T::Key) -> Option<&mut T> {
        let page = self.page_of(key);
        let at = self.pages.get(page)?.binary_search_by_key(&key, Keyed::key).ok()?;
        let pages = Arc::make_mut(&mut self.pages);
        Arc::make_mut(&mut pages[page]).get_mut(at)
    }

    /// Inserts an element. Returns the element with the same key that it replaces.
    pub fn insert(&mut self, value: T) -> Option<T> {
        let index = self.page_of(value.key());
        let pages = Arc::make_mut(&mut self.pages);
        let Some(page) = pages.get_mut(index) else {
            pages.push(Arc::new(vec![value]));
            self.len += 1;
            return None;
        };
        let page = Arc::make_mut(page);
        let at = match page.binary_search_by_key(&value.key(), Keyed::key) {
            Ok(at) => return Some(std::mem::replace(&mut page[at], value)),
            Err(at) => at,
        };
        self.len += 1;
        if page.len() < PAGE {
            page.insert(at, value);
        } else if at == PAGE {
            pages.insert(index + 1, Arc::new(vec![value]));
        } else {
            let mut behind = page.split_off(PAGE / 2);
            if at <= page.len() {
                page.insert(at, value);
            } else {
                behind.insert(at - page.len(), value);
            }
            pages.insert(index + 1, Arc::new(behind));
        }
        None
    }

    /// Removes the element with this key.
    pub fn remove(&mut self, key: T::Key) -> Option<T> {
        let index = self.page_of(key);
        let at = self.pages.get(index)?.binary_search_by_key(&key, Keyed::key).ok()?;
        let pages = Arc::make_mut(&mut self.pages);
        let page = Arc::make_mut(&mut pages[index]);
        let value = page.remove(at);
        self.len -= 1;
        if page.is_empty() {
            pages.remove(index);
        }
        Some(value)
    }

    /// Removes the element with the smallest key.
    pub fn pop_first(&mut self) -> Option<T> {
        let first = self.iter().next()?.key();
        self.remove(first)
    }

    /// All elements in ascending order of keys.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flat_map(|page| page.iter())
    }

    /// Whether both are copies of one set, neither of which has changed since. False for other sets with
    /// equal elements.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pages, &other.pages)
    }

    /// Bytes of memory of the set itself, including memory shared with clones.
    pub fn bytes(&self) -> usize {
        let page = |page: &Arc<Vec<T>>| page.capacity() * size_of::<T>() + 6 * size_of::<usize>();
        self.pages.iter().map(page).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_btree(ops in proptest::collection::vec((0u8..4, 0u32..64, any::<u16>()), 0..400)) {
            let mut paged = SortedPages::<(u32, u16), 4>::default();
            let mut tree = BTreeMap::new();
            let mut past = Vec::new();
            for (op, key, value) in ops {
                match op {
                    0 | 1 => prop_assert_eq!(paged.insert((key, value)).map(|e| e.1), tree.insert(key, value)),
                    2 => prop_assert_eq!(paged.remove(key).map(|e| e.1), tree.remove(&key)),
                    _ => prop_assert_eq!(paged.pop_first(), tree.pop_first()),
                }
                prop_assert_eq!(paged.len(), tree.len());
                prop_assert_eq!(paged.get(key).map(|e| e.1), tree.get(&key).copied());
                if let Some(entry) = paged.get_mut(key / 2) {
                    entry.1 ^= 1;
                    tree.entry(key / 2).and_modify(|v| *v ^= 1);
                }
                past.push((paged.clone(), tree.clone()));
            }
            for (paged, tree) in past {
                prop_assert!(paged.iter().copied().eq(tree));
                prop_assert!(paged.pages.iter().all(|p| !p.is_empty() && p.len() <= 4));
            }
        }
    }

    #[test]
    fn ascending_insertion_fills_the_pages() {
        let mut set = SortedPages::<u32, 8>::default();
        (0..800).for_each(|i| assert!(set.insert(i).is_none()));
        assert_eq!(set.pages.len(), 100);
    }
}
