//! Vectors and sorted sets that are values: a clone is a pointer copy, and a change copies one page of it.
//!
//! Theory of operation. Both keep their elements in pages behind [`Arc`](std::sync::Arc). A clone shares
//! every page; a change makes the path to one page its own (copying what is shared, nothing if nothing is)
//! and leaves all others shared. So an older clone stays what it was while the newer one changes, and the
//! cost of a change does not depend on the number of elements except through the top level, which is a few
//! hundred pointers at a million elements.
//!
//! Persistent collections of crates were measured beside these, at 100,000 elements. Reads of a vector take
//! 3 ns here, 47 ns with `imbl::Vector` and 46 ns with `rpds::Vector`, and a change of a clone 0.6, 1.6 and
//! 0.9 µs. Iterating over a sorted set takes 0.2 ns an element here and 3 ns with `imbl::OrdMap`, which is
//! faster at single reads (124 ns, here 219 ns) and changes (0.9 µs, here 7 µs). The lookup of a packet
//! iterates over a set and changes none. Compiling a changed rule takes longer than changing its sets.

mod sorted;
mod vec;

pub use sorted::{Keyed, SortedPages};
pub use vec::PagedVec;
