//! Rule sets: matching rules, their decision, and their edits.
//!
//! Theory of operation. A [`Policy`] holds its rules in persistent structures ([`mmb_classify::paged`]). A
//! clone costs a few pointer copies at any number of rules, and adding a rule to a clone copies a few
//! pages. The writer clones the policy that the workers use, changes the clone, and publishes it. The
//! workers' value never changes.
//!
//! A rule has two numbers. Its *index* is the user's: it counts up from 1 and is not reused until all rules
//! are flushed. Its *slot* is dense and identifies the rule's counters. The slot of a deleted rule is
//! reused only after [`Policy::release`], when no worker counts with it any more.
//!
//! A classifier that changes rule by rule becomes less suited to its rules. [`Policy::is_stale`] tells when
//! building a new one ([`Policy::rebuilt`]) is worthwhile.
//!
//! A vector of packets takes these steps:
//!
//! 1. [`Classifier::inspect`] evaluates matches on bytes that are not in the window, if rules have any.
//! 2. [`Classifier::classify`] finds every matching rule of every packet.
//! 3. [`Policy::decide`] combines them: block over accept over drop over edits.
//! 4. [`Policy::edit`] applies the edits of one packet's rules.
//!
//! None of them locks or needs a clock, and none allocates once the buffers have grown. [`Evaluator`] takes
//! all steps for one packet.
//!
//! Sessions also use the identity of rules ([`Policy::rule_id`]) and the bindings of stateful rules
//! ([`Policy::stateful`]). The [`RuleScope`] of most rules is the session: they match all packets of one
//! direction or none, so a session caches their [`Decision`]. [`Policy::per_packet`] is a second classifier
//! with the other rules only. [`Policy::decide_combined`] combines its result with the cached decision.
//!
//! A rule with a service chain matches only traffic that the chain accepts ([`Policy::add_with`]).
//!
//! NAT pools and forwards of the language become configuration of `mmb-flow` by [`pool_config`] and
//! [`forward_config`].
//!
//! A policy stores a rule's canonical text instead of its syntax tree. The text takes a fifth of the memory
//! and parses to the same rule.

#![forbid(unsafe_code)]

mod chain;
mod compile;
mod decide;
mod decision;
mod effect;
mod evaluator;
pub mod explain;
mod nat;
mod number_set;
mod offload;
mod policy;
mod ports;
mod rule_info;
mod scope;
mod sets;
mod stateful;
mod texts;

pub use chain::ChainClasses;
pub use compile::broker_port_name;
pub use decide::{DecisionSink, Verdict};
pub use decision::Decision;
pub use effect::{MAX_EDITS, Outcome};
pub use evaluator::{Evaluation, Evaluator, PacketContext};
pub use mmb_classify::{Batch, Classifier, Hit, Occupancy, Structure, TableInfo, VECTOR};
pub use mmb_rewrite::EditLimits;
pub use nat::{forward_config, pool_config};
pub use number_set::NumberSet;
pub use policy::{Policy, RuleView};
pub use ports::PortDependence;
pub use rule_info::log::RuleLog;
pub use rule_info::{RuleId, RuleInfo};
pub use scope::RuleScope;
pub use sets::{ElementChange, ElementInfo, PolicySet, SetTable, unknown_set};
pub use stateful::{Binding, Choice, Side, StatefulRule};
pub use texts::RuleTexts;
