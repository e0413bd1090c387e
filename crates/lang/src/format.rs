//! The canonical text of commands and rules. The parser reads it back.

use std::fmt::{self, Display, Formatter, Write as _};

use crate::ast::{
    Action, Body, Branch, BranchEnd, Broker, CaptureSelection, Chain, Command, Cond, Domain, Endpoint4,
    Filtering, Match, MatchExpr, NatForward, NatPool, NatProto, NfInstance, OnFailure, PlaceWords,
    PoolAddresses, PortKind, ProcessMode, ProcessPlace, ReversePathMode, Rule, RuleKind, RuleRef,
    SessionLimit, Step, Subnet, Target, Value, ValueItem, ValueSet, Word,
};
use crate::field::{FieldId, ValueKind};
use crate::keyword::{cond_sign, show_word};
use crate::lex::quote_text;
use crate::names;

mod set;

impl Display for Word {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Display for Command {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Command::Add(rule) => rule.fmt(f),
            Command::Del { rule } => write!(f, "del {rule}"),
            Command::Flush => f.write_str("flush"),
            Command::List { matches } => list(f, "list", matches),
            Command::History { revision } => list(f, "history", revision.as_slice()),
            Command::Rollback { revision } => list(f, "rollback", revision.as_slice()),
            Command::Confirm => f.write_str("confirm"),
            Command::Enable(names) => list(f, "enable", names),
            Command::Disable(names) => list(f, "disable", names),
            Command::Show { what, verbose } => {
                write!(f, "show {}{}", show_word(*what), if *verbose { " verbose" } else { "" })
            }
            Command::InterfaceAdd { name, kind } => write!(f, "interface add {name} {kind}"),
            Command::InterfaceDel { name } => write!(f, "interface del {name}"),
            Command::Wire { a, b } => write!(f, "wire {a} {b}"),
            Command::Unwire { a } => write!(f, "wire del {a}"),
            Command::Route(names) => list(f, "route", names),
            Command::Unroute { name } => write!(f, "route del {name}"),
            Command::ShowFib { within } => list(f, "show fib", within.as_slice()),
            Command::ShowNeighbors { within } => list(f, "show neighbors", within.as_slice()),
            Command::ShowConnections { verbose, matches } => {
                list(f, if *verbose { "show connections verbose" } else { "show connections" }, matches)
            }
            Command::ClearConnections { matches } => list(f, "clear connections", matches),
            Command::Trace { matches, why, count, seconds } => {
                list(f, "trace", matches)?;
                why.iter().try_for_each(|rule| write!(f, " why {rule}"))?;
                Limits(count, seconds).fmt(f)
            }
            Command::Capture { matches, selection } => live(f, "capture", matches, selection),
            Command::NatPoolAdd(pool) => pool.fmt(f),
            Command::NatPoolDel { name } => write!(f, "nat pool del {name}"),
            Command::NatForwardAdd(forward) => forward.fmt(f),
            Command::NatForwardDel { proto, outside } => write!(f, "nat forward del {proto} {outside}"),
            Command::DomainAdd(domain) => domain.fmt(f),
            Command::DomainDel { name } => write!(f, "domain del {name}"),
            Command::NfAdd(function) => function.fmt(f),
            Command::NfDel { name } => write!(f, "nf del {name}"),
            Command::NfSet { name, words } => {
                write!(f, "nf set {name}")?;
                words.iter().try_for_each(|word| write!(f, " {}", Unbroken(word)))
            }
            Command::ChainAdd(chain) => chain.fmt(f),
            Command::ChainSet(Chain { name, body }) => write!(f, "chain set {name} {body}"),
            Command::ChainDel { name } => write!(f, "chain del {name}"),
            Command::BrokerAdd(broker) => broker.fmt(f),
            Command::BrokerDel { name } => write!(f, "broker del {name}"),
            Command::SetAdd(set) => set.fmt(f),
            Command::SetDel { name } => write!(f, "set del {name}"),
            Command::ElementAdd(added) => added.fmt(f),
            Command::ElementDel { name, elements } => list(f, &format!("set {name} del"), elements),
            Command::ElementFlush { name } => write!(f, "set {name} flush"),
            Command::ShowSet { name } => write!(f, "show set {name}"),
            setting => format_setting(setting, f),
        }
    }
}

