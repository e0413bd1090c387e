//! Completion: what can stand at the cursor.

use serde::Serialize;

use crate::ast::RuleKind;
use crate::field::{FIELDS, FieldId, ValueKind};
use crate::keyword::{
    self, CONDS, CONNECTIONS, FILTERING, Keyword, NAT_PROTOS, ON_ERROR, ROUTING, SHOW, TARGETS, TIMEOUTS,
    is_stateful,
};
use crate::lex::{Lexer, Tok};
use crate::names;
use crate::parse::{Expect, expected};
use crate::shape::{accepts_cond, is_name};

/// Names that completion offers and that the language does not know itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'a> {
    /// The interfaces there are.
    pub interfaces: &'a [String],
    /// The NAT pools there are.
    pub pools: &'a [String],
    /// The instances of network functions there are.
    pub instances: &'a [String],
    /// The service chains there are.
    pub chains: &'a [String],
    /// The types of network functions there are, and one line about each.
    pub types: &'a [(String, String)],
}

/// What completion found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Completion {
    /// Byte of the line where the word at the cursor starts; a candidate replaces everything from there to
    /// the cursor.
    pub start: usize,
    /// What could stand there, in the order of the grammar.
    pub candidates: Vec<Candidate>,
}

/// A word that could stand at the cursor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// The word.
    pub text: String,
    /// One line about it.
    pub help: String,
}

/// What could stand at byte `cursor` of `line`, given what stands before it; what stands behind is not looked
/// at. Offers only what the engine can run. Nothing when the line is wrong before the cursor.
pub fn complete(line: &str, cursor: usize, names: &Names<'_>) -> Completion {
    let before = &line[..line.floor_char_boundary(cursor)];
    let Some(start) = word_start(before) else {
        return Completion { start: before.len(), ..Completion::default() };
    };
    let typed = &before[start..];
    let mut candidates: Vec<Candidate> = Vec::new();
    for expect in expected(&before[..start]) {
        offer(expect, names, &mut |text, help| {
            if text.starts_with(typed) && candidates.iter().all(|known| known.text != text) {
                candidates.push(Candidate { text: text.to_owned(), help: help.to_owned() });
            }
        });
    }
    Completion { start, candidates }
}

/// Where the word that ends at the end of the line starts; `None` in a comment.
fn word_start(before: &str) -> Option<usize> {
    let mut lexer = Lexer::new(before);
    if lexer.text(lexer.peek().span) == "mmb" {
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
            let can = |word: &Keyword| kind == RuleKind::Stateful || !is_stateful(word.word);
            TARGETS.iter().filter(|word| can(word)).for_each(|word| each(word.word, word.help));
        }
        Expect::Show => {
            table(SHOW, each);
            CONNECTIONS.iter().chain(ROUTING).for_each(|keyword| each(keyword.word, keyword.help));
        }
        Expect::ErrorPolicy => table(ON_ERROR, each),
        Expect::Timeout => table(TIMEOUTS, each),
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
        Expect::Instance => {
            let can = |name: &&String| is_name(name) && !keyword::is_body_word(name);
            names.instances.iter().filter(can).for_each(|name| each(name, "function"));
        }
        Expect::FunctionType => names.types.iter().for_each(|(name, help)| each(name, help)),
        Expect::Chain => good(names.chains).for_each(|name| each(name, "chain")),
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
        // `mod` takes no 0, a match is shorter without a value.
        ValueKind::Shorthand(_) => each("1", "set"),
        ValueKind::Proto => names::protocols().for_each(|name| each(name, "protocol")),
        ValueKind::EtherType => {
            each("ip", "IPv4");
            each("ip6", "IPv6");
        }
        ValueKind::Interface => interfaces(names, each),
        _ => {}
    }
}

fn interfaces(names: &Names<'_>, each: &mut dyn FnMut(&str, &str)) {
    good(names.interfaces).for_each(|name| each(name, "interface"));
}

/// Names that the language can say.
fn good(names: &[String]) -> impl Iterator<Item = &String> {
    names.iter().filter(|name| is_name(name) && !keyword::is_reserved(name))
}
