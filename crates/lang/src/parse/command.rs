//! Commands other than rules.

use super::{Expect, Parse, Parser};
use mmb_stream::{OnMptcp, OnOverflow, OnPickup, Policy};

use crate::ast::{
    Command, FastPathMode, HeldScope, LogFormat, LogSink, Match, PortKind, ProcessMode, PuntClass,
    ReversePathMode, RuleKind, SessionLimit, Subnet, Timeout, Word,
};
use crate::diag::{Diagnostic, quote, suggest};
use crate::foreign;
use crate::keyword::{
    COMMANDS, CONNECTIONS, FAST_PATH, HELD_LIMITS, INTERFACE, Keyword, LIMIT, LOG_FORMAT, LOG_TO, NEIGHBOURS,
    ON_ERROR, PORTS, PUNT_CLASSES, ROUTE, ROUTING, RPF, SESSION_LIMIT, SESSION_LIMITS, SET, SHOW, SHOW_SET,
    STREAM_MPTCP, STREAM_OVERFLOW, STREAM_PICKUP, SWITCH, TIMEOUTS, VERBOSE, WIRE, WORKER_MODES, is_target,
    words,
};
use crate::lex::Tok;
use crate::parse::value::subnet;
use crate::shape::{MAX_NAME, is_name};
use crate::span::Span;

/// Letters of the shortest abbreviation.
pub const SHORTEST_ABBREVIATION: usize = 2;
/// Commands that cannot be abbreviated: they change much at once.
pub const WHOLE_COMMANDS: [&str; 4] = ["flush", "clear", "rollback", "confirm"];