/// Formats a command `set`.
fn format_setting(setting: &Command, f: &mut Formatter<'_>) -> fmt::Result {
    match setting {
        Command::SetOnError(policy) => write!(f, "set on-error {}", policy.word()),
        Command::SetTimeout { timeout, seconds } => write!(f, "set timeout {} {seconds}", timeout.word()),
        Command::SetPuntLimit { class, rate: Some(rate) } => {
            write!(f, "set punt-limit {} {rate}", class.word())
        }
        Command::SetPuntLimit { class, rate: None } => write!(f, "set punt-limit {} off", class.word()),
        Command::SetSessionLimit(SessionLimit::Sessions(n)) => write!(f, "set session-limit source {n}"),
        Command::SetSessionLimit(SessionLimit::Default) => f.write_str("set session-limit source default"),
        Command::SetSessionLimit(SessionLimit::Off) => f.write_str("set session-limit source off"),
        Command::SetTcpPickup(on) => write!(f, "set tcp-pickup {}", switch(*on)),
        Command::SetTcpWindowCheck(on) => write!(f, "set tcp-window-check {}", switch(*on)),
        Command::SetHeldPackets { scope, packets } => {
            write!(f, "set held-packets {} {packets}", scope.word())
        }
        Command::SetStreamPickup(pickup) => {
            write!(f, "set stream-pickup {}", pickup.word())
        }
        Command::SetStreamOverflow(overflow) => {
            write!(f, "set stream-overflow {}", overflow.word())
        }
        Command::SetStreamMptcp(mptcp) => write!(f, "set stream-mptcp {}", mptcp.word()),
        Command::SetStreamHoldTime(time) => write!(f, "set stream-hold-time {time}"),
        Command::SetMartianCheck(on) => write!(f, "set martian-check {}", switch(*on)),
        Command::SetRpf(mode) => write!(f, "set rpf {}", mode.word()),
        Command::SetInterfaceRpf { mode, names } => {
            list(f, &format!("set rpf {}", mode.map_or("default", ReversePathMode::word)), names)
        }
        Command::SetFastPath(mode) => write!(f, "set fast-path {}", mode.word()),
        Command::SetLogFormat(format) => write!(f, "set log-format {}", format.word()),
        Command::SetLogTo(sink) => write!(f, "set log-to {}", sink.word()),
        Command::SetWorkerMode(mode) => write!(f, "set worker-mode {}", mode.word()),
        Command::SetGro(on) => write!(f, "set gro {}", switch(*on)),
        _ => Ok(()),
    }
}

fn list<T: Display>(f: &mut Formatter<'_>, first: &str, rest: &[T]) -> fmt::Result {
    f.write_str(first)?;
    rest.iter().try_for_each(|item| write!(f, " {item}"))
}

/// A command that shows packets, with its options.
fn live(f: &mut Formatter<'_>, word: &str, matches: &[Match], options: &dyn Display) -> fmt::Result {
    list(f, word, matches)?;
    options.fmt(f)
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

impl Display for CaptureSelection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.drops { " drops" } else { "" })?;
        self.rule.iter().try_for_each(|rule| write!(f, " rule {rule}"))?;
        self.session.map_or(Ok(()), |session| write!(f, " session {session}"))?;
        Limits(&self.count, &self.seconds).fmt(f)
    }
}

/// When a command that shows packets ends: behind so many, or after so many seconds.
struct Limits<'a>(&'a u32, &'a Option<u32>);

impl Display for Limits<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Limits(count, seconds) = self;
        write!(f, " count {count}")?;
        seconds.map_or(Ok(()), |seconds| write!(f, " seconds {seconds}"))
    }
}

