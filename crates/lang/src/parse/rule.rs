//! Rules and their matches.

use super::{Expect, Parse, Parser};
use crate::ast::{Comparison, Cond, Match, MatchExpr, Rule, RuleKind, Value, ValueSet};
use crate::diag::{Diagnostic, nearest_distance, quote, suggest};
use crate::field::{FIELDS, FieldDef, FieldId, Support, ValueKind, field};
use crate::foreign;
use crate::keyword::{
    self, MATCH_WORDS, RULE_COMMENT, RULE_NAME, TARGETS, cond_word, ends_target, is_label, is_target, words,
};
use crate::lex::{Tok, Token};
use crate::shape::accepts_cond;
use crate::span::Span;

impl<'a> Parser<'a> {
    /// Parses the matches and targets after the keyword.
    pub(super) fn rule(&mut self, kind: RuleKind, start: usize) -> Parse<Rule> {
        let matches = self.matches(kind)?;
        let targets = self.targets(kind, &matches)?;
        let label = self.rule_label()?;
        Ok(Rule { kind, matches, targets, label, span: self.since(start) })
    }

    fn matches(&mut self, kind: RuleKind) -> Parse<Vec<Match>> {
        const EXAMPLE: &str = "for example: add tcp-dport 80 drop";
        // Capacity for most rules, so that the vector does not grow. The rest is freed below.
        let mut matches = Vec::with_capacity(8);
        loop {
            self.expect_match();
            if !matches.is_empty() {
                self.expect(Expect::Target(kind));
            }
            let token = self.lex.peek();
            match self.peek_word() {
                Some(word) if is_target(word) && matches.is_empty() => {
                    let message = format!("{} needs a match in front of it", quote(word));
                    let help = "say what the rule matches first; `all` matches every packet";
                    return Err(Diagnostic::new(token.span, message).with_help(help));
                }
                Some(word) if is_target(word) => break,
                _ if token.tok == Tok::End && matches.is_empty() => {
                    return Err(Diagnostic::new(token.span, "the rule is empty").with_help(EXAMPLE));
                }
                word if token.tok == Tok::End || word.is_some_and(is_label) => {
                    return Err(no_target(kind, token.span));
                }
                _ => matches.push(self.single_match()?),
            }
        }
        matches.shrink_to_fit();
        Ok(matches)
    }

    /// Records that a match could stand here.
    pub(super) fn expect_match(&mut self) {
        self.expect(Expect::Words(MATCH_WORDS));
        self.expect(Expect::Field(|def| def.match_ == Support::Yes));
    }

    pub(super) fn single_match(&mut self) -> Parse<Match> {
        let start = self.lex.peek().span.start;
        let negated = self.eat_not();
        if negated {
            self.expect(Expect::Field(|def| def.match_ == Support::Yes));
            if self.peek() == Tok::End {
                return Err(self.error_here("the field behind `!` is missing"));
            }
        }
        let token = self.lex.peek();
        let what = match self.peek_word() {
            Some("all") => {
                self.lex.next();
                MatchExpr::All
            }
            word => match word.and_then(field) {
                Some(def) => {
                    self.lex.next();
                    if self.eat(Tok::Comma) { self.pair(def, token.span)? } else { self.question(def)? }
                }
                None if negated => return Err(self.stray(token, WordPosition::Negated)),
                None => return Err(self.stray(token, WordPosition::Match)),
            },
        };
        Ok(Match { negated, what, span: self.since(start) })
    }

    /// The condition of a match on a field.
    fn question(&mut self, def: &'static FieldDef) -> Parse<MatchExpr> {
        let arg = self.arg(def)?;
        let ValueKind::Shorthand(bits) = def.kind else {
            return Ok(MatchExpr::Field { field: def.id, arg });
        };
        let Some(arg) = arg else { return Ok(MatchExpr::Field { field: def.id, arg: None }) };
        match (arg.cond, arg.values.single()) {
            (Cond::Eq, Some(Value::Int(1))) | (Cond::Ne, Some(Value::Int(0))) => {
                Ok(MatchExpr::Field { field: def.id, arg: None })
            }
            (Cond::Eq, Some(Value::Int(0))) | (Cond::Ne, Some(Value::Int(1))) => {
                let arg =
                    Comparison { cond: Cond::Ne, values: Value::Int(bits.into()).into(), span: arg.span };
                Ok(MatchExpr::Field { field: FieldId::IpEcn, arg: Some(arg) })
            }
            _ => Err(yes_or_no(def, arg.span.span())),
        }
    }

