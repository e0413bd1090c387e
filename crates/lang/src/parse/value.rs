//! Values: parsed according to the kind of their field.

use std::net::IpAddr;

use super::rule::no_value;
use super::{Expect, Parse, Parser};
use crate::ast::{
    Comparison, Cond, MatchExpr, SetKind, Subnet, Value, ValueItem, ValueSet, Word, address_bits,
    is_address_field, is_port_field,
};
use crate::diag::{Diagnostic, quote, suggest};
use crate::field::{FieldDef, ValueKind, field};
use crate::keyword::is_reserved;
use crate::lex::{Tok, Token, hex_digit};
use crate::names;
use crate::shape::{is_name, network, order};
use crate::span::Span;

/// What a match of two fields looks like.
const PAIR: &str = "two fields are an address and a port, compared with a set of kind address-port: ip-daddr,tcp-dport @name";

/// A word or one end of a range (`1024-65535`), with its position.
#[derive(Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    span: Span,
}

impl<'a> Parser<'a> {
    /// One value or `{…}`. `behind`: the condition before it.
    pub(super) fn values(&mut self, def: &'static FieldDef, behind: Option<Cond>) -> Parse<ValueSet> {
        if def.kind == ValueKind::Presence {
            return Err(no_value(def, self.lex.peek().span));
        }
        if let Some(set) = self.set_value(def, behind)? {
            return Ok(set);
        }
        let open = self.lex.peek();
        if !self.eat(Tok::Open) {
            return self.item(def, behind).map(ValueSet::from);
        }
        let mut items = Vec::new();
        loop {
            if self.peek() == Tok::Close && items.is_empty() {
                let span = Span::new(open.span.start, self.lex.next().span.end);
                return Err(Diagnostic::new(span, "the set is empty"));
            }
            items.push(self.item(def, None)?);
            match self.lex.peek() {
                Token { tok: Tok::Comma, .. } => self.lex.next(),
                Token { tok: Tok::Close, .. } => {
                    self.lex.next();
                    break;
                }
                Token { tok: Tok::End, span } => {
                    return Err(Diagnostic::new(span, "the set has no closing `}`"));
                }
                token => {
                    let message = format!("expected `,` or `}}`, found {}", quote(self.text(token)));
                    return Err(Diagnostic::new(token.span, message));
                }
            };
        }
        match ValueSet::new(items) {
            Some(values) => Ok(values),
            None => Err(Diagnostic::new(open.span, "the set is empty")),
        }
    }

    /// `@name`, if it stands here.
    fn set_value(&mut self, def: &'static FieldDef, behind: Option<Cond>) -> Parse<Option<ValueSet>> {
        let token = self.lex.peek();
        if !self.peek_word().is_some_and(|word| word.starts_with('@')) {
            return Ok(None);
        }
        if !SetKind::ALL.iter().any(|kind| kind.fits(def.id)) {
            let message = format!("`{}` cannot be compared with a set", def.name);
            return Err(Diagnostic::new(token.span, message));
        }
        self.set_reference(behind).map(|name| Some(Value::Set(name).into()))
    }

    /// `@name`, which stands here.
    fn set_reference(&mut self, behind: Option<Cond>) -> Parse<Word> {
        let token = self.lex.peek();
        let error = |message: String| Err(Diagnostic::new(token.span, message));
        if let Some(cond) = behind.filter(|cond| !matches!(cond, Cond::Eq | Cond::Ne)) {
            return error(format!("`{cond}` compares with one value, not with a set"));
        }
        let Some(name) = self.peek_word().and_then(|word| word.strip_prefix('@')) else {
            let found = match token.tok {
                Tok::End => "the name of a set is missing".to_owned(),
                _ => format!("expected the name of a set, found {}", quote(self.text(token))),
            };
            return Err(Diagnostic::new(token.span, found).with_help(PAIR));
        };
        if !is_name(name) {
            return error(format!("{} is not the name of a set", quote(name)));
        }
        self.lex.next();
        Ok(Word { text: name.into(), span: Span::new(token.span.start + 1, token.span.end).into() })
    }