impl Parser<'_> {
    /// The whole line.
    pub(super) fn line(&mut self) -> Parse<Option<Command>> {
        self.expect(Expect::Words(COMMANDS));
        if self.peek() == Tok::End {
            return Ok(None);
        }
        self.eat_word("mmb");
        let start = self.lex.peek().span.start;
        let first = self.text(self.lex.peek());
        self.expect(Expect::Words(COMMANDS));
        let index = self.abbreviable_choice(words(COMMANDS), "command");
        let word = COMMANDS[index.map_err(|error| match foreign::as_command(first) {
            Some(help) => error.with_help(help),
            None => error,
        })?]
        .word;
        let command = match word {
            "add" => Command::Add(self.rule(RuleKind::Add, start)?),
            "add-stateless" => Command::Add(self.rule(RuleKind::Stateless, start)?),
            "add-stateful" => Command::Add(self.rule(RuleKind::Stateful, start)?),
            "del" => Command::Del { rule: self.rule_ref()? },
            "flush" => Command::Flush,
            "list" => Command::List { matches: self.filter("`list` takes")? },
            "history" => Command::History { revision: self.revision()? },
            "rollback" => Command::Rollback { revision: self.revision()? },
            "confirm" => Command::Confirm,
            "enable" => Command::Enable(self.names()?),
            "disable" => Command::Disable(self.names()?),
            "show" => self.show()?,
            "interface" => self.interface()?,
            "route" => self.route()?,
            "set" => match self.former_setting()? {
                Some(command) => command,
                None => match self.named_set()? {
                    Some(command) => command,
                    None => self.set()?,
                },
            },
            "nat" => self.nat()?,
            "domain" => self.domain()?,
            "nf" => self.nf()?,
            "chain" => {
                self.lex.enter_chain();
                self.chain()?
            }
            "broker" => self.broker()?,
            "clear" => {
                self.keyword(CONNECTIONS, "`clear` subject")?;
                Command::ClearConnections { matches: self.filter("`clear connections` takes")? }
            }
            "trace" => self.trace()?,
            "capture" => self.capture()?,
            _ => self.wire()?,
        };
        let source = self.lex.text(Span::new(start, self.lex.last_end()));
        self.end(&quote(source))?;
        Ok(Some(command))
    }

    /// One of these keywords. `what`: their description for messages.
    pub(super) fn keyword(&mut self, table: &'static [Keyword], what: &str) -> Parse<&'static str> {
        self.expect(Expect::Words(table));
        self.choice(words(table), what).map(|index| table[index].word)
    }

    /// The index of the next word among `all`.
    pub(super) fn choice(
        &mut self,
        all: impl Iterator<Item = &'static str> + Clone,
        what: &str,
    ) -> Parse<usize> {
        let list = || match &all.clone().collect::<Vec<_>>()[..] {
            [only] => format!("it can only be `{only}`"),
            words => format!("one of {}", words.join(", ")),
        };
        let token = self.lex.peek();
        if token.tok == Tok::End {
            return Err(Diagnostic::new(token.span, format!("the {what} is missing")).with_help(list()));
        }
        let text = self.text(token);
        if let Some(index) = all.clone().position(|word| word == text) {
            self.lex.next();
            return Ok(index);
        }
        let message = format!("unknown {what} {}", quote(text));
        Err(Diagnostic::new(token.span, message).with_help(suggest(text, all.clone(), &list())))
    }

    /// The index of the next word among `all`, which may be abbreviated outside of files.
    fn abbreviable_choice(
        &mut self,
        all: impl Iterator<Item = &'static str> + Clone,
        what: &str,
    ) -> Parse<usize> {
        let text = self.peek_word().unwrap_or_default();
        let is_short =
            (SHORTEST_ABBREVIATION..MAX_NAME).contains(&text.len()) && all.clone().all(|word| word != text);
        if !is_short || !self.abbreviations {
            return self.choice(all, what);
        }
        let fits = |word: &&str| word.starts_with(text) && !WHOLE_COMMANDS.contains(word);
        let found: Vec<&str> = all.clone().filter(fits).collect();
        match found[..] {
            [] => self.choice(all, what),
            [only] => {
                self.lex.next();
                Ok(all.clone().position(|word| word == only).unwrap_or_default())
            }
            _ => {
                let help = format!("it can be {}", found.join(", "));
                Err(self.error_here(format!("{} is ambiguous", quote(text))).with_help(help))
            }
        }
    }

    /// The number of a revision, if there is one.
    fn revision(&mut self) -> Parse<Option<u64>> {
        let token = self.lex.peek();
        if token.tok == Tok::End {
            return Ok(None);
        }
        let text = self.text(token);
        match text.parse::<u64>() {
            Ok(number) if number > 0 && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.lex.next();
                Ok(Some(number))
            }
            _ => {
                let message = format!("{} is not the number of a revision", quote(text));
                Err(Diagnostic::new(token.span, message).with_help("`history` lists the revisions"))
            }
        }
    }

    fn names(&mut self) -> Parse<Vec<Word>> {
        let mut names = vec![self.interface_name("an interface")?];
        self.expect(Expect::Interface);
        while self.peek() != Tok::End {
            names.push(self.interface_name("an interface")?);
            self.expect(Expect::Interface);
        }
        Ok(names)
    }

    fn show(&mut self) -> Parse<Command> {
        self.expect(Expect::Show);
        if self.eat_word(SHOW_SET[0].word) {
            return Ok(Command::ShowSet { name: self.set_name()? });
        }
        if self.eat_word(NEIGHBOURS) {
            return Ok(Command::ShowNeighbors { within: self.within()? });
        }
        let subjects = SHOW.iter().map(|(_, keyword)| keyword.word);
        let subjects = subjects.chain(words(CONNECTIONS)).chain(words(ROUTING));
        let subject = self.text(self.lex.peek());
        let index = self.abbreviable_choice(subjects, "`show` subject");
        let index = index.map_err(|error| match foreign::as_subject(subject) {
            Some(help) => error.with_help(help),
            None => error,
        })?;
        match index.checked_sub(SHOW.len() + CONNECTIONS.len()) {
            Some(0) => return Ok(Command::ShowFib { within: self.within()? }),
            Some(_) => return Ok(Command::ShowNeighbors { within: self.within()? }),
            None => {}
        }
        self.expect(Expect::Words(VERBOSE));
        let verbose = self.eat_word("verbose");
        match SHOW.get(index) {
            Some((what, _)) => Ok(Command::Show { what: *what, verbose }),
            None => {
                Ok(Command::ShowConnections { verbose, matches: self.filter("`show connections` takes")? })
            }
        }
    }

    /// An optional address or subnet.
    fn within(&mut self) -> Parse<Option<Subnet>> {
        if self.peek() == Tok::End {
            return Ok(None);
        }
        let (text, span) = self.operand("an address or a prefix")?;
        subnet(text, span, None).map(Some)
    }

    /// Matches up to the end of the line, possibly none.
    pub(super) fn filter(&mut self, taker: &str) -> Parse<Vec<Match>> {
        let mut matches = Vec::new();
        self.expect_match();
        while self.peek() != Tok::End {
            if let Some(word) = self.peek_word().filter(|word| is_target(word)) {
                let message = format!("{} is a target, and {taker} matches only", quote(word));
                return Err(self.error_here(message));
            }
            matches.push(self.single_match()?);
            self.expect_match();
        }
        Ok(matches)
    }

    fn set(&mut self) -> Parse<Command> {
        match self.keyword(SET, "setting")? {
            "on-error" => {
                self.expect(Expect::ErrorPolicy);
                let words = ON_ERROR.iter().map(|(_, keyword)| keyword.word);
                let index = self.choice(words, "`on-error` value")?;
                Ok(Command::SetOnError(ON_ERROR[index].0))
            }
            "timeout" => {
                self.expect(Expect::Timeout);
                let words = TIMEOUTS.iter().map(|(_, keyword)| keyword.word);
                let (timeout, _) = TIMEOUTS[self.choice(words, "timeout")?];
                let seconds = self.number("time in seconds", 1..=Timeout::MAX_SECONDS.into())?;
                Ok(Command::SetTimeout { timeout, seconds: seconds as u32 })
            }
            "punt-limit" => {
                self.expect(Expect::PuntClass);
                let words = PUNT_CLASSES.iter().map(|(_, keyword)| keyword.word);
                let (class, _) = PUNT_CLASSES[self.choice(words, "class of packets")?];
                let rate = self.limit("number of packets per second", PuntClass::MAX_RATE)?;
                Ok(Command::SetPuntLimit { class, rate })
            }
            "session-limit" => self.session_limit(),
            "tcp-pickup" => Ok(Command::SetTcpPickup(self.switch("tcp-pickup")?)),
            "tcp-window-check" => Ok(Command::SetTcpWindowCheck(self.switch("tcp-window-check")?)),
            "stream-pickup" => {
                Ok(Command::SetStreamPickup(match self.keyword(STREAM_PICKUP, "`stream-pickup` value")? {
                    "inspect" => OnPickup::Inspect,
                    "reset" => OnPickup::Reset,
                    _ => OnPickup::Pass,
                }))
            }
            "stream-overflow" => Ok(Command::SetStreamOverflow(
                match self.keyword(STREAM_OVERFLOW, "`stream-overflow` value")? {
                    "pass" => OnOverflow::Pass,
                    "reset" => OnOverflow::Reset,
                    _ => OnOverflow::Drop,
                },
            )),
            "stream-mptcp" => {
                Ok(Command::SetStreamMptcp(match self.keyword(STREAM_MPTCP, "`stream-mptcp` value")? {
                    "pass" => OnMptcp::Pass,
                    _ => OnMptcp::Strip,
                }))
            }
            "stream-hold-time" => {
                let most = Policy::MOST_HOLD_TIME;
                Ok(Command::SetStreamHoldTime(self.number("number of milliseconds", 0..=most.into())? as u32))
            }
            "held-packets" => {
                let scope = match self.keyword(HELD_LIMITS, "limit of held packets")? {
                    "session" => HeldScope::Session,
                    _ => HeldScope::Worker,
                };
                let packets = self.number("number of packets", 0..=HeldScope::MAX.into())?;
                Ok(Command::SetHeldPackets { scope, packets: packets as u32 })
            }
            "martian-check" => Ok(Command::SetMartianCheck(self.switch("martian-check")?)),
            "rpf" => self.reverse_path(),
            "fast-path" => self.fast_path(),
            "log-format" => self.log_format(),
            "log-to" => self.log_to(),
            "worker-mode" => Ok(Command::SetWorkerMode(self.worker_mode()?)),
            _ => Ok(Command::SetGro(self.switch("gro")?)),
        }
    }

    /// A setting by its former name, for the files of earlier releases: `set xdp-fast-path on|off`.
    fn former_setting(&mut self) -> Parse<Option<Command>> {
        if !self.eat_word("xdp-fast-path") {
            return Ok(None);
        }
        let is_on = self.switch("xdp-fast-path")?;
        Ok(Some(Command::SetFastPath(if is_on { FastPathMode::Xdp } else { FastPathMode::Off })))
    }

    /// What follows `set fast-path`.
    fn fast_path(&mut self) -> Parse<Command> {
        Ok(Command::SetFastPath(match self.keyword(FAST_PATH, "`fast-path` value")? {
            "auto" => FastPathMode::Auto,
            "xdp" => FastPathMode::Xdp,
            "tc" => FastPathMode::Tc,
            _ => FastPathMode::Off,
        }))
    }

    /// What follows `set session-limit`.
    fn session_limit(&mut self) -> Parse<Command> {
        self.keyword(SESSION_LIMITS, "limit of sessions")?;
        self.expect(Expect::Words(SESSION_LIMIT));
        let limit = if self.eat_word("default") {
            SessionLimit::Default
        } else if self.eat_word("off") {
            SessionLimit::Off
        } else {
            let sessions = self.number("number of sessions", 1..=SessionLimit::MAX.into())?;
            SessionLimit::Sessions(sessions as u32)
        };
        Ok(Command::SetSessionLimit(limit))
    }

    /// What follows `set log-format`.
    fn log_format(&mut self) -> Parse<Command> {
        let is_json = self.keyword(LOG_FORMAT, "`log-format` value")? == "json";
        Ok(Command::SetLogFormat(if is_json { LogFormat::Json } else { LogFormat::Text }))
    }

    /// What follows `set log-to`.
    fn log_to(&mut self) -> Parse<Command> {
        let is_syslog = self.keyword(LOG_TO, "`log-to` value")? == "syslog";
        Ok(Command::SetLogTo(if is_syslog { LogSink::Syslog } else { LogSink::Stderr }))
    }

    /// What follows `set worker-mode`.
    fn worker_mode(&mut self) -> Parse<ProcessMode> {
        let word = self.keyword(WORKER_MODES, "`worker-mode` value")?;
        Ok(ProcessMode::from_word(word).unwrap_or_default())
    }

    /// What follows `set rpf`.
    fn reverse_path(&mut self) -> Parse<Command> {
        let mode = match self.keyword(RPF, "`rpf` value")? {
            "strict" => Some(ReversePathMode::Strict),
            "loose" => Some(ReversePathMode::Loose),
            "off" => Some(ReversePathMode::Off),
            _ => None,
        };
        self.expect(Expect::Interface);
        match mode {
            Some(mode) if self.peek() == Tok::End => Ok(Command::SetRpf(mode)),
            mode => Ok(Command::SetInterfaceRpf { mode, names: self.names()? }),
        }
    }

    /// `on` or `off`.
    fn switch(&mut self, setting: &str) -> Parse<bool> {
        Ok(self.keyword(SWITCH, &format!("`{setting}` value"))? == "on")
    }

    /// A number from 1 to `most`, or `off`.
    fn limit(&mut self, what: &str, most: u32) -> Parse<Option<u32>> {
        self.expect(Expect::Words(LIMIT));
        if self.eat_word("off") {
            return Ok(None);
        }
        Ok(Some(self.number(what, 1..=most.into())? as u32))
    }

    fn interface(&mut self) -> Parse<Command> {
        match self.keyword(INTERFACE, "action on interfaces")? {
            "add" => {
                let name = self.name("an interface")?;
                Ok(Command::InterfaceAdd { name, kind: self.port()? })
            }
            _ => Ok(Command::InterfaceDel { name: self.interface_name("an interface")? }),
        }
    }

    fn port(&mut self) -> Parse<PortKind> {
        Ok(match self.keyword(PORTS, "kind of interface")? {
            "af-xdp" => PortKind::AfXdp { ifname: self.ifname()? },
            "af-packet" => PortKind::AfPacket { ifname: self.ifname()? },
            "tap" if self.peek() == Tok::End => PortKind::Tap { ifname: None },
            "tap" => PortKind::Tap { ifname: Some(self.ifname()?) },
            "pci" => PortKind::Pci { address: self.pci()? },
            "memif" => PortKind::Memif { socket: self.unbroken("the path of the socket")?.0 },
            "pcap" => PortKind::Pcap {
                rx: self.unbroken("the capture file to read")?.0,
                tx: self.unbroken("the capture file to write")?.0,
            },
            _ => PortKind::Null,
        })
    }

    /// The name of a kernel interface. It has the same letters as the names of mmb.
    fn ifname(&mut self) -> Parse<String> {
        let (text, span) = self.unbroken("the name of the kernel interface")?;
        if is_name(&text) && !matches!(&*text, "." | "..") {
            return Ok(text);
        }
        let message = format!("{} cannot be the name of a kernel interface", quote(&text));
        Err(Diagnostic::new(span, message).with_help(
            "a name has 1 to 15 letters, digits, dots, dashes or underscores; `ip link` lists them",
        ))
    }

    fn pci(&mut self) -> Parse<String> {
        let (text, span) = self.unbroken("the PCI address")?;
        pci_address(&text).ok_or_else(|| {
            Diagnostic::new(span, format!("{} is not a PCI address", quote(&text)))
                .with_help("an address looks like 0000:03:00.0; `lspci -D` lists them")
        })
    }

    fn wire(&mut self) -> Parse<Command> {
        self.expect(Expect::Words(WIRE));
        if self.eat_word("del") {
            return Ok(Command::Unwire { a: self.interface_name("an interface")? });
        }
        Ok(Command::Wire {
            a: self.interface_name("an interface")?,
            b: self.interface_name("the other interface")?,
        })
    }

    fn route(&mut self) -> Parse<Command> {
        self.expect(Expect::Words(ROUTE));
        if self.eat_word("del") {
            return Ok(Command::Unroute { name: self.interface_name("an interface")? });
        }
        Ok(Command::Route(self.names()?))
    }
}

