//! The rule language: one table of fields, and all that is done with text on the way to typed rules and back.
//!
//! [`parse_line`] reads a line of the shell, [`load_file`] a configuration file; what they give is typed
//! ([`Command`], [`Rule`]) and prints as the same text again. [`check`] says whether the engine can run a
//! rule. Every error is a [`Diagnostic`]: a sentence, the offending word, the way out. [`complete`] offers
//! what can stand at the cursor, and [`FIELDS`] describes every field of every header.
//!
//! ```
//! let Ok(Some(mmb_lang::Command::Add(rule))) = mmb_lang::parse_line("mmb add tcp-dport == 0x50 mod tcp-dport 443") else {
//!     unreachable!()
//! };
//! assert_eq!(rule.to_string(), "add tcp-dport 80 mod tcp-dport 443");
//! assert!(mmb_lang::check(&rule).is_ok());
//! ```
//!
//! Nothing here knows a socket, a clock or a packet; every function is total.

#![forbid(unsafe_code)]

mod ast;
mod check;
mod complete;
mod diag;
mod field;
mod format;
mod keyword;
mod lex;
mod names;
mod parse;
mod shape;
mod span;

pub use ast::{
    Action, Body, Branch, BranchEnd, Chain, Command, Comparison, Cond, Endpoint4, ErrorPolicy, Filtering,
    Match, MatchExpr, NatForward, NatPool, NatProto, NfAdd, PortKind, Rule, RuleKind, ShowSubject, Step,
    Subnet, Target, Timeout, Value, ValueItem, ValueSet, Word,
};
pub use check::{check, check_filter, check_matches};
pub use complete::{Candidate, Completion, Names, complete};
pub use diag::{Diagnostic, suggest};
pub use field::{FIELDS, FieldDef, FieldId, FieldInfo, Layer, Support, ValueKind, field, fields_markdown};
pub use names::protocol_name;
pub use parse::{FileItem, MAX_LINE, load_file, parse_file, parse_line, parse_matches};
pub use shape::MAX_NAME;
pub use span::{SourceSpan, Span};
