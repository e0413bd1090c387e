//! Edits of the bytes of a connection that is not terminated.

mod log;
mod rope;
mod splice;

pub use log::Edit;
pub use rope::{Change, Rope, RopeReader};
pub use splice::{
    BuiltSegments, Departure, Leaving, OutputRange, SettledNumbers, SpliceReport, Splices, Translated,
};

#[cfg(test)]
mod tests;
