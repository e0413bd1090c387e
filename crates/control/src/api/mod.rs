//! The documents of the control API: requests and replies as JSON. They are an interface. Fields may be
//! added; a renamed field is listed in CHANGELOG.md.

mod brokers;
mod chains;
mod classifier;
mod domains;
mod fast_path;
mod history;
mod interfaces;
mod routing;
mod runtime;
mod sessions;
mod sets;
mod trace;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

pub use brokers::*;
pub use chains::*;
pub use classifier::*;
pub use domains::*;
pub use fast_path::*;
pub use history::*;
pub use interfaces::*;
pub use routing::*;
pub use runtime::*;
pub use sessions::*;
pub use sets::*;
pub use trace::*;

/// The parts of a command's reply that are filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// `text` only.
    Text,
    /// `json` only.
    Json,
    /// Both.
    #[default]
    Both,
}

/// A line of the language to run.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    /// The line, with or without the leading `mmb`.
    #[schema(example = "add tcp-dport 80 mod tcp-dport 8080")]
    pub line: String,
    /// The parts of the reply to fill.
    #[serde(default)]
    pub format: Format,
}

/// The reply to a command.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CommandReply {
    /// Aligned columns, or a sentence. Ends with a line feed unless it is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The document of the matching `GET` endpoint, or a [`Done`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub json: Option<Box<RawValue>>,
}

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Done {
    /// A sentence on the change.
    pub done: String,
    /// Index of the rule, if the change is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// What the change does not do as it seems: sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Done {
    /// A change that is not about a rule.
    pub(crate) fn new(done: String) -> Done {
        Done { done, index: None, warnings: Vec::new() }
    }
}

/// A request that was refused and changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorReply {
    /// One sentence; for a file with several errors, on the first of them.
    pub error: String,
    /// The errors in the text of the request, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<DiagnosticEntry>,
}

/// One error in a line or a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiagnosticEntry {
    /// Line number, from 1; 0 for a text of one line.
    pub line: u32,
    /// Column of the first character of the wrong word, in characters from 1.
    pub column: u64,
    /// Offset of the wrong word in the line, in bytes.
    pub start: u64,
    /// Offset of the end of the wrong word, in bytes.
    pub end: u64,
    /// The error, in one sentence.
    pub message: String,
    /// How to correct it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// A rule to add.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleRequest {
    /// The rule as a line of the language, `add …`.
    #[schema(example = "add ip-proto udp drop")]
    pub rule: String,
}

/// `list`: the rules in the order of their indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleList {
    /// The rules.
    pub rules: Vec<RuleEntry>,
}

/// A rule and its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleEntry {
    /// Index of the rule. It does not change when other rules are deleted.
    pub index: u32,
    /// Canonical text, with name and comment.
    pub text: String,
    /// The rule's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The comment on the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Packets that the rule matched.
    pub packets: u64,
    /// Bytes of the frames of these packets.
    pub bytes: u64,
    /// Packets that the rule dropped, or accepted although a rule with `drop` matched. Absent for rules
    /// that do neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<u64>,
}

/// `show fields`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldList {
    /// The fields of the language.
    pub fields: Vec<FieldEntry>,
}

/// A field of the language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldEntry {
    /// Name of the field.
    pub name: String,
    /// Protocol of the field.
    pub protocol: String,
    /// Width in bits; 0 if it varies.
    pub bits: u32,
    /// Whether rules can match the field.
    #[serde(rename = "match")]
    pub match_: bool,
    /// Whether `mod` can write the field.
    #[serde(rename = "mod")]
    pub modify: bool,
    /// The conditions of matches on the field, or `no: ` and the reason.
    #[serde(default)]
    pub matched: String,
    /// The targets that write the field, or `no: ` and the reason.
    #[serde(default)]
    pub written: String,
    /// Meaning of the field.
    pub help: String,
    /// An example of a match.
    pub example: String,
}

/// The daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionEntry {
    /// Release.
    pub version: String,
    /// Workers, pages and memory in use.
    pub engine: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// Number of rules.
    pub rules: u64,
}

/// A configuration as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigEntry {
    /// The lines of a file with this configuration.
    pub config: String,
    /// The file that the daemon was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// The result of applying a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApplyReply {
    /// A sentence on the change.
    pub done: String,
    /// Rules of the new configuration.
    pub rules: u64,
    /// Rules that were added.
    pub added: u64,
    /// Rules that were removed.
    pub removed: u64,
    /// The lines that were removed: all that are not rules, and then the first 20 rules.
    #[serde(default)]
    pub removed_lines: Vec<String>,
    /// Rules that were kept, with their counters.
    pub kept: u64,
    /// Interfaces of the new configuration.
    pub interfaces: u64,
    /// Rules that never do what they say: sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl ApplyReply {
    /// Most removed rules in [`ApplyReply::removed_lines`].
    pub const NAMED_RULES: usize = 20;
}

/// The changes that applying a file would make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffReply {
    /// Lines that would be removed.
    pub removed: Vec<String>,
    /// Lines that would be added.
    pub added: Vec<String>,
    /// Whether the order of the remaining rules would change, and with it the order of their edits.
    pub reordered: bool,
}

/// A file without errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckReply {
    /// Number of rules.
    pub rules: u64,
    /// Number of interfaces.
    pub interfaces: u64,
    /// Rules that never do what they say: sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
