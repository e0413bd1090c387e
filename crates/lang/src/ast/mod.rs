//! The typed form of the language: commands and rules, with the source position of every word.
//!
//! The parser gives values the type of their field: a number fits the field's width, an address has the
//! field's family, and host bits of a prefix are zero. So consumers never look at text. [`crate::check`]
//! gives the same guarantees for rules that were built by hand.

mod broker;
mod capture;
mod chain;
mod command;
mod limit;
mod nat;
mod set;
mod setting;

use std::net::IpAddr;
use std::ops::Deref;

pub use broker::{Broker, BrokerOption};
pub use capture::{CaptureSelection, SessionName};
pub(crate) use chain::PlaceWords;
pub use chain::{
    Body, Branch, BranchEnd, Chain, Domain, DomainKind, NfInstance, OnFailure, ProcessMode, ProcessPlace,
    Step,
};
pub use command::{Command, PortKind, ShowSubject};
pub use limit::{PuntClass, SessionLimit};
pub use nat::{Endpoint4, Filtering, NatForward, NatPool, NatProto, PoolAddresses};
pub use set::{NamedSet, SetElement, SetElements, SetKind, Subnet};
pub(crate) use set::{is_address_field, is_port_field};
pub use setting::{ErrorPolicy, FastPathMode, HeldScope, LogFormat, LogSink, ReversePathMode, Timeout};

use crate::field::FieldId;
use crate::shape::is_rule_name;
use crate::span::SourceSpan;

/// A name in a line: an interface, a NAT pool, a chain, an instance of a network function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Word {
    /// The name.
    pub text: Box<str>,
    /// Source position.
    pub span: SourceSpan,
}

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        Self { text: text.into(), span: SourceSpan::default() }
    }
}

impl Deref for Word {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// A rule: if all matches hold, the targets apply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The keyword it was added with.
    pub kind: RuleKind,
    /// Conditions, all of which must hold. Never empty after parsing.
    pub matches: Vec<Match>,
    /// Actions, in order. Never empty after parsing.
    pub targets: Vec<Target>,
    /// Name and comment. None: the rule has neither. Boxed, since most rules have none.
    pub label: Option<Box<RuleLabel>>,
    /// The whole rule.
    pub span: SourceSpan,
}

impl Rule {
    /// The name of the rule.
    pub fn name(&self) -> Option<&Word> {
        self.label.as_ref()?.name.as_ref()
    }

    /// The comment on the rule.
    pub fn comment(&self) -> Option<&str> {
        self.label.as_ref()?.comment.as_deref()
    }
}

/// Name and comment of a rule, for its readers. They do not change what the rule does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RuleLabel {
    /// `name <name>`: a letter, and up to 30 letters, digits, dots, dashes or underscores.
    pub name: Option<Word>,
    /// `comment "<text>"`: 1 to 255 bytes without control characters.
    pub comment: Option<Box<str>>,
}

/// A rule that a command names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RuleRef {
    /// By its index, from 1.
    Index(u32),
    /// By its name.
    Name(Word),
}

impl RuleRef {
    /// Reads an index from 1, or a name.
    pub fn read(text: &str, span: SourceSpan) -> Option<RuleRef> {
        match text.parse::<u32>() {
            Ok(index) if index > 0 && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(RuleRef::Index(index))
            }
            _ => is_rule_name(text).then(|| RuleRef::Name(Word { text: text.into(), span })),
        }
    }
}

/// The keyword of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleKind {
    /// `add`: packet by packet.
    Add,
    /// `add-stateless`: equal to `add`.
    Stateless,
    /// `add-stateful`: the rule opens a session and applies to all of it.
    Stateful,
}

/// A match of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Match {
    /// `!`: holds if the rest does not. So `! ip-proto udp` also holds for IPv6 packets.
    pub negated: bool,
    /// The condition.
    pub what: MatchExpr,
    /// The whole match, `!` included.
    pub span: SourceSpan,
}

/// The condition of a match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MatchExpr {
    /// `all`: always holds.
    All,
    /// A condition on a field.
    Field {
        /// The field.
        field: FieldId,
        /// Condition and values. None: for one-bit fields, the header is present and the bit is 1; for ECN
        /// shorthands ([`crate::ValueKind::Shorthand`]), the header is present and the bits have that value;
        /// for other fields, the header or option is present.
        arg: Option<Comparison>,
    },
}

