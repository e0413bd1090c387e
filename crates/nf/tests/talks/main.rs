//! Stream functions between two ends of a connection whose numbers the test knows.

#[path = "../common/count.rs"]
mod count;
#[path = "../common/left.rs"]
mod left;
#[path = "../common/substitute.rs"]
mod substitute;

mod joins;
mod overflow;
mod stamps;
mod talk;
