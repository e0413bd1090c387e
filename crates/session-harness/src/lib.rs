//! Sessions of several workers in one thread: for tests, fuzzing and the test bench of network functions.
//!
//! A [`RuleSet`] is a configuration as a value, parsed from lines of the language. A [`SessionHarness`] takes
//! packets one by one through the sessions of its workers under a rule set. It does what the nodes of the
//! dataplane do around [`mmb_session::Sessions`]: match rules, hand packets to other workers, keep fragments,
//! and edit. It has no device, no clock and no thread.

#![forbid(unsafe_code)]

mod harness;
mod outcome;
mod parse;
mod rule_set;

pub use harness::SessionHarness;
pub use outcome::{Outcome, ProcessedPacket};
pub use parse::{RuleSetError, change_set};
pub use rule_set::RuleSet;
