//! The typed form of the language: what a line says, with the place of every word it says it with.
//!
//! Values are typed by their field when they are parsed, so a consumer never looks at text: a number fits the
//! field's width, an address belongs to the field's family, host bits of a prefix are zero. Rules that were
//! built by hand get the same guarantees from [`crate::check`].

mod chain;
mod command;
mod nat;

use std::net::IpAddr;
use std::ops::Deref;

pub use chain::{Body, Branch, BranchEnd, Chain, NfAdd, Step};
pub use command::{Command, ErrorPolicy, PortKind, ShowSubject, Subnet, Timeout};
pub use nat::{Endpoint4, Filtering, NatForward, NatPool, NatProto};

use crate::field::FieldId;
use crate::span::SourceSpan;

/// A name the user wrote: an interface, a NAT pool, a chain, an instance of a network function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Word {
    /// The name.
    pub text: Box<str>,
    /// Where it stands.
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

/// A rule: when all matches hold, the targets apply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The keyword it was added with.
    pub kind: RuleKind,
    /// What must hold, all of it. Never empty after parsing.
    pub matches: Vec<Match>,
    /// What is done then, in order. Never empty after parsing.
    pub targets: Vec<Target>,
    /// The whole rule.
    pub span: SourceSpan,
}

/// The keyword of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleKind {
    /// `add`: packet by packet.
    Add,
    /// `add-stateless`: the same as `add`.
    Stateless,
    /// `add-stateful`: the rule opens a session and applies to all of it.
    Stateful,
}

/// One match of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Match {
    /// `!`: holds exactly when the rest does not; `! ip-proto udp` holds for IPv6 packets, too.
    pub negated: bool,
    /// What is asked.
    pub what: MatchExpr,
    /// The whole match, `!` included.
    pub span: SourceSpan,
}

/// What a match asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MatchExpr {
    /// `all`: always holds.
    All,
    /// A question about one field.
    Field {
        /// The field.
        field: FieldId,
        /// Condition and values. Without: for a one-bit field, that the header is there and the bit is 1; for
        /// an ECN shorthand ([`crate::ValueKind::Shorthand`]), that the header is there and the bits are
        /// those; for others, that the header (or option) is there.
        arg: Option<Comparison>,
    },
}

/// Condition and values of a match. It holds only if the packet has the field at all, whatever the condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Comparison {
    /// The condition.
    pub cond: Cond,
    /// What the field is compared with. With [`Cond::Eq`] one of the values must fit, with [`Cond::Ne`] none;
    /// the other conditions have exactly one value, no range and no prefix.
    pub values: ValueSet,
    /// The condition (when it is written) and the values.
    pub span: SourceSpan,
}

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cond {
    /// `==` or `eq`; also what stands when nothing is written.
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
    /// `contains`: the bytes stand somewhere in the payload ([`Cond::Eq`]: at its start), or in the data of
    /// the option ([`Cond::Eq`]: they are all of it).
    Contains,
}

/// One value or several (`{80,443,8000-8100}`), never none. Reads like a slice.
#[derive(Clone, Debug)]
pub struct ValueSet(Repr);

/// Nearly all sets have one value; those do not allocate.
#[derive(Clone, Debug)]
enum Repr {
    One(ValueItem),
    Many(Box<[ValueItem]>),
}

impl ValueSet {
    /// A set of these values; `None` when there are none.
    pub fn new(mut items: Vec<ValueItem>) -> Option<Self> {
        match items.len() {
            0 => None,
            1 => items.pop().map(|item| Self(Repr::One(item))),
            _ => Some(Self(Repr::Many(items.into()))),
        }
    }

    /// The value, when there is one only and it is no range.
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
    /// `low-high`, both included, of numbers or of whole addresses; low is not above high.
    Range(Box<[Value; 2]>),
}

/// A value, of the kind that its field asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A number: the field's bits, the last bit on the wire is the lowest. Protocols and ethertypes, too.
    Int(u64),
    /// An address (`len` 32 or 128) or a subnet. Bits behind `len` are zero.
    Prefix {
        /// Address of the network.
        addr: IpAddr,
        /// Bits that count.
        len: u8,
    },
    /// An interface, by its name in mmb.
    Iface(Word),
    /// Literal bytes, at least one.
    Bytes(Box<[u8]>),
    /// A TCP option by number, for `add` and `mod`.
    Option {
        /// The option's kind.
        kind: u8,
        /// What follows kind and length; may be empty.
        data: Box<[u8]>,
    },
}

/// One target of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// What is done.
    pub action: Action,
    /// The whole target.
    pub span: SourceSpan,
}

/// What a target does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `mod <field> <value>`: write the field; nothing happens to packets that do not have it. A TCP option
    /// that stands there several times gets the value each time.
    Mod {
        /// The field.
        field: FieldId,
        /// What it is set to; never a prefix shorter than the address.
        value: Value,
    },
    /// `add <option> [<value>]`: give a TCP option this value as `mod` does, or append it where there is
    /// none.
    Add {
        /// A `tcp-opt…` field.
        field: FieldId,
        /// The option's value, where it has one.
        value: Option<Value>,
    },
    /// `strip [!] <option>`: remove a TCP option wherever it stands; with `!`, keep it and remove all that no
    /// `strip !` of the rule names, at the place of the first `strip !`.
    Strip {
        /// `!`.
        keep: bool,
        /// A `tcp-opt…` field.
        field: FieldId,
        /// The option's kind, for `tcp-opt <kind>`; `tcp-opt` without is all options.
        kind: Option<u8>,
    },
    /// `strip all`: remove all TCP options.
    StripAll,
    /// `map <field> <value>`: give the session another value of the field, undone on the way back.
    Map {
        /// The field.
        field: FieldId,
        /// What it is chosen from.
        values: ValueSet,
    },
    /// `shuffle <field> [<value>]`: give the session a random value of the field, undone on the way back.
    Shuffle {
        /// The field.
        field: FieldId,
        /// What it is chosen from; without, all values that the field can have, ports from 1024 on.
        values: Option<ValueSet>,
    },
    /// `lb <address> …`: spread sessions over these destinations.
    Lb {
        /// At least one.
        addresses: Vec<IpAddr>,
    },
    /// `nat <pool>`: give the session an address and a port of a pool, undone on the way back.
    Nat {
        /// The pool.
        pool: Word,
    },
    /// `drop [<percent>]`.
    Drop {
        /// How much of the traffic, in hundredths of a percent: 1 to 10,000; 10,000 is all.
        ten_thousandths: u32,
    },
    /// `accept`: no rule drops the packet.
    Accept,
    /// `chain <name>`: through a service chain.
    Chain {
        /// The chain.
        name: Word,
    },
}

impl Match {
    /// `all`.
    pub fn all() -> Self {
        MatchExpr::All.into()
    }

    /// A field alone.
    pub fn field(field: FieldId) -> Self {
        MatchExpr::Field { field, arg: None }.into()
    }

    /// A field compared with one value.
    pub fn compare(field: FieldId, cond: Cond, value: Value) -> Self {
        let arg = Comparison { cond, values: value.into(), span: SourceSpan::default() };
        MatchExpr::Field { field, arg: Some(arg) }.into()
    }

    /// The same with `!` in front, or without when there was one.
    pub fn negate(mut self) -> Self {
        self.negated = !self.negated;
        self
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
    /// A prefix that is shorter than the address.
    pub fn is_subnet(&self) -> bool {
        matches!(self, Value::Prefix { addr, len } if *len < address_bits(addr))
    }
}

/// Bits in an address.
pub(crate) fn address_bits(addr: &IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}