    /// Condition and values, if present.
    fn arg(&mut self, def: &'static FieldDef) -> Parse<Option<Comparison>> {
        let start = self.lex.peek().span.start;
        if def.kind != ValueKind::Presence {
            self.expect(Expect::Value(def.id));
            self.expect(Expect::Cond(def.id));
            self.expect(Expect::SetValue(def.id));
        }
        let written = self.cond()?;
        if matches!(written, Some(Cond::Eq | Cond::Ne)) {
            self.expect(Expect::SetValue(def.id));
        }
        match written {
            Some(cond) => check_cond(def, cond, self.since(start).span())?,
            None if !self.value_follows(def)? => return Ok(None),
            None => {}
        }
        let values = self.values(def, written)?;
        let cond = written.unwrap_or(Cond::Eq);
        let span = self.since(start);
        check_count(cond, &values, span.span())?;
        Ok(Some(Comparison { cond, values, span }))
    }

    pub(super) fn cond(&mut self) -> Parse<Option<Cond>> {
        let cond = match self.lex.peek() {
            Token { tok: Tok::Cond(cond), .. } => Some(cond),
            Token { tok: Tok::Assign, span } => {
                return Err(
                    Diagnostic::new(span, "`=` is not a condition").with_help("equality is written ==")
                );
            }
            _ => self.peek_word().and_then(cond_word),
        };
        if cond.is_some() {
            self.lex.next();
        }
        Ok(cond)
    }

    /// Whether the next token is a value of `def`. An error if it is not but must be one.
    fn value_follows(&self, def: &'static FieldDef) -> Parse<bool> {
        let must = matches!(def.kind, ValueKind::Interface | ValueKind::EtherType);
        let token = self.lex.peek();
        match token.tok {
            Tok::Open | Tok::Text | Tok::OpenText => return Ok(true),
            Tok::Word => {}
            _ => return Ok(must),
        }
        let word = self.text(token);
        if word.starts_with('@') {
            return Ok(true);
        }
        if must || self.looks_like_value(def, word) {
            return Ok(true);
        }
        if word == "not" || word == "all" || ends_target(word) || field(word).is_some() {
            return Ok(false);
        }
        // A typing error, either of a value or of the next keyword. The message follows the most similar
        // word.
        let grammar = nearest_distance(word, WordPosition::Match.words()).map(|(distance, _)| distance);
        let value = nearest_distance(word, self.value_names(def)).map(|(distance, _)| distance);
        Ok(match (grammar, value) {
            (Some(grammar), Some(value)) => value < grammar,
            (Some(_), None) => false,
            (None, _) => def.kind != ValueKind::Presence,
        })
    }

    /// The error for a token that is not allowed at its position.
    pub(super) fn stray(&self, token: Token, place: WordPosition) -> Diagnostic {
        let text = self.text(token);
        let error = |message: String| Diagnostic::new(token.span, message);
        let stands_there = |what: &str, help: &str| {
            error(format!("expected {}, found {what}{}", place.wanted(), quote(text))).with_help(help)
        };
        match token.tok {
            Tok::OpenText => self.open_text(token),
            Tok::Assign => error("`=` is not a condition".into()).with_help("equality is written =="),
            Tok::Comma | Tok::Open | Tok::Close => stands_there("", SET),
            Tok::Word if text.starts_with(|c: char| c.is_ascii_digit()) => match place {
                WordPosition::Match => stands_there("the value ", SET),
                _ => stands_there("the value ", place.otherwise()),
            },
            Tok::Word if !keyword::is_reserved(text) => {
                let help = match foreign::in_rules(text) {
                    Some(help) => help.to_owned(),
                    None => suggest(text, place.words(), place.otherwise()),
                };
                error(format!("unknown {} {}", place.noun(), quote(text))).with_help(help)
            }
            _ => stands_there("", place.otherwise()),
        }
    }
}