impl Display for NatPool {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "nat pool add {} {}", self.name, self.addresses)?;
        if self.ports != NatPool::PORTS {
            write!(f, " ports {}-{}", self.ports[0], self.ports[1])?;
        }
        self.block.map_or(Ok(()), |block| write!(f, " block {block}"))?;
        self.limit.map_or(Ok(()), |limit| write!(f, " limit {limit}"))?;
        if self.filtering != Filtering::default() {
            write!(f, " filtering {}", self.filtering.word())?;
        }
        Ok(())
    }
}

impl Display for PoolAddresses {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PoolAddresses::Range([first, last]) if first == last => first.fmt(f),
            PoolAddresses::Range([first, last]) => write!(f, "{first}-{last}"),
            PoolAddresses::Subnet { first, length } => write!(f, "{first}/{length}"),
            PoolAddresses::Interface(name) => write!(f, "interface {name}"),
        }
    }
}

impl Display for NatForward {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "nat forward add {} {} to {}", self.proto, self.outside, self.inside)
    }
}

impl Display for NatProto {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Display for Endpoint4 {
    /// In the syntax of the language: separated by a blank.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.address, self.port)
    }
}

impl Display for Subnet {
    /// In the syntax of the language: an address without a prefix length.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.is_address() {
            true => self.address.fmt(f),
            false => write!(f, "{}/{}", self.address, self.len),
        }
    }
}

impl Display for PortKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PortKind::AfXdp { ifname } => write!(f, "af-xdp {ifname}"),
            PortKind::AfPacket { ifname } => write!(f, "af-packet {ifname}"),
            PortKind::Tap { ifname: None } => f.write_str("tap"),
            PortKind::Tap { ifname: Some(ifname) } => write!(f, "tap {ifname}"),
            PortKind::Pci { address } => write!(f, "pci {address}"),
            PortKind::Memif { socket } => write!(f, "memif {}", Unbroken(socket)),
            PortKind::Pcap { rx, tx } => write!(f, "pcap {} {}", Unbroken(rx), Unbroken(tx)),
            PortKind::Null => f.write_str("null"),
        }
    }
}

impl Display for NfInstance {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "nf add {} {}", self.name, self.kind)?;
        for (at, word) in self.args.iter().enumerate() {
            // In quotes, the word is an argument like any other.
            let behind = || self.args[at + 1..].iter().map(|word| (&**word, true)).collect::<Vec<_>>();
            let is_ambiguous = **word == *"process" && self.process.is_none();
            if is_ambiguous && PlaceWords::read(&behind()) != PlaceWords::Arguments {
                f.write_str(" \"process\"")?;
            } else {
                write!(f, " {}", Unbroken(word))?;
            }
        }
        let Some(ProcessPlace { domain, mode, cpu }) = &self.process else { return Ok(()) };
        write!(f, " process {domain}")?;
        if *mode != ProcessMode::default() {
            write!(f, " {}", mode.word())?;
        }
        cpu.map_or(Ok(()), |cpu| write!(f, " cpu {cpu}"))
    }
}

impl Display for Domain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "domain add {} {}", self.name, self.kind.word())?;
        if self.buffers != Domain::BUFFERS {
            write!(f, " buffers {}", self.buffers)?;
        }
        match self.on_failure {
            OnFailure::Drop => Ok(()),
            OnFailure::Pass => f.write_str(" on-failure pass"),
        }
    }
}

impl Display for Chain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "chain add {} {}", self.name, self.body)
    }
}

impl Display for Broker {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "broker add {}", self.name)?;
        self.listen.iter().try_for_each(|address| write!(f, " listen {address}"))?;
        f.write_str(if self.is_transparent { " transparent" } else { "" })?;
        f.write_str(if self.keeps_source { " keep-source" } else { "" })?;
        write!(f, " chain {}", self.chain)?;
        self.options.iter().try_for_each(|(option, number)| write!(f, " {} {number}", option.word()))
    }
}

