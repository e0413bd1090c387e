//! A vector of pages.

use std::sync::Arc;

/// Number of pages in a branch of the top level.
const BRANCH: usize = 64;

/// A branch of the top level: up to [`BRANCH`] pages.
type Branch<T> = Vec<Arc<Vec<T>>>;

/// A persistent vector with pages of `PAGE` elements; reading an element costs three dependent loads.
#[derive(Clone, Debug)]
pub struct PagedVec<T, const PAGE: usize> {
    /// Every page but the last is full, and so is every branch.
    root: Arc<Vec<Arc<Branch<T>>>>,
    len: usize,
}

impl<T, const PAGE: usize> Default for PagedVec<T, PAGE> {
    fn default() -> Self {
        PagedVec { root: Arc::default(), len: 0 }
    }
}

impl<T: Clone, const PAGE: usize> PagedVec<T, PAGE> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element at `index`, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        let page = index / PAGE;
        self.root.get(page / BRANCH)?.get(page % BRANCH)?.get(index % PAGE)
    }

    /// Mutable access to the element at `index`; copies its page if it is shared.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        if index >= self.len {
            return None;
        }
        let page = index / PAGE;
        let branch = Arc::make_mut(Arc::make_mut(&mut self.root).get_mut(page / BRANCH)?);
        Arc::make_mut(branch.get_mut(page % BRANCH)?).get_mut(index % PAGE)
    }

    /// Appends an element.
    pub fn push(&mut self, value: T) {
        let root = Arc::make_mut(&mut self.root);
        if self.len.is_multiple_of(PAGE * BRANCH) {
            root.push(Arc::default());
        }
        if let Some(branch) = root.last_mut() {
            let branch = Arc::make_mut(branch);
            if self.len.is_multiple_of(PAGE) {
                branch.push(Arc::new(Vec::with_capacity(PAGE)));
            }
            if let Some(page) = branch.last_mut() {
                Arc::make_mut(page).push(value);
            }
        }
        self.len += 1;
    }

    /// All elements in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.root.iter().flat_map(|branch| branch.iter()).flat_map(|page| page.iter())
    }

    /// Bytes of memory of the vector itself, including memory shared with clones.
    pub fn bytes(&self) -> usize {
        let pages = self.len.div_ceil(PAGE);
        pages * (PAGE * size_of::<T>() + 2 * size_of::<Vec<T>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_like_a_vector() {
        let mut paged = PagedVec::<u32, 4>::default();
        let mut plain = Vec::new();
        for i in 0..1500 {
            paged.push(i * 7);
            plain.push(i * 7);
            if i % 3 == 0 {
                let at = (i as usize * 31) % plain.len();
                *paged.get_mut(at).unwrap() += 1;
                plain[at] += 1;
            }
        }
        assert!(paged.iter().eq(plain.iter()));
        assert_eq!(paged.len(), plain.len());
        assert!((0..plain.len()).all(|i| paged.get(i) == Some(&plain[i])));
        assert!(
            paged.get(1500).is_none() && paged.get_mut(1500).is_none() && paged.get(usize::MAX).is_none()
        );
    }

    #[test]
    fn older_clones_do_not_change() {
        let mut now = PagedVec::<u32, 4>::default();
        let mut past = Vec::new();
        for i in 0..600 {
            past.push((now.clone(), now.iter().copied().collect::<Vec<_>>()));
            now.push(i);
            *now.get_mut(i as usize / 2).unwrap() = 10_000 + i;
        }
        for (paged, plain) in past {
            assert!(paged.iter().eq(plain.iter()));
        }
    }
}
