//! A rule set as one value: which rules match, what they decide, what they do to a packet.
//!
//! Theory of operation. A [`Policy`] holds its rules in persistent structures ([`mmb_classify::paged`]), so that a clone
//! costs a few pointer copies at any number of rules, and adding a rule to a clone copies a few pages. The writer
//! clones the policy that the workers run, changes the clone, and publishes it; the workers' value never changes.
//!
//! A rule has two numbers. Its *index* is the user's: it counts up from 1 and is not given out twice until all rules
//! are flushed. Its *slot* is dense and names the rule's counters; a deleted rule's slot is given out again only after
//! [`Policy::release`], when nobody counts it any more.
//!
//! A policy that changes rule by rule keeps a classifier that fitted it once; [`Policy::is_stale`] says when it is worth
//! while to make that anew ([`Policy::rebuilt`]).
//!
//! A vector of packets goes through [`Policy::inspect`] (where rules ask about bytes that are not in the window),
//! [`Policy::classify`] (every matching rule of every packet) and [`Policy::decide`] (accept over drop over edits);
//! [`Policy::edit`] then applies the edits of one packet's rules. Nothing of this allocates once the buffers have grown,
//! locks, or knows a clock. [`Evaluator`] does it all for one packet.
//!
//! Sessions need more of a policy: the identity of rules ([`Policy::rule_id`]), what stateful rules give to the sessions
//! that they open ([`Policy::stateful`]), and what to ask again for each packet of a session. A rule is of a [`RuleScope`]: most
//! match all packets of one direction of a session or none, so that a session keeps what they decide ([`Decision`]);
//! [`Policy::per_packet`] is a second classifier of the others alone, and [`Policy::decide_combined`] puts its answer and the
//! session's decision together.
//!
//! A rule that gives its sessions to a service chain matches only the traffic that the chain takes
//! ([`Policy::add_with`]).
//!
//! A rule's syntax tree is not kept: its canonical text is a fifth of that, and parses to the same rule.

#![forbid(unsafe_code)]

mod chain;
mod compile;
mod decide;
mod decision;
mod evaluator;
mod number_set;
mod offload;
mod policy;
mod ports;
mod rule_info;
mod scope;
mod stateful;

pub use chain::ChainClasses;
pub use decide::{MAX_EDITS, Verdict};
pub use decision::Decision;
pub use evaluator::{Evaluation, Evaluator, PacketContext};
pub use mmb_classify::{Batch, Hit, Occupancy, Structure, TableInfo, VECTOR};
pub use mmb_rewrite::EditLimits;
pub use number_set::NumberSet;
pub use policy::{Policy, RuleView};
pub use ports::PortDependence;
pub use rule_info::{PerPacketRules, RuleId, RuleInfo};
pub use scope::RuleScope;
pub use stateful::{Binding, Choice, Side, StatefulRule};