impl Display for Body {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        between(f, " | ", &self.0)
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(function) = &self.function {
            function.fmt(f)?;
            if self.arms.is_empty() {
                return Ok(());
            }
            f.write_char(' ')?;
        }
        f.write_char('[')?;
        between(f, ", ", &self.arms)?;
        f.write_char(']')
    }
}

impl Display for Branch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(label) = &self.label {
            write!(f, "{label}: ")?;
        }
        match self.end {
            BranchEnd::Drop => f.write_str("drop"),
            BranchEnd::Join if self.body.0.is_empty() => f.write_str("pass"),
            BranchEnd::Join => self.body.fmt(f),
        }
    }
}

fn between<T: Display>(f: &mut Formatter<'_>, sign: &str, items: &[T]) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(sign)?;
        }
        item.fmt(f)?;
    }
    Ok(())
}

/// A path or an argument of a function, quoted if necessary.
struct Unbroken<'a>(&'a str);

impl Display for Unbroken<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let plain = |c: char| !c.is_ascii_whitespace() && !c.is_control() && c != '"';
        match self.0 {
            path if !path.is_empty() && !path.starts_with('#') && path.chars().all(plain) => {
                f.write_str(path)
            }
            path => f.write_str(&quote_text(path)),
        }
    }
}

/// A rule without name and comment.
struct RuleBody<'a>(&'a Rule);

impl Rule {
    /// Prints the rule without name and comment: all that decides what it does.
    pub fn body(&self) -> impl Display {
        RuleBody(self)
    }
}

impl Display for RuleBody<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Rule { kind, matches, targets, .. } = self.0;
        kind.fmt(f)?;
        matches.iter().try_for_each(|one| write!(f, " {one}"))?;
        targets.iter().try_for_each(|target| write!(f, " {target}"))
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.body().fmt(f)?;
        self.name().map_or(Ok(()), |name| write!(f, " name {name}"))?;
        self.comment().map_or(Ok(()), |text| write!(f, " comment {}", quote_text(text)))
    }
}

impl Display for RuleRef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            RuleRef::Index(index) => index.fmt(f),
            RuleRef::Name(name) => name.fmt(f),
        }
    }
}

impl Display for RuleKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleKind::Add => "add",
            RuleKind::Stateless => "add-stateless",
            RuleKind::Stateful => "add-stateful",
        })
    }
}

impl Display for Match {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.negated {
            f.write_str("! ")?;
        }
        match &self.what {
            MatchExpr::All => f.write_str("all"),
            MatchExpr::Field { field, arg: None } => f.write_str(field.name()),
            MatchExpr::Field { field, arg: Some(arg) } => {
                f.write_str(field.name())?;
                if let Some(port) = arg.pair_port() {
                    write!(f, ",{}", port.name())?;
                }
                if arg.cond != Cond::Eq {
                    write!(f, " {}", arg.cond)?;
                }
                write!(f, " {}", Values(*field, &arg.values))
            }
        }
    }
}

impl Display for Cond {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(cond_sign(*self))
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.action.fmt(f)
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Action::Mod { field, value } => write!(f, " {field} {}", One(*field, value)),
            Action::Add { field, value: None } | Action::Shuffle { field, values: None } => {
                write!(f, " {field}")
            }
            Action::Add { field, value: Some(value) } => write!(f, " {field} {}", One(*field, value)),
            Action::Strip { keep, field, kind } => {
                write!(f, "{} {field}", if *keep { " !" } else { "" })?;
                kind.map_or(Ok(()), |kind| write!(f, " {kind}"))
            }
            Action::StripAll => f.write_str(" all"),
            Action::Map { field, values } | Action::Shuffle { field, values: Some(values) } => {
                write!(f, " {field} {}", Values(*field, values))
            }
            Action::Nat { pool } => write!(f, " {pool}"),
            Action::Lb { addresses } => list(f, "", addresses),
            Action::Drop { ten_thousandths } => percent(f, *ten_thousandths),
            Action::Accept | Action::Block | Action::Reject => Ok(()),
            Action::Log { prefix: None } => Ok(()),
            Action::Log { prefix: Some(text) } => write!(f, " prefix {}", quote_text(text)),
            Action::Chain { name } | Action::Broker { name } => write!(f, " {name}"),
        }
    }
}

