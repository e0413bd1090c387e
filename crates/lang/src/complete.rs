//! Completion: the words that can stand at the cursor.

use serde::Serialize;

use crate::ast::{RuleKind, SetKind};
use crate::field::{FIELDS, FieldId, ValueKind};
use crate::keyword::{
    self, BROKER_OPTIONS, CONDS, CONNECTIONS, FILTERING, Keyword, NAT_PROTOS, ON_ERROR, PUNT_CLASSES,
    ROUTING, SET_KINDS, SHOW, SHOW_SET, TARGETS, TIMEOUTS, is_stateful,
};
use crate::lex::{Lexer, Tok};
use crate::names;
use crate::parse::{Expect, expected};
use crate::shape::{accepts_cond, is_name};

/// Names for completion that the language itself does not know.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'a> {
    /// Names of the interfaces.
    pub interfaces: &'a [String],
    /// Names of the NAT pools.
    pub pools: &'a [String],
    /// Names of the domains of functions in processes.
    pub domains: &'a [String],
    /// Names of the instances of network functions.
    pub instances: &'a [String],
    /// Names of the service chains.
    pub chains: &'a [String],
    /// Names of the brokers.
    pub brokers: &'a [String],
    /// Names of the sets, each with its kind.
    pub sets: &'a [(String, SetKind)],
    /// Types of network functions, with one line of help each.
    pub types: &'a [(String, String)],
    /// Names and indexes of rules, each with the text of its rule.
    pub rules: &'a [(String, String)],
}

/// Help for names of services.
const SERVICE: &str = "service";

/// The result of a completion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Completion {
    /// Start of the word at the cursor, in bytes. A candidate replaces everything from there to the cursor.
    pub start: usize,
    /// The candidates, in grammar order.
    pub candidates: Vec<Candidate>,
}

/// A candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// The word.
    pub text: String,
    /// One line of help.
    pub help: String,
}

/// Returns the words that can stand at byte `cursor` of `line`. The text after the cursor is ignored. Offers
/// only what the engine can run, and nothing if the line has an error before the cursor.
pub fn complete(line: &str, cursor: usize, names: &Names<'_>) -> Completion {
    let before = &line[..line.floor_char_boundary(cursor)];
    let Some(start) = word_start(before) else {
        return Completion { start: before.len(), ..Completion::default() };
    };
    let typed = &before[start..];
    let mut candidates: Vec<Candidate> = Vec::new();
    for expect in expected(&before[..start]) {
        offer(expect, names, &mut |text, help| {
            // All services at once are too many to choose from.
            let floods = help == SERVICE && typed.is_empty();
            if !floods && text.starts_with(typed) && candidates.iter().all(|known| known.text != text) {
                candidates.push(Candidate { text: text.to_owned(), help: help.to_owned() });
            }
        });
    }
    Completion { start, candidates }
}

/// Start of the word at the end of the line; `None` in a comment and in or directly after a quoted text.
fn word_start(before: &str) -> Option<usize> {
    let mut lexer = Lexer::new(before);
    let first = lexer.peek().span;
    // The cursor may be at the end of this word.
    if lexer.text(first) == "mmb" && first.end < before.len() {
        lexer.next();
    }
    if lexer.text(lexer.peek().span) == "chain" {
        lexer.enter_chain();
    }
    loop {
        let token = lexer.next();
        match token.tok {
            Tok::End => return before[token.span.end..].trim_ascii().is_empty().then_some(before.len()),
            Tok::Word if token.span.end == before.len() => return Some(token.span.start),
            Tok::Text | Tok::OpenText if token.span.end == before.len() => return None,
            _ => {}
        }
    }
}