/// Condition and values of a match. Holds only if the packet has the field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Comparison {
    /// The condition.
    pub cond: Cond,
    /// The values. With [`Cond::Eq`] one of them must match, with [`Cond::Ne`] none. Other conditions have
    /// exactly one value, which is neither a range nor a prefix.
    pub values: ValueSet,
    /// Source position of the condition (if written) and the values.
    pub span: SourceSpan,
}

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cond {
    /// `==` or `eq`; also the default.
    Eq,
    /// `!=` or `ne`.
    Ne,
    /// `<` or `lt`.
    Lt,
    /// `<=` or `le`.
    Le,
    /// `>` or `gt`.
    Gt,
    /// `>=` or `ge`.
    Ge,
    /// `contains`: the payload or the option's data contains the bytes. ([`Cond::Eq`]: the payload begins
    /// with them; the option's data equals them.)
    Contains,
}

/// One or more values (`{80,443,8000-8100}`). Dereferences to a slice.
#[derive(Clone, Debug)]
pub struct ValueSet(Repr);

/// Nearly all sets have one value. Those do not allocate.
#[derive(Clone, Debug)]
enum Repr {
    One(ValueItem),
    Many(Box<[ValueItem]>),
}

impl ValueSet {
    /// A set of these values; `None` if there are none.
    pub fn new(mut items: Vec<ValueItem>) -> Option<Self> {
        match items.len() {
            0 => None,
            1 => items.pop().map(|item| Self(Repr::One(item))),
            _ => Some(Self(Repr::Many(items.into()))),
        }
    }

    /// The value, if the set has exactly one and it is not a range.
    pub fn single(&self) -> Option<&Value> {
        match &self.0 {
            Repr::One(ValueItem::Single(value)) => Some(value),
            _ => None,
        }
    }
}

impl From<Value> for ValueSet {
    fn from(value: Value) -> Self {
        Self(Repr::One(ValueItem::Single(value)))
    }
}

impl From<ValueItem> for ValueSet {
    fn from(item: ValueItem) -> Self {
        Self(Repr::One(item))
    }
}

impl Deref for ValueSet {
    type Target = [ValueItem];

    fn deref(&self) -> &[ValueItem] {
        match &self.0 {
            Repr::One(item) => std::slice::from_ref(item),
            Repr::Many(items) => items,
        }
    }
}

impl PartialEq for ValueSet {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for ValueSet {}

impl std::hash::Hash for ValueSet {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// A member of a set of values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ValueItem {
    /// One value.
    Single(Value),
    /// `low-high`, inclusive, of numbers or of whole addresses. `low` is at most `high`.
    Range(Box<[Value; 2]>),
}

/// A value, of the kind of its field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A number: the bits of the field in network order. Protocols and ethertypes too.
    Int(u64),
    /// An address (`len` 32 or 128) or a subnet. Bits after `len` are zero.
    Prefix {
        /// Address of the network.
        addr: IpAddr,
        /// Prefix length.
        len: u8,
    },
    /// An interface, by its name in mmb.
    Iface(Word),
    /// Literal bytes, at least one.
    Bytes(Box<[u8]>),
    /// `@name`: the elements of a named set. The only value of a match, with [`Cond::Eq`] or [`Cond::Ne`].
    Set(Word),
    /// `@name` behind two fields: that of the match, an address, and this one, a port. As [`Value::Set`].
    PairSet(Word, FieldId),
    /// A TCP option by number, for `add` and `mod`.
    Option {
        /// The option's kind.
        kind: u8,
        /// Data after kind and length; may be empty.
        data: Box<[u8]>,
    },
}

/// A target of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The action.
    pub action: Action,
    /// The whole target.
    pub span: SourceSpan,
}

