//! Documents about the path of single packets.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ConnectionEntry;

/// The packets of `mmb explain` and `trace`, sent while they are processed, one per line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TraceList {
    /// The packets, in the order in which they left the graph.
    pub packets: Vec<TraceEntry>,
}

/// What happened to a packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TraceEntry {
    /// Number of the packet: in the capture, or among those that the worker has traced.
    pub packet: u64,
    /// When it came in, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The worker that processed it.
    pub worker: u64,
    /// The interface that received it.
    #[serde(rename = "in", default, skip_serializing_if = "Option::is_none")]
    pub in_: Option<String>,
    /// Bytes of the frame as it came in.
    pub length: u64,
    /// Addresses, ports and flags as it came in, in one line.
    pub summary: String,
    /// The drop reason that tells why the headers are malformed; absent if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parse_error: Option<String>,
    /// The nodes that it passed, in order.
    pub nodes: Vec<TraceNode>,
    /// The rules that apply to it; absent if it met none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<TraceRules>,
    /// Its session; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<TraceSession>,
    /// The rule that was asked about, match by match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<TraceWhy>,
    /// `sent`, `dropped`, `handed-over` to another worker, `consumed` by a function that sends its bytes in
    /// other frames, or `kept`: it waits in the last node.
    pub result: String,
    /// The interface that it was given to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// The neighbour that it was sent to, if it was routed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Why it was dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The drop reason in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_help: Option<String>,
}

/// The packets of `capture`, sent while they are processed, one per line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CaptureList {
    /// The packets, in the order in which they left the graph.
    pub packets: Vec<CapturedEntry>,
    /// Packets that were selected and not captured, as they came too fast.
    pub missed: u64,
    /// `capture session`: a sentence, if the session has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_end: Option<String>,
}

/// A packet of `capture`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CapturedEntry {
    /// When it came in, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The interface that received it.
    #[serde(rename = "in", default, skip_serializing_if = "Option::is_none")]
    pub in_: Option<String>,
    /// The interface that it was given to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// Bytes of the frame as it came in.
    pub length: u64,
    /// Addresses, ports and flags as it came in, in one line.
    pub summary: String,
    /// Addresses, ports and flags as it left, if they are others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_out: Option<String>,
    /// Why it was dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Index of the rule that decided whether it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<u32>,
    /// Canonical text of the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_text: Option<String>,
}

/// A node that a packet passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TraceNode {
    /// The node.
    pub node: String,
    /// What the functions of the session's chain did in this node, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<TraceFunction>,
    /// What the node changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<TraceChange>,
}

/// A function that a packet passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TraceFunction {
    /// Name of the instance.
    pub function: String,
    /// `pass`, `output N`, `drop REASON`, `consume`, `refuse REASON`, `end REASON` or `hold`.
    pub verdict: String,
    /// What the function changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<TraceChange>,
}

/// A field that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceChange {
    /// The field, by its name in rules.
    pub field: String,
    /// The value before; absent if the packet did not have the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The value after; absent if the packet does not have the field any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// The rules that apply to a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceRules {
    /// The rules that match it, in their order.
    pub matched: Vec<TraceRule>,
    /// Rules of its session that apply although they do not match it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_session: Vec<TraceRule>,
    /// Index of the rule that decides whether it goes on: `block` over `accept` over `drop`, and of several
    /// the first one. Absent if no rule decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decider: Option<u32>,
}

/// A rule that applies to a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceRule {
    /// Index of the rule.
    pub index: u32,
    /// Canonical text.
    pub text: String,
}

/// The session of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceSession {
    /// The packet has opened it.
    pub is_new: bool,
    /// `forward`: the packet has the direction of the one that opened the session. Otherwise `reverse`.
    pub direction: String,
    /// The session, after the packet.
    pub connection: ConnectionEntry,
}

/// Why a rule matches a packet or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceWhy {
    /// Index of the rule.
    pub index: u32,
    /// Canonical text.
    pub text: String,
    /// Whether it matches the packet.
    pub matches: bool,
    /// A sentence, if the matches alone do not explain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The matches of the rule.
    pub checks: Vec<TraceCheck>,
}

/// What the rules say about a frame that was not received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FrameReply {
    /// Bytes of the frame.
    pub length: u64,
    /// Addresses, ports and flags, in one line.
    pub summary: String,
    /// The drop reason that tells why the headers are malformed; absent if they are not. No rule applies
    /// then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parse_error: Option<String>,
    /// The interface by which rules with `out` see it leave; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// Index of the rule that decides whether it goes on; absent if no rule decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decider: Option<u32>,
    /// The rules that match, match by match, and then the first ones that do not.
    pub rules: Vec<TraceWhy>,
    /// Number of further rules, which do not match.
    pub more_rules: u64,
}

/// A match of a rule, and a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceCheck {
    /// The match, as in the rule.
    #[serde(rename = "match")]
    pub match_: String,
    /// Whether it holds.
    pub holds: bool,
    /// The packet's value of the field; absent if it has no such field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}
