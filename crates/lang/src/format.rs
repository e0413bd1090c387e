//! The canonical text of commands and rules. The parser reads it back.

use std::fmt::{self, Display, Formatter, Write as _};

use crate::ast::{
    Body, Branch, BranchEnd, Broker, CaptureSelection, Chain, Command, Domain, Endpoint4, Filtering, Match,
    NatForward, NatPool, NatProto, NfInstance, OnFailure, PlaceWords, PoolAddresses, PortKind, ProcessMode,
    ProcessPlace, ReversePathMode, SessionLimit, Step, Subnet, Word,
};
use crate::keyword::show_word;
use crate::lex::quote_text;

mod rule;
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
