//! Targets of rules.

use std::net::IpAddr;

use super::rule::WordPosition;
use super::short::Subject;
use super::{Expect, Parse, Parser};
use crate::ast::{Action, Match, RuleKind, Target, Value};
use crate::diag::{Diagnostic, quote};
use crate::field::{FieldDef, FieldId, Support, ValueKind, field};
use crate::keyword::{LOG, STRIP, ends_target, is_label, is_target};
use crate::lex::Tok;
use crate::shape::{MAX_LOG_PREFIX, is_hidden};

impl Parser<'_> {
    /// Parses the targets, after these matches.
    pub(super) fn targets(&mut self, kind: RuleKind, matches: &[Match]) -> Parse<Vec<Target>> {
        let mut targets = Vec::with_capacity(1);
        while self.peek() != Tok::End && !self.peek_word().is_some_and(is_label) {
            let start = self.lex.peek().span.start;
            let action = self.action(matches)?;
            targets.push(Target { action, span: self.since(start) });
            self.expect(Expect::Target(kind));
        }
        targets.shrink_to_fit();
        Ok(targets)
    }

    fn action(&mut self, matches: &[Match]) -> Parse<Action> {
        let token = self.lex.peek();
        let word = self.peek_word().filter(|word| is_target(word));
        let Some(word) = word else { return Err(self.no_target()) };
        self.lex.next();
        match word {
            "mod" => self.modify(matches),
            "add" => self.add(),
            "strip" => self.strip(matches),
            "map" => {
                self.expect(Expect::Field(|def| def.translate == Support::Yes));
                let field = self.field("map")?;
                let values = self.values(field, None)?;
                Ok(Action::Map { field: field.id, values })
            }
            "shuffle" => {
                self.expect(Expect::Field(|def| def.translate == Support::Yes));
                let field = self.field("shuffle")?;
                let follow = self.peek() == Tok::Open
                    || self.peek_word().is_some_and(|word| self.looks_like_value(field, word));
                let values = if follow { Some(self.values(field, None)?) } else { None };
                Ok(Action::Shuffle { field: field.id, values })
            }
            "lb" => self.balance(),
            "nat" => Ok(Action::Nat { pool: self.pool_name()? }),
            "drop" => self.drop(),
            "accept" => Ok(Action::Accept),
            "block" => Ok(Action::Block),
            "reject" => Ok(Action::Reject),
            "log" => self.log(),
            "chain" => Ok(Action::Chain { name: self.chain_name()? }),
            "broker" => {
                self.expect(Expect::Broker);
                Ok(Action::Broker { name: self.instance("a broker")? })
            }
            _ => Err(self.stray(token, WordPosition::Target)),
        }
    }

    fn no_target(&self) -> Diagnostic {
        let token = self.lex.peek();
        let word = self.peek_word();
        let is_match = token.tok == Tok::Bang
            || word.is_some_and(|word| word == "all" || word == "not" || field(word).is_some());
        if is_match {
            let message = format!("the match {} follows a target", quote(self.text(token)));
            return Diagnostic::new(token.span, message)
                .with_help("all matches of a rule come before its targets");
        }
        self.stray(token, WordPosition::Target)
    }

    /// The field of the target.
    fn field(&mut self, target: &str) -> Parse<&'static FieldDef> {
        let token = self.lex.peek();
        if token.tok == Tok::End {
            return Err(self.error_here(format!("the field behind `{target}` is missing")));
        }
        match self.peek_word().and_then(field) {
            Some(def) => {
                self.lex.next();
                Ok(def)
            }
            None => Err(self.stray(token, WordPosition::Field)),
        }
    }

    fn modify(&mut self, matches: &[Match]) -> Parse<Action> {
        let start = self.lex.peek().span.start;
        self.expect(Expect::Field(|def| def.modify == Support::Yes));
        let subject = Subject::of(matches, |def| def.modify == Support::Yes);
        let (def, kind) = match subject.operand(self) {
            true => subject.resolved("mod", self.lex.peek().span)?,
            false => (self.field("mod")?, None),
        };
        let (field, value) = match def.kind {
            ValueKind::Shorthand(bits) => match self.one_value(def, "mod")? {
                Value::Int(1) => (FieldId::IpEcn, Value::Int(bits.into())),
                _ => {
                    let message =
                        format!("`mod {}` takes 1 only: 0 does not say what the bits should be", def.name);
                    let help = "`mod ip-ecn` takes 0 to 3";
                    return Err(Diagnostic::new(self.since(start).span(), message).with_help(help));
                }
            },
            ValueKind::Presence => {
                let message = format!("`{}` has no value that could be written", def.name);
                return Err(Diagnostic::new(self.since(start).span(), message));
            }
            _ if def.id == FieldId::TcpOpt => (def.id, self.numbered_option(def, kind, "mod")?),
            _ => (def.id, self.one_value(def, "mod")?),
        };
        Ok(Action::Mod { field, value })
    }

    fn add(&mut self) -> Parse<Action> {
        let def = self.option("add")?;
        let value = match def.kind {
            ValueKind::Presence => None,
            ValueKind::Bytes { .. } if !self.bytes_follow() => None,
            _ if def.id == FieldId::TcpOpt => Some(self.numbered_option(def, None, "add")?),
            _ => Some(self.one_value(def, "add")?),
        };
        Ok(Action::Add { field: def.id, value })
    }

    fn strip(&mut self, matches: &[Match]) -> Parse<Action> {
        self.expect(Expect::Words(STRIP));
        let keep = self.eat_not();
        if !keep && self.eat_word("all") {
            return Ok(Action::StripAll);
        }
        let bare = self.peek() == Tok::End || self.peek_word().is_some_and(ends_target);
        if bare && !keep {
            self.expect(Expect::Field(FieldDef::is_option));
            let subject = Subject::of(matches, FieldDef::is_option);
            let (def, kind) = subject.resolved("strip", self.lex.peek().span)?;
            return Ok(Action::Strip { keep, field: def.id, kind });
        }
        let def = self.option("strip")?;
        let numbered = def.id == FieldId::TcpOpt && self.peek_word().is_some_and(|word| !ends_target(word));
        let kind = if numbered { Some(self.option_kind(def, "strip")?) } else { None };
        Ok(Action::Strip { keep, field: def.id, kind })
    }

    /// A field that must be a TCP option.
    fn option(&mut self, target: &str) -> Parse<&'static FieldDef> {
        let span = self.lex.peek().span;
        self.expect(Expect::Field(FieldDef::is_option));
        let def = self.field(target)?;
        if def.is_option() {
            return Ok(def);
        }
        let message = format!("`{target}` is for TCP options, and `{}` is not one", def.name);
        Err(Diagnostic::new(span, message)
            .with_help("options are tcp-opt-mss, tcp-opt-wscale, tcp-opt <kind> and so on"))
    }

    /// `<kind> [<bytes>]`, or only the bytes if the kind is known.
    fn numbered_option(&mut self, def: &'static FieldDef, known: Option<u8>, target: &str) -> Parse<Value> {
        const MOST_DATA: u16 = 38;
        let kind = match known {
            Some(kind) => kind,
            None => self.option_kind(def, target)?,
        };
        let data = if self.bytes_follow() { self.bytes(def, MOST_DATA)? } else { Box::default() };
        Ok(Value::Option { kind, data })
    }

    fn option_kind(&mut self, def: &'static FieldDef, target: &str) -> Parse<u8> {
        let start = self.lex.peek().span.start;
        let value = self.one_value(def, target)?;
        match value {
            // Kinds 0 and 1 are padding (RFC 9293, 3.2): one byte, no length.
            Value::Int(kind @ 2..=255) => Ok(kind as u8),
            _ => {
                let message = "kinds 0 and 1 are padding, which mmb keeps itself";
                Err(Diagnostic::new(self.since(start).span(), message)
                    .with_help("an option's kind is 2 to 255"))
            }
        }
    }

    fn bytes_follow(&self) -> bool {
        match self.peek() {
            Tok::Text | Tok::OpenText => true,
            Tok::Word => self.peek_word().is_some_and(|word| !ends_target(word)),
            _ => false,
        }
    }

    fn balance(&mut self) -> Parse<Action> {
        let mut addresses = Vec::new();
        loop {
            let token = self.lex.peek();
            let text = self.text(token);
            let more = token.tok == Tok::Word && !ends_target(text);
            if !more && !addresses.is_empty() {
                return Ok(Action::Lb { addresses });
            }
            match text.parse::<IpAddr>() {
                Ok(address) if more => addresses.push(address),
                _ if token.tok == Tok::End => {
                    return Err(self.error_here("the address behind `lb` is missing"));
                }
                _ => return Err(self.error_here(format!("{} is not an address for `lb`", quote(text)))),
            }
            self.lex.next();
        }
    }

    fn log(&mut self) -> Parse<Action> {
        self.expect(Expect::Words(LOG));
        if !self.eat_word("prefix") {
            return Ok(Action::Log { prefix: None });
        }
        let (text, span) = self.unbroken("the prefix of the log line")?;
        if let Some(hidden) = text.chars().find(|c| is_hidden(*c)) {
            let message = format!("the prefix contains the control character U+{:04X}", u32::from(hidden));
            return Err(Diagnostic::new(span, message).with_help("a prefix is plain text in one line"));
        }
        if text.len() > MAX_LOG_PREFIX {
            let message =
                format!("the prefix has {} bytes; a prefix may have {MAX_LOG_PREFIX} at most", text.len());
            return Err(Diagnostic::new(span, message));
        }
        Ok(Action::Log { prefix: Some(text.into()) })
    }

    fn drop(&mut self) -> Parse<Action> {
        const ALL: u32 = 10_000;
        let token = self.lex.peek();
        let Some(word) = self
            .peek_word()
            .filter(|word| word.starts_with(|c: char| c.is_ascii_digit() || ".-+".contains(c)))
        else {
            return Ok(Action::Drop { ten_thousandths: ALL });
        };
        match hundredths(word.strip_suffix('%').unwrap_or(word)) {
            Some(ten_thousandths @ 1..=ALL) => {
                self.lex.next();
                Ok(Action::Drop { ten_thousandths })
            }
            _ => {
                let message =
                    format!("`drop` takes 0.01 to 100 percent in steps of 0.01, not {}", quote(word));
                Err(Diagnostic::new(token.span, message))
            }
        }
    }
}

/// A decimal number with at most two decimal places, in hundredths.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits =
        |part: &str, most| (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole, 6) || !digits(fraction, 2) {
        return None;
    }
    let scale = if fraction.len() == 1 { 10 } else { 1 };
    Some(whole.parse::<u32>().ok()? * 100 + fraction.parse::<u32>().ok()? * scale)
}