/// `[dddd:]bb:dd.f` in hexadecimal, as `dddd:bb:dd.f` in lower case.
fn pci_address(text: &str) -> Option<String> {
    let hex = |part: &str, digits: std::ops::RangeInclusive<usize>| {
        let good = digits.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        if good { u32::from_str_radix(part, 16).ok() } else { None }
    };
    let (rest, function) = text.split_once('.')?;
    let mut parts = rest.rsplitn(3, ':');
    let device = hex(parts.next()?, 2..=2).filter(|device| *device < 32)?;
    let bus = hex(parts.next()?, 2..=2)?;
    let domain = parts.next().map_or(Some(0), |domain| hex(domain, 4..=8))?;
    let function = hex(function, 1..=1).filter(|function| *function < 8)?;
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses() {
        for (text, address) in [
            ("0000:03:00.0", Some("0000:03:00.0")),
            ("03:1F.7", Some("0000:03:1f.7")),
            ("10000:aB:00.1", Some("10000:ab:00.1")),
            ("3:00.0", None),
            ("0000:03:20.0", None),
            ("0000:03:00.8", None),
            ("0000:03:00", None),
            ("0:0000:03:00.0", None),
            ("+000:03:00.0", None),
            ("", None),
        ] {
            assert_eq!(pci_address(text).as_deref(), address, "{text}");
        }
    }
}