const SET: &str = "several values are written {80,443,8000-8100}, in quotes where a shell reads the line";

/// The error for a rule without targets.
fn no_target(kind: RuleKind, span: Span) -> Diagnostic {
    let help = match kind {
        RuleKind::Stateful => {
            "say what happens to the sessions: accept, drop, mod <field> <value>, map, nat and so on"
        }
        _ => "say what happens to the packets: mod <field> <value>, add, strip, drop or accept",
    };
    Diagnostic::new(span, "the rule has no target").with_help(help)
}

/// The position of a word, for messages.
#[derive(Clone, Copy)]
pub(super) enum WordPosition {
    /// A match, or the first target.
    Match,
    /// After `!`.
    Negated,
    /// A target after another.
    Target,
    /// A field in a target.
    Field,
    /// After a name or a comment.
    Label,
}

impl WordPosition {
    fn noun(self) -> &'static str {
        match self {
            WordPosition::Match | WordPosition::Negated | WordPosition::Field => "field",
            WordPosition::Target => "target",
            WordPosition::Label => "word",
        }
    }

    fn wanted(self) -> &'static str {
        match self {
            WordPosition::Match => "a match or a target",
            WordPosition::Target => "a target",
            WordPosition::Negated | WordPosition::Field => "a field",
            WordPosition::Label => "`name` or `comment`",
        }
    }

    fn otherwise(self) -> &'static str {
        match self {
            WordPosition::Match | WordPosition::Negated | WordPosition::Field => {
                "`show fields` lists the fields"
            }
            WordPosition::Target => "a target is mod <field> <value>, add, strip, drop or accept",
            WordPosition::Label => "a comment of several words is written in quotes",
        }
    }

    fn words(self) -> impl Iterator<Item = &'static str> {
        let fields = match self {
            WordPosition::Target | WordPosition::Label => &[][..],
            _ => &FIELDS[..],
        };
        let targets = if let WordPosition::Match | WordPosition::Target = self { TARGETS } else { &[] };
        let all = if let WordPosition::Match | WordPosition::Negated = self { Some("all") } else { None };
        let label = match self {
            WordPosition::Target | WordPosition::Label => [RULE_NAME, RULE_COMMENT],
            _ => [&[][..]; 2],
        };
        let label = label.into_iter().flat_map(words);
        fields.iter().map(|def| def.name).chain(words(targets)).chain(all).chain(label)
    }
}

/// Checks that the field supports the condition.
fn check_cond(def: &FieldDef, cond: Cond, span: Span) -> Parse<()> {
    let error = |message: String| Err(Diagnostic::new(span, message));
    match (def.kind, cond) {
        _ if accepts_cond(def, cond) => Ok(()),
        (ValueKind::Presence, _) => Err(no_value(def, span)),
        (ValueKind::Shorthand(_), _) => Err(yes_or_no(def, span)),
        (_, Cond::Contains) => {
            error(format!("`contains` is for payloads and options' bytes, and `{}` has none", def.name))
        }
        _ => error(format!("`{}` has no order, so `{cond}` does not apply", def.name)),
    }
}

/// Checks that the condition has one value if it needs one.
fn check_count(cond: Cond, values: &ValueSet, span: Span) -> Parse<()> {
    let error = |message: String| Err(Diagnostic::new(span, message));
    match values.single() {
        _ if matches!(cond, Cond::Eq | Cond::Ne | Cond::Contains) => Ok(()),
        Some(value) if value.is_subnet() => {
            error(format!("`{cond}` compares with a whole address, not with a subnet"))
        }
        Some(_) => Ok(()),
        None => error(format!("`{cond}` compares with one value, not with several")),
    }
}

pub(super) fn no_value(def: &FieldDef, span: Span) -> Diagnostic {
    Diagnostic::new(span, format!("`{}` has no value to compare with", def.name))
        .with_help(format!("`{}` alone asks whether it is there", def.name))
}

fn yes_or_no(def: &FieldDef, span: Span) -> Diagnostic {
    let message = format!("`{}` is a yes-or-no question: alone, or == or != and 0 or 1", def.name);
    Diagnostic::new(span, message).with_help("`ip-ecn` takes conditions, ranges and sets")
}
