//! Names and comments of rules.

use super::rule::WordPosition;
use super::{Expect, Parse, Parser};
use crate::ast::{RuleLabel, RuleRef, Word};
use crate::diag::{Diagnostic, quote};
use crate::field::field;
use crate::keyword::{self, RULE_COMMENT, RULE_NAME};
use crate::lex::Tok;
use crate::shape::{MAX_COMMENT, MAX_RULE_NAME, is_hidden, is_rule_name};
use crate::span::Span;

impl Parser<'_> {
    /// Parses `name <name>` and `comment "<text>"`, in any order, to the end of the line.
    pub(super) fn rule_label(&mut self) -> Parse<Option<Box<RuleLabel>>> {
        let mut label = RuleLabel::default();
        loop {
            if label.name.is_none() {
                self.expect(Expect::Words(RULE_NAME));
            }
            if label.comment.is_none() {
                self.expect(Expect::Words(RULE_COMMENT));
            }
            let token = self.lex.peek();
            let twice = |what: &str| Err(Diagnostic::new(token.span, format!("the rule has two {what}s")));
            match self.peek_word() {
                Some("name") if label.name.is_some() => return twice("name"),
                Some("comment") if label.comment.is_some() => return twice("comment"),
                Some("name") => {
                    self.lex.next();
                    label.name = Some(self.new_rule_name()?);
                }
                Some("comment") => {
                    self.lex.next();
                    label.comment = Some(self.comment()?);
                }
                _ if token.tok == Tok::End => break,
                _ => return Err(self.behind_label()),
            }
        }
        let is_empty = label == RuleLabel::default();
        Ok((!is_empty).then(|| Box::new(label)))
    }

    /// The error for something else behind a name or a comment.
    fn behind_label(&self) -> Diagnostic {
        let token = self.lex.peek();
        let known = |word: &str| keyword::is_target(word) || field(word).is_some();
        if token.tok != Tok::Bang && !self.peek_word().is_some_and(known) {
            return self.stray(token, WordPosition::Label);
        }
        let message = format!("{} follows the name or the comment of the rule", quote(self.text(token)));
        Diagnostic::new(token.span, message).with_help("name and comment stand at the end of a rule")
    }

    /// The name of a new rule.
    fn new_rule_name(&mut self) -> Parse<Word> {
        let (text, span) = self.operand("the name of the rule")?;
        if keyword::is_reserved(text) {
            return Err(Diagnostic::new(
                span,
                format!("{} is a keyword and cannot name a rule", quote(text)),
            ));
        }
        if !is_rule_name(text) {
            return Err(no_rule_name(text, span));
        }
        Ok(Word { text: text.into(), span: span.into() })
    }

    /// Index or name of a rule.
    pub(super) fn rule_ref(&mut self) -> Parse<RuleRef> {
        self.expect(Expect::Rule);
        let token = self.lex.peek();
        if token.tok == Tok::End {
            let error = Diagnostic::new(token.span, "the index or the name of the rule is missing");
            return Err(error.with_help("`list` shows the rules with their indexes and names"));
        }
        let text = self.text(token);
        let Some(rule) = RuleRef::read(text, token.span.into()) else {
            let message = format!("{} is not the index or the name of a rule", quote(text));
            let help = format!("an index is a number from 1 to {}; a name begins with a letter", u32::MAX);
            return Err(Diagnostic::new(token.span, message).with_help(help));
        };
        self.lex.next();
        Ok(rule)
    }

    pub(super) fn comment(&mut self) -> Parse<Box<str>> {
        let (text, span) = self.unbroken("the text of the comment")?;
        if let Some(hidden) = text.chars().find(|c| is_hidden(*c)) {
            let message = format!("the comment contains the control character U+{:04X}", u32::from(hidden));
            return Err(Diagnostic::new(span, message).with_help("a comment is plain text in one line"));
        }
        if text.len() > MAX_COMMENT {
            let message =
                format!("the comment has {} bytes; a comment may have {MAX_COMMENT} at most", text.len());
            return Err(Diagnostic::new(span, message));
        }
        Ok(text.into())
    }
}

fn no_rule_name(text: &str, span: Span) -> Diagnostic {
    let help = format!(
        "a name has 1 to {MAX_RULE_NAME} letters, digits, dots, dashes or underscores, and begins with a letter"
    );
    Diagnostic::new(span, format!("{} cannot name a rule", quote(text))).with_help(help)
}
