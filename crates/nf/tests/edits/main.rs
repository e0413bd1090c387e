//! Stream functions that edit, between two ends that follow the numbers.

mod bench;
mod bytes;
mod headers;
mod leaving;

#[path = "../common/count.rs"]
mod count;
#[path = "../common/left.rs"]
mod left;
#[path = "../common/substitute.rs"]
mod substitute;
