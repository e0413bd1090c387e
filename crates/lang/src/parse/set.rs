//! Commands on named sets, and their elements.

use super::{Expect, Parse, Parser};
use crate::ast::{Command, NamedSet, SetElement, SetElements, Word};
use crate::diag::{Diagnostic, quote};
use crate::keyword::{ELEMENT_OPTIONS, NAMED_SETS, SET, SET_ACTIONS, SET_KINDS, SET_OPTIONS};
use crate::lex::Tok;
use crate::names;
use crate::parse::value::subnet;
use crate::shape::is_name;
use crate::span::Span;

/// Units of times and their seconds.
const UNITS: [(&str, u32); 4] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];

impl Parser<'_> {
    /// What follows `set` if it is about named sets: `add`, `del`, or a name and an action. None: it is a
    /// setting.
    pub(super) fn named_set(&mut self) -> Parse<Option<Command>> {
        self.expect(Expect::Words(NAMED_SETS));
        self.expect(Expect::Set);
        if self.eat_word("add") {
            return self.new_set().map(|set| Some(Command::SetAdd(set)));
        }
        if self.eat_word("del") {
            return Ok(Some(Command::SetDel { name: self.set_name()? }));
        }
        let (word, behind) = (self.peek_word().unwrap_or_default(), self.lex.following());
        let is_action = SET_ACTIONS.iter().any(|keyword| keyword.word == behind);
        let is_setting = SET.iter().any(|keyword| keyword.word == word) || !is_name(word);
        if !is_action && (is_setting || !behind.is_empty()) {
            return Ok(None);
        }
        let name = self.set_name()?;
        let command = match self.keyword(SET_ACTIONS, "action on the set")? {
            "add" => {
                let elements = self.elements(true)?;
                let (timeout, comment) = self.element_options()?;
                Command::ElementAdd(SetElements { name, elements, timeout, comment })
            }
            "del" => Command::ElementDel { name, elements: self.elements(false)? },
            _ => Command::ElementFlush { name },
        };
        Ok(Some(command))
    }

    /// The name of an existing set.
    pub(super) fn set_name(&mut self) -> Parse<Word> {
        self.expect(Expect::Set);
        self.name("a set")
    }

    fn new_set(&mut self) -> Parse<NamedSet> {
        let name = self.name("a set")?;
        self.expect(Expect::SetKind);
        let kinds = SET_KINDS.iter().map(|(_, keyword)| keyword.word);
        let (kind, _) = SET_KINDS[self.choice(kinds, "kind of set")?];
        let mut set = NamedSet { name, kind, timeout: None, file: None, comment: None };
        loop {
            self.expect(Expect::Words(SET_OPTIONS));
            if self.peek() == Tok::End {
                return Ok(set);
            }
            match self.keyword(SET_OPTIONS, "option of the set")? {
                "timeout" if set.timeout.is_none() => set.timeout = Some(self.time()?),
                "file" if set.file.is_none() => {
                    set.file = Some(self.unbroken("the file with elements")?.0.into());
                }
                "comment" if set.comment.is_none() => set.comment = Some(self.comment()?),
                option => return Err(self.error_here(format!("the set has `{option}` twice"))),
            }
        }
    }

    fn element_options(&mut self) -> Parse<(Option<u32>, Option<Box<str>>)> {
        let (mut timeout, mut comment) = (None, None);
        loop {
            self.expect(Expect::Words(ELEMENT_OPTIONS));
            if self.peek() == Tok::End {
                return Ok((timeout, comment));
            }
            match self.keyword(ELEMENT_OPTIONS, "option of the elements")? {
                "timeout" if timeout.is_none() => timeout = Some(self.time()?),
                "comment" if comment.is_none() => comment = Some(self.comment()?),
                option => return Err(self.error_here(format!("the elements have `{option}` twice"))),
            }
        }
    }

    /// `90`, `90s`, `10m`, `1h` or `7d` as seconds.
    fn time(&mut self) -> Parse<u32> {
        let (text, span) = self.operand("the time")?;
        let (digits, unit) = UNITS
            .iter()
            .find_map(|(suffix, seconds)| Some((text.strip_suffix(suffix)?, *seconds)))
            .unwrap_or((text, 1));
        let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u32>().ok());
        let seconds = number.flatten().and_then(|number| number.checked_mul(unit));
        seconds.filter(|seconds| (1..=NamedSet::MAX_TIMEOUT).contains(seconds)).ok_or_else(|| {
            Diagnostic::new(span, format!("invalid time {}", quote(text)))
                .with_help("a time is a number with s, m, h or d, up to 365d: 90s, 10m, 1h, 7d")
        })
    }

    /// Elements up to the end of the line, or up to options if they can follow.
    fn elements(&mut self, has_options: bool) -> Parse<Vec<SetElement>> {
        let mut elements = Vec::new();
        loop {
            let is_option = has_options
                && self.peek_word().is_some_and(|word| ELEMENT_OPTIONS.iter().any(|one| one.word == word));
            if !elements.is_empty() && (is_option || self.peek() == Tok::End) {
                return Ok(elements);
            }
            let (text, span) = self.operand("an element")?;
            elements.push(element(text, span)?);
        }
    }
}

/// An address, a prefix, a port, a service, a range of ports, or an address or a prefix with ports.
///
/// # Errors
/// The text is none of these.
pub(super) fn element(text: &str, span: Span) -> Parse<SetElement> {
    if let Some((address, ports)) = pair(text) {
        let subnet = subnet(address, span, None)?;
        let (first, last) = port_range(ports, span)?.ok_or_else(|| {
            Diagnostic::new(span, format!("{} is neither a port nor a range of ports", quote(ports)))
                .with_help(
                    "an address with ports is 192.0.2.1:443, [2001:db8::1]:https or 10.0.0.0/8:8000-8100",
                )
        })?;
        return Ok(SetElement::Pair(subnet, first, last));
    }
    if text.contains(['.', ':', '/']) {
        return subnet(text, span, None).map(SetElement::Prefix);
    }
    let (first, last) = port_range(text, span)?.ok_or_else(|| {
        Diagnostic::new(span, format!("{} cannot be in a set", quote(text)))
            .with_help("elements are addresses, prefixes, ports and ranges of ports, or addresses with ports")
    })?;
    Ok(SetElement::Ports(first, last))
}

/// The two parts of an address with ports.
fn pair(text: &str) -> Option<(&str, &str)> {
    match text.strip_prefix('[') {
        Some(rest) => rest.split_once("]:"),
        None => text.split_once(':').filter(|(address, ports)| address.contains('.') && !ports.contains(':')),
    }
}

/// A port, a service, or a range of ports. None: it is none of these.
fn port_range(text: &str, span: Span) -> Parse<Option<(u16, u16)>> {
    let port = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if digits { text.parse::<u16>().ok() } else { names::service(text) }
    };
    let single = port(text).map(|port| (port, port));
    let range = || text.split_once('-').and_then(|(first, last)| Some((port(first)?, port(last)?)));
    match single.or_else(range) {
        Some((first, last)) if first > last => {
            Err(Diagnostic::new(span, format!("the range {} ends before it starts", quote(text))))
        }
        ports => Ok(ports),
    }
}