impl Action {
    /// The keyword of the target.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Action::Mod { .. } => "mod",
            Action::Add { .. } => "add",
            Action::Strip { .. } | Action::StripAll => "strip",
            Action::Map { .. } => "map",
            Action::Shuffle { .. } => "shuffle",
            Action::Lb { .. } => "lb",
            Action::Nat { .. } => "nat",
            Action::Drop { .. } => "drop",
            Action::Accept => "accept",
            Action::Block => "block",
            Action::Reject => "reject",
            Action::Log { .. } => "log",
            Action::Chain { .. } => "chain",
            Action::Broker { .. } => "broker",
        }
    }
}

impl FieldId {
    /// A value of the field, in the syntax of rules.
    pub fn display(self, value: &Value) -> impl Display {
        One(self, value)
    }
}

impl Display for FieldId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Hundredths of a percent as a percentage; nothing for 100 %.
fn percent(f: &mut Formatter<'_>, ten_thousandths: u32) -> fmt::Result {
    let (whole, rest) = (ten_thousandths / 100, ten_thousandths % 100);
    match rest {
        _ if ten_thousandths == 10_000 => Ok(()),
        0 => write!(f, " {whole}"),
        rest if rest % 10 == 0 => write!(f, " {whole}.{}", rest / 10),
        rest => write!(f, " {whole}.{rest:02}"),
    }
}

/// The values of a field.
struct Values<'a>(FieldId, &'a ValueSet);

impl Display for Values<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let item = |f: &mut Formatter<'_>, item: &ValueItem| match item {
            ValueItem::Single(value) => One(self.0, value).fmt(f),
            // Always numbers: a protocol name may contain a dash.
            ValueItem::Range(ends) => match &**ends {
                [Value::Int(low), Value::Int(high)] => write!(f, "{low}-{high}"),
                [low, high] => write!(f, "{}-{}", One(self.0, low), One(self.0, high)),
            },
        };
        if let [only] = &**self.1 {
            return item(f, only);
        }
        f.write_char('{')?;
        for (index, one) in self.1.iter().enumerate() {
            if index > 0 {
                f.write_char(',')?;
            }
            item(f, one)?;
        }
        f.write_char('}')
    }
}

/// A value of a field.
struct One<'a>(FieldId, &'a Value);

impl Display for One<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.1 {
            Value::Int(number) => int(f, self.0.def().kind, *number),
            Value::Prefix { addr, len } if self.1.is_subnet() => write!(f, "{addr}/{len}"),
            Value::Prefix { addr, .. } => addr.fmt(f),
            Value::Iface(name) => name.fmt(f),
            Value::Set(name) | Value::PairSet(name, _) => write!(f, "@{name}"),
            Value::Bytes(bytes) => literal(f, bytes),
            Value::Option { kind, data } if data.is_empty() => kind.fmt(f),
            Value::Option { kind, data } => {
                write!(f, "{kind} ")?;
                literal(f, data)
            }
        }
    }
}

fn int(f: &mut Formatter<'_>, kind: ValueKind, number: u64) -> fmt::Result {
    let name = match kind {
        ValueKind::Proto => names::protocol_of(number),
        ValueKind::EtherType => names::ethertype_name(number),
        _ => None,
    };
    match name {
        Some(name) => f.write_str(name),
        None if kind == ValueKind::EtherType => write!(f, "0x{number:04x}"),
        None => number.fmt(f),
    }
}

/// Printable ASCII in quotes, everything else in hexadecimal.
fn literal(f: &mut Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(|byte| matches!(byte, b' '..=b'~')) => f.write_str(&quote_text(text)),
        _ => {
            f.write_str("0x")?;
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        }
    }
}