/// The action of a target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `mod <field> <value>`: writes the field. Packets without the field are unchanged. If a TCP option
    /// occurs several times, each occurrence is written.
    Mod {
        /// The field.
        field: FieldId,
        /// The new value; never a subnet.
        value: Value,
    },
    /// `add <option> [<value>]`: writes a TCP option as `mod` does, or appends it if it is missing.
    Add {
        /// A `tcp-opt…` field.
        field: FieldId,
        /// Value of the option, if it has one.
        value: Option<Value>,
    },
    /// `strip [!] <option>`: removes a TCP option wherever it occurs. With `!`: keeps it, and removes all
    /// options that no `strip !` of the rule names, at the position of the first `strip !`.
    Strip {
        /// `!`.
        keep: bool,
        /// A `tcp-opt…` field.
        field: FieldId,
        /// Kind of the option, for `tcp-opt <kind>`. `tcp-opt` without a kind means all options.
        kind: Option<u8>,
    },
    /// `strip all`: remove all TCP options.
    StripAll,
    /// `map <field> <value>`: gives the session another value of the field. Reverse packets get the old value
    /// back.
    Map {
        /// The field.
        field: FieldId,
        /// The values to choose from.
        values: ValueSet,
    },
    /// `shuffle <field> [<value>]`: gives the session a random value of the field. Reverse packets get the
    /// old value back.
    Shuffle {
        /// The field.
        field: FieldId,
        /// The values to choose from. None: all values of the field, for ports those from 1024 on.
        values: Option<ValueSet>,
    },
    /// `lb <address> …`: distributes sessions over these destinations.
    Lb {
        /// At least one.
        addresses: Vec<IpAddr>,
    },
    /// `nat <pool>`: gives the session an address and a port of a pool. Reverse packets get the old ones
    /// back.
    Nat {
        /// The pool.
        pool: Word,
    },
    /// `drop [<percent>]`.
    Drop {
        /// The share of the traffic in hundredths of a percent: 1 to 10,000; 10,000 is all.
        ten_thousandths: u32,
    },
    /// `accept`: no `drop` drops the packet.
    Accept,
    /// `block`: the packet is dropped, even if a rule accepts it.
    Block,
    /// `reject`: the packet is dropped as by `drop`, and its sender gets a TCP reset or an ICMP error.
    Reject,
    /// `log [prefix "<text>"]`: a line about the packet goes to the log.
    Log {
        /// The text at the beginning of the line.
        prefix: Option<Box<str>>,
    },
    /// `chain <name>`: through a service chain.
    Chain {
        /// The chain.
        name: Word,
    },
    /// `broker <name>`: to a transparent broker.
    Broker {
        /// The broker.
        name: Word,
    },
}

impl Rule {
    /// Whether the rule opens sessions: by its keyword, or since connections to a broker are sessions.
    pub fn is_stateful(&self) -> bool {
        let is_broker = |target: &Target| matches!(target.action, Action::Broker { .. });
        self.kind == RuleKind::Stateful || self.targets.iter().any(is_broker)
    }
}

impl Match {
    /// `all`.
    pub fn all() -> Self {
        MatchExpr::All.into()
    }

    /// A match of packets with a TCP header.
    pub fn tcp() -> Self {
        Match::field(FieldId::TcpSport)
    }

    /// A match on the presence of a field.
    pub fn field(field: FieldId) -> Self {
        MatchExpr::Field { field, arg: None }.into()
    }

    /// A match that compares a field with one value.
    pub fn compare(field: FieldId, cond: Cond, value: Value) -> Self {
        let arg = Comparison { cond, values: value.into(), span: SourceSpan::default() };
        MatchExpr::Field { field, arg: Some(arg) }.into()
    }

    /// The negation of the match: adds or removes `!`.
    pub fn negate(mut self) -> Self {
        self.negated = !self.negated;
        self
    }
}

impl Match {
    /// The field and the named set that the match compares it with.
    pub fn named_set(&self) -> Option<(FieldId, &Word)> {
        let MatchExpr::Field { field, arg: Some(arg) } = &self.what else { return None };
        arg.named_set().map(|name| (*field, name))
    }

    /// The port that the match compares with a named set, beside its field.
    pub fn pair_port(&self) -> Option<FieldId> {
        match &self.what {
            MatchExpr::Field { arg: Some(arg), .. } => arg.pair_port(),
            _ => None,
        }
    }
}

impl Comparison {
    /// The named set among the values.
    pub fn named_set(&self) -> Option<&Word> {
        match self.values.single() {
            Some(Value::Set(name) | Value::PairSet(name, _)) => Some(name),
            _ => None,
        }
    }

    /// The port that is compared with a named set beside the field of the match.
    pub fn pair_port(&self) -> Option<FieldId> {
        match self.values.single() {
            Some(Value::PairSet(_, port)) => Some(*port),
            _ => None,
        }
    }
}

impl From<MatchExpr> for Match {
    fn from(what: MatchExpr) -> Self {
        Self { negated: false, what, span: SourceSpan::default() }
    }
}

impl From<Action> for Target {
    fn from(action: Action) -> Self {
        Self { action, span: SourceSpan::default() }
    }
}

impl Value {
    /// A whole address.
    pub fn address(addr: impl Into<IpAddr>) -> Self {
        let addr = addr.into();
        Value::Prefix { addr, len: address_bits(&addr) }
    }
    /// Whether the value is a prefix shorter than an address.
    pub fn is_subnet(&self) -> bool {
        matches!(self, Value::Prefix { addr, len } if *len < address_bits(addr))
    }
}

/// Number of bits of an address.
pub(crate) fn address_bits(addr: &IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}
