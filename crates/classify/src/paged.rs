//! Vectors and sorted sets that are values: a clone is a pointer copy, and a change copies one page of it.
//!
//! Theory of operation. Both keep their elements in pages behind [`Arc`](std::sync::Arc). A clone shares
//! every page; a change makes the path to one page its own (copying what is shared, nothing if nothing is)
//! and leaves all others shared. So an older clone stays what it was while the newer one changes, and the
//! cost of a change does not depend on the number of elements except through the top level, which is a few
//! hundred pointers at a million elements.

mod sorted;
mod vec;

pub use sorted::{Keyed, SortedPages};
pub use vec::PagedVec;