    /// What follows the comma behind the first field of a match: another field, a condition and a set.
    /// `first` is the place of the first field.
    pub(super) fn pair(&mut self, def: &'static FieldDef, first: Span) -> Parse<MatchExpr> {
        if !is_address_field(def.id) {
            let message = format!("`{}` cannot be the first field of a pair", def.name);
            return Err(Diagnostic::new(first, message).with_help(PAIR));
        }
        self.expect(Expect::Field(|def| is_port_field(def.id)));
        let (name, span) = self.operand("the port behind the comma")?;
        let port = field(name).filter(|def| is_port_field(def.id)).ok_or_else(|| {
            let message = format!("{} cannot be the second field of a pair", quote(name));
            Diagnostic::new(span, message).with_help(PAIR)
        })?;
        let start = self.lex.peek().span.start;
        self.expect(Expect::PairSet);
        self.expect(Expect::Cond(def.id));
        let written = self.cond()?;
        if written.is_some() {
            self.expect(Expect::PairSet);
        }
        let name = self.set_reference(written)?;
        let values = Value::PairSet(name, port.id).into();
        let span = self.since(start);
        let arg = Comparison { cond: written.unwrap_or(Cond::Eq), values, span };
        Ok(MatchExpr::Field { field: def.id, arg: Some(arg) })
    }

    /// One value or a range.
    fn item(&mut self, def: &'static FieldDef, behind: Option<Cond>) -> Parse<ValueItem> {
        self.expect(Expect::Value(def.id));
        let token = self.lex.peek();
        let wrong = |message: String| {
            Err(Diagnostic::new(token.span, message).with_help(format!("it takes {}", def.values())))
        };
        match (token.tok, behind) {
            (Tok::End, Some(cond)) => return wrong(format!("the value behind `{cond}` is missing")),
            (Tok::End, None) => return wrong(format!("the value of `{}` is missing", def.name)),
            (Tok::OpenText, _) => return Err(self.open_text(token)),
            (Tok::Text, _) => {}
            (Tok::Word, _) if def.kind == ValueKind::Interface || !is_reserved(self.text(token)) => {}
            _ => {
                let text = quote(self.text(token));
                return wrong(format!("expected a value of `{}`, found {text}", def.name));
            }
        }
        match def.kind {
            ValueKind::Interface => {
                self.interface_name("an interface").map(|name| ValueItem::Single(Value::Iface(name)))
            }
            ValueKind::Bytes { max } => {
                self.bytes(def, max).map(|bytes| ValueItem::Single(Value::Bytes(bytes)))
            }
            _ => {
                self.lex.next();
                let piece = Piece { text: self.text(token), span: token.span };
                number_or_range(def, piece)
            }
        }
    }

    /// One value of a target: not a range, a set or a subnet.
    pub(super) fn one_value(&mut self, def: &'static FieldDef, target: &str) -> Parse<Value> {
        let start = self.lex.peek().span.start;
        let values = self.values(def, None)?;
        let span = self.since(start).span();
        match values.single() {
            Some(value) if value.is_subnet() => Err(Diagnostic::new(
                span,
                format!("`{target} {}` takes a whole address, not a subnet", def.name),
            )),
            Some(Value::Set(_) | Value::PairSet(..)) => {
                Err(Diagnostic::new(span, format!("`{target} {}` takes one value, not a set", def.name)))
            }
            Some(value) => Ok(value.clone()),
            None => {
                Err(Diagnostic::new(span, format!("`{target} {}` takes one value, not several", def.name)))
            }
        }
    }

    /// `0x…` or `"…"`, at most `max` bytes, at least one.
    pub(super) fn bytes(&mut self, def: &FieldDef, max: u16) -> Parse<Box<[u8]>> {
        let token = self.lex.next();
        let text = self.text(token);
        let error = |message: String| Err(Diagnostic::new(token.span, message));
        let bytes = match token.tok {
            Tok::Text => self.unquoted(token)?,
            _ => match hex(text) {
                Some(digits) if digits.len() % 2 == 1 => {
                    return error(format!("{} has an odd number of digits", quote(text)));
                }
                Some(digits) => digits
                    .as_bytes()
                    .chunks_exact(2)
                    .filter_map(|pair| Some(hex_digit(pair[0])? << 4 | hex_digit(pair[1])?))
                    .collect(),
                None => {
                    let error = Diagnostic::new(
                        token.span,
                        format!("{} is not a value of `{}`", quote(text), def.name),
                    );
                    return Err(error.with_help("bytes are written as \"text\" or as 0x and pairs of digits"));
                }
            },
        };
        if bytes.is_empty() || bytes.len() > usize::from(max) {
            let message = format!("`{}` takes 1 to {max} bytes, not {}", def.name, bytes.len());
            let error = Diagnostic::new(token.span, message);
            let help = "a TCP header has room for 40 bytes of options, kind and length of each included";
            return Err(if def.is_option() && !bytes.is_empty() { error.with_help(help) } else { error });
        }
        Ok(bytes.into())
    }

