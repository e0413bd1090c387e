//! Explains what rules do to one packet: the values of its fields, why a rule does not match, and what edits
//! change. For tools; nothing here is on the packet path.

mod difference;
mod fields;
mod why;

pub use difference::{FieldChange, differences};
pub use fields::HeaderFields;
pub use why::{MatchOutcome, explain_matches, matching_slots};

#[cfg(test)]
mod tests;