fn offer(expect: Expect, names: &Names<'_>, each: &mut dyn FnMut(&str, &str)) {
    match expect {
        Expect::Words(table) => {
            table.iter().for_each(|keyword| each(keyword.word, keyword.help));
        }
        Expect::Target(kind) => {
            // A rule with a broker is stateful by itself.
            let is_open = |word: &str| !is_stateful(word) || kind == RuleKind::Add && word == "broker";
            let can = |word: &Keyword| kind == RuleKind::Stateful || is_open(word.word);
            TARGETS.iter().filter(|word| can(word)).for_each(|word| each(word.word, word.help));
        }
        Expect::Show => {
            table(SHOW, each);
            SHOW_SET
                .iter()
                .chain(CONNECTIONS)
                .chain(ROUTING)
                .for_each(|keyword| each(keyword.word, keyword.help));
        }
        Expect::ErrorPolicy => table(ON_ERROR, each),
        Expect::Timeout => table(TIMEOUTS, each),
        Expect::PuntClass => table(PUNT_CLASSES, each),
        Expect::Filtering => table(FILTERING, each),
        Expect::NatProto => table(NAT_PROTOS, each),
        Expect::Cond(field) => {
            let sensible = CONDS.iter().filter(|(cond, ..)| accepts_cond(field.def(), *cond));
            sensible.for_each(|(.., keyword)| each(keyword.word, keyword.help));
        }
        Expect::Field(wanted) => {
            FIELDS.iter().filter(|def| wanted(def)).for_each(|def| each(def.name, def.help));
        }
        Expect::Value(field) => values(field, names, each),
        Expect::Interface => interfaces(names, each),
        Expect::Instance => outside_chains(names.instances).for_each(|name| each(name, "function")),
        Expect::FunctionType => names.types.iter().for_each(|(name, help)| each(name, help)),
        Expect::Rule => names.rules.iter().for_each(|(word, text)| each(word, text)),
        Expect::Set => sets(names).for_each(|(name, _)| each(name, "set")),
        Expect::SetKind => table(SET_KINDS, each),
        Expect::SetValue(field) => {
            let fitting = sets(names).filter(|(_, kind)| kind.fits(field));
            fitting.for_each(|(name, _)| each(&format!("@{name}"), "set"));
        }
        Expect::PairSet => {
            let fitting = sets(names).filter(|(_, kind)| kind.has_pairs());
            fitting.for_each(|(name, _)| each(&format!("@{name}"), "set"));
        }
        Expect::BrokerOption => table(BROKER_OPTIONS, each),
        Expect::Broker => outside_chains(names.brokers).for_each(|name| each(name, "broker")),
        Expect::Chain => good(names.chains).for_each(|name| each(name, "chain")),
        Expect::Domain => good(names.domains).for_each(|name| each(name, "domain")),
        Expect::Pool => good(names.pools).for_each(|name| each(name, "pool")),
    }
}

fn table<T>(table: &'static [(T, Keyword)], each: &mut dyn FnMut(&str, &str)) {
    table.iter().for_each(|(_, keyword)| each(keyword.word, keyword.help));
}

fn values(field: FieldId, names: &Names<'_>, each: &mut dyn FnMut(&str, &str)) {
    match field.def().kind {
        ValueKind::Flag => {
            each("0", "not set");
            each("1", "set");
        }
        // `mod` takes no 0, and a match is shorter without a value.
        ValueKind::Shorthand(_) => each("1", "set"),
        ValueKind::Int if field.def().is_port() => names::services().for_each(|name| each(name, SERVICE)),
        ValueKind::Proto => names::protocols().for_each(|name| each(name, "protocol")),
        ValueKind::EtherType => {
            each("ip", "IPv4");
            each("ip6", "IPv6");
        }
        ValueKind::Interface => interfaces(names, each),
        _ => {}
    }
}

/// The sets whose names the language can express.
fn sets<'a>(names: &Names<'a>) -> impl Iterator<Item = &'a (String, SetKind)> {
    names.sets.iter().filter(|(name, _)| is_name(name) && !keyword::is_reserved(name))
}

fn interfaces(names: &Names<'_>, each: &mut dyn FnMut(&str, &str)) {
    good(names.interfaces).for_each(|name| each(name, "interface"));
}

/// The names that are not words of chains.
fn outside_chains(names: &[String]) -> impl Iterator<Item = &String> {
    names.iter().filter(|name| is_name(name) && !keyword::is_body_word(name))
}

/// Names that the language can express.
fn good(names: &[String]) -> impl Iterator<Item = &String> {
    names.iter().filter(|name| is_name(name) && !keyword::is_reserved(name))
}