    /// Whether a word can only be a value of `def`, valid or not, and not a keyword.
    pub(super) fn looks_like_value(&self, def: &FieldDef, word: &str) -> bool {
        let numeric =
            word.starts_with(|c: char| c.is_ascii_digit() || "-+.:".contains(c)) || hex(word).is_some();
        numeric
            || match def.kind {
                ValueKind::Proto => names::protocol(word).is_some(),
                ValueKind::EtherType => names::ethertype(word).is_some(),
                ValueKind::Ip4 | ValueKind::Ip6 => word.contains([':', '.', '/']),
                ValueKind::Int if def.is_port() => names::service(word).is_some(),
                _ => false,
            }
    }

    /// The names that values of `def` can have.
    pub(super) fn value_names(&self, def: &FieldDef) -> impl Iterator<Item = &'static str> + use<> {
        let protocols = (def.kind == ValueKind::Proto).then(names::protocols);
        let ethertypes = (def.kind == ValueKind::EtherType).then(names::ethertypes);
        let services = def.is_port().then(names::services);
        let numbered = protocols.into_iter().flatten().chain(ethertypes.into_iter().flatten());
        numbered.chain(services.into_iter().flatten())
    }
}

/// The digits of `0x1f` or `x1f`; `None` if the word is not such a number.
fn hex(word: &str) -> Option<&str> {
    let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix('x'))?;
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digits)
}

fn number_or_range(def: &'static FieldDef, piece: Piece<'_>) -> Parse<ValueItem> {
    let Some(dash) = piece.text.find('-') else { return single(def, piece).map(ValueItem::Single) };
    let named = match def.kind {
        ValueKind::Proto => names::protocol(piece.text).is_some(),
        ValueKind::EtherType => names::ethertype(piece.text).is_some(),
        ValueKind::Int if def.is_port() => names::service(piece.text).is_some(),
        _ => false,
    };
    let (low, high) = (&piece.text[..dash], &piece.text[dash + 1..]);
    if named || low.is_empty() || high.is_empty() {
        return single(def, piece).map(ValueItem::Single);
    }
    let start = piece.span.start;
    let low = single(def, Piece { text: low, span: Span::new(start, start + dash) })?;
    let high = single(def, Piece { text: high, span: Span::new(start + dash + 1, piece.span.end) })?;
    let error = |message| Err(Diagnostic::new(piece.span, message));
    match (order(&low), order(&high)) {
        (Some(a), Some(b)) if a > b => {
            error(format!("the range {} ends before it starts", quote(piece.text)))
        }
        (Some(_), Some(_)) => Ok(ValueItem::Range(Box::new([low, high]))),
        _ => error(format!(
            "the range {} has a subnet at an end; a range goes between addresses",
            quote(piece.text)
        )),
    }
}

fn single(def: &'static FieldDef, piece: Piece<'_>) -> Parse<Value> {
    match def.kind {
        ValueKind::Ip4 | ValueKind::Ip6 => prefix(def, piece),
        _ => int(def, piece),
    }
}

