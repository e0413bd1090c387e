//! The rule language: the table of fields, the parser, the formatter, the checks and the completion.
//!
//! [`parse_line`] reads a line of the shell, and [`load_file`] a configuration file. Both return typed
//! commands ([`Command`], [`Rule`]), which print as the same text. [`check`] tests whether the engine can run
//! a rule. Every error is a [`Diagnostic`]: a sentence, the offending word and the way out. [`complete`]
//! offers the words for the cursor position, and [`FIELDS`] describes every field of every header.
//!
//! ```
//! let line = "mmb add tcp-dport == 0x50 mod tcp-dport 443";
//! let Ok(Some(mmb_lang::Command::Add(rule))) = mmb_lang::parse_line(line) else { unreachable!() };
//! assert_eq!(rule.to_string(), "add tcp-dport 80 mod tcp-dport 443");
//! assert!(mmb_lang::check(&rule).is_ok());
//! ```
//!
//! The crate knows no socket, no clock and no packet. Every function is total.

#![forbid(unsafe_code)]

mod ast;
mod check;
mod complete;
mod cover;
mod diag;
mod field;
pub mod foreign;
mod format;
mod keyword;
mod lex;
mod names;
mod parse;
mod ranges;
mod shape;
mod span;

pub use ast::{
    Action, Body, Branch, BranchEnd, Broker, BrokerOption, CaptureSelection, Chain, Command, Comparison,
    Cond, Domain, DomainKind, Endpoint4, ErrorPolicy, FastPathMode, Filtering, HeldScope, LogFormat, LogSink,
    Match, MatchExpr, NamedSet, NatForward, NatPool, NatProto, NfInstance, OnFailure, PoolAddresses,
    PortKind, ProcessMode, ProcessPlace, PuntClass, ReversePathMode, Rule, RuleKind, RuleLabel, RuleRef,
    SessionLimit, SessionName, SetElement, SetElements, SetKind, ShowSubject, Step, Subnet, Target, Timeout,
    Value, ValueItem, ValueSet, Word,
};
pub use check::{check, check_filter, check_matches};
pub use complete::{Candidate, Completion, Names, complete};
pub use cover::covers;
pub use diag::{Diagnostic, suggest};
pub use field::{FIELDS, FieldDef, FieldId, FieldInfo, Layer, Support, ValueKind, field, fields_markdown};
pub use names::protocol_name;
pub use parse::{
    FileItem, MAX_LINE, SHORTEST_ABBREVIATION, WHOLE_COMMANDS, line_comment, load_file, parse_element,
    parse_file, parse_line, parse_matches,
};
pub use ranges::{Range, merge_ranges};
pub use shape::{MAX_LOG_PREFIX, MAX_NAME, is_comment};
pub use span::{SourceSpan, Span};
