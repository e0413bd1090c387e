//! From a rule's matches to a [`Pattern`].

use std::net::IpAddr;

use mmb_lang::{Arg, Cond, Diagnostic, FieldDef, FieldId, Match, MatchOn, Rule, Value, ValueKind};
use mmb_packet::{Kind, Loc};

use crate::masked::Masked;
use crate::pattern::{Exclusion, Pattern};

/// What one match asks, apart from its `!`: `what` holds, and `except` (which implies `what`) does not.
struct Question {
    what: Masked,
    except: Option<Masked>,
}

impl Pattern {
    /// Compiles the matches of a rule. `ifaces` gives the port of an interface, as an index of the dataplane's port
    /// table.
    ///
    /// # Errors
    /// One that marks the offending words: an interface that does not exist, a match that contradicts those before it,
    /// or one that the classifier cannot look for ([`mmb_lang::check`] refuses those first, with its own reasons).
    pub fn compile(rule: &Rule, ifaces: &dyn Fn(&str) -> Option<u16>) -> Result<Pattern, Diagnostic> {
        let mut must = Masked::IP;
        let mut not = Vec::new();
        for one in &rule.matches {
            let Question { what, except } = question(one, ifaces)?;
            if one.negated {
                not.push(Exclusion { what, unless: except });
                continue;
            }
            must = must.and(&what).ok_or_else(|| contradiction(one))?;
            not.extend(except.map(|what| Exclusion { what, unless: None }));
        }
        Pattern::new(&must, not)
            .ok_or_else(|| Diagnostic::new(rule.span.span(), "the rule is not about IP packets"))
    }
}

fn question(one: &Match, ifaces: &dyn Fn(&str) -> Option<u16>) -> Result<Question, Diagnostic> {
    let MatchOn::Field { field, arg } = &one.what else {
        return Ok(Question { what: Masked::ANY, except: None });
    };
    let def = field.def();
    let present = def.loc.map(present).ok_or_else(|| unsupported(one))?;
    let with =
        |bits: Option<Masked>| bits.and_then(|bits| present.and(&bits)).ok_or_else(|| unsupported(one));
    let Some(Arg { cond, values, .. }) = arg else {
        let what = match def.kind {
            ValueKind::Flag => with(number(def, 1))?,
            ValueKind::Shorthand(codepoint) => with(number(def, codepoint.into()))?,
            _ => present,
        };
        return Ok(Question { what, except: None });
    };
    let bits = match values.single().ok_or_else(|| unsupported(one))? {
        Value::Int(n) if *field == FieldId::NetProto => network(*n).or_else(|| number(def, (*n).into())),
        Value::Int(n) => number(def, (*n).into()),
        Value::Prefix { addr, len } => prefix(def, *addr, *len),
        Value::Iface(name) => {
            let port = ifaces(name).ok_or_else(|| {
                Diagnostic::new(name.span.span(), format!("there is no interface {:?}", &*name.text))
                    .with_help("`show interfaces` lists those there are")
            })?;
            number(def, port.into())
        }
        Value::Bytes(_) | Value::Option { .. } => None,
    };
    let equal = with(bits)?;
    match cond {
        Cond::Eq => Ok(Question { what: equal, except: None }),
        Cond::Ne => Ok(Question { what: present, except: Some(equal) }),
        Cond::Lt | Cond::Le | Cond::Gt | Cond::Ge | Cond::Contains => Err(unsupported(one)),
    }
}

/// The packet has the header that the field is in.
fn present(loc: Loc) -> Masked {
    Masked::kind(loc.kind_test())
}

/// The field has this value.
fn number(def: &FieldDef, value: u128) -> Option<Masked> {
    Masked::bits(def.loc?.window_bit(), def.width_bits.into(), value)
}

/// The field is an address that begins with the first `len` bits of `addr`.
fn prefix(def: &FieldDef, addr: IpAddr, len: u8) -> Option<Masked> {
    let (address, width): (u128, u32) = match addr {
        IpAddr::V4(addr) => (u32::from(addr).into(), 32),
        IpAddr::V6(addr) => (addr.into(), 128),
    };
    let ignored = width.checked_sub(len.into())?;
    match len {
        0 => Some(Masked::ANY),
        _ if def.width_bits != width as u16 => None,
        _ => Masked::bits(def.loc?.window_bit(), len.into(), address >> ignored),
    }
}

/// The ethertypes of IP by way of [`Kind`], which is in the chunk that every mask uses.
fn network(ethertype: u64) -> Option<Masked> {
    match ethertype {
        0x0800 => Some(Masked::kind((Kind::L3_MASK, Kind::IP4))),
        0x86dd => Some(Masked::kind((Kind::L3_MASK, Kind::IP6))),
        _ => None,
    }
}

fn contradiction(one: &Match) -> Diagnostic {
    Diagnostic::new(one.span.span(), "no packet can match this and what stands before it")
        .with_help("make two rules of it, or leave one of the matches out")
}

fn unsupported(one: &Match) -> Diagnostic {
    Diagnostic::new(one.span.span(), "the engine cannot match this")
        .with_help("`show fields` says what can be matched")
}