fn int(def: &'static FieldDef, piece: Piece<'_>) -> Parse<Value> {
    let text = piece.text;
    let error = |message: String| Diagnostic::new(piece.span, message);
    let named = match def.kind {
        ValueKind::Proto => names::protocol(text).map(u64::from),
        ValueKind::EtherType => names::ethertype(text).map(u64::from),
        ValueKind::Int if def.is_port() => names::service(text).map(u64::from),
        _ => None,
    };
    if let Some(number) = named {
        return Ok(Value::Int(number));
    }
    let number = match hex(text) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        None if text.contains('/') => {
            let message = format!("{} is a prefix, and `{}` takes none", quote(text), def.name);
            return Err(error(message).with_help(format!("it takes {}", def.values())));
        }
        None => return Err(not_a_number(def, piece)),
    };
    let max = if def.kind.is_yes_or_no() { 1 } else { def.max_int() };
    // Only digits, but no number: too large for 64 bits.
    match number {
        Some(number) if number <= max => Ok(Value::Int(number)),
        _ => Err(error(format!("{} is out of range: `{}` takes 0 to {max}", quote(text), def.name))),
    }
}

fn not_a_number(def: &'static FieldDef, piece: Piece<'_>) -> Diagnostic {
    let text = piece.text;
    let takes = format!("`{}` takes {}", def.name, def.values());
    match def.kind {
        ValueKind::Proto => Diagnostic::new(piece.span, format!("unknown protocol {}", quote(text)))
            .with_help(suggest(text, names::protocols(), &takes)),
        ValueKind::EtherType => {
            Diagnostic::new(piece.span, format!("unknown network protocol {}", quote(text)))
                .with_help(suggest(text, names::ethertypes(), &takes))
        }
        _ if def.is_port() && text.starts_with(|c: char| c.is_ascii_alphabetic()) => Diagnostic::new(
            piece.span,
            format!("unknown service {}", quote(text)),
        )
        .with_help(suggest(text, names::services(), &takes)),
        _ => Diagnostic::new(piece.span, format!("{} is not a number", quote(text))).with_help(takes),
    }
}

fn prefix(def: &'static FieldDef, piece: Piece<'_>) -> Parse<Value> {
    let v4 = def.kind == ValueKind::Ip4;
    let text = piece.text.split_once('/').map_or(piece.text, |(address, _)| address);
    if text.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4() != v4) {
        return Err(wrong_family(def, piece));
    }
    let Subnet { address, len } = subnet(piece.text, piece.span, Some(v4))?;
    Ok(Value::Prefix { addr: address, len })
}

/// An address or a subnet of IPv4, IPv6 or either. Bits after the prefix are cleared.
pub(super) fn subnet(text: &str, span: Span, v4: Option<bool>) -> Parse<Subnet> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let good = address.parse::<IpAddr>().ok().filter(|address| v4.is_none_or(|v4| address.is_ipv4() == v4));
    let Some(address) = good else {
        let (family, example) = match v4 {
            Some(true) => ("IPv4", "192.0.2.1 or 192.0.2.0/24"),
            Some(false) => ("IPv6", "2001:db8::1 or 2001:db8::/32"),
            None => ("IP", "192.0.2.1, 192.0.2.0/24 or 2001:db8::/32"),
        };
        let message = format!("{} is not an {family} address", quote(text));
        return Err(Diagnostic::new(span, message).with_help(format!("it looks like {example}")));
    };
    let whole = address_bits(&address);
    let len = match length {
        None => whole,
        Some(length) if !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit()) => {
            match length.parse::<u8>() {
                Ok(len) if len <= whole => len,
                _ => {
                    let message =
                        format!("the prefix length {} is out of range: 0 to {whole}", quote(length));
                    return Err(Diagnostic::new(span, message));
                }
            }
        }
        Some(_) => {
            let message = format!("the prefix length of {} is not a number", quote(text));
            return Err(Diagnostic::new(span, message).with_help(format!("it is 0 to {whole}")));
        }
    };
    Ok(Subnet { address: network(address, len), len })
}

fn wrong_family(def: &FieldDef, piece: Piece<'_>) -> Diagnostic {
    let (wrong, other) = match def.name.strip_prefix("ip-") {
        Some(rest) => ("IPv6", format!("ip6-{rest}")),
        None => ("IPv4", def.name.replacen("ip6-", "ip-", 1)),
    };
    let message =
        format!("{} is an {wrong} address, and `{}` takes {}", quote(piece.text), def.name, def.values());
    Diagnostic::new(piece.span, message).with_help(format!("did you mean `{other}`?"))
}
