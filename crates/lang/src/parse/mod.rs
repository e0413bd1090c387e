//! The parser: from a line, or a file of lines, to commands.
//!
//! # Theory of operation
//!
//! A recursive-descent parser with one token of lookahead. Only the brackets of service chains nest, at most
//! [`crate::Chain::MAX_DEPTH`] levels deep. At every choice of the grammar, the parser records what could
//! stand at the end of the line ([`Expect`]). Completion runs the same parser over the line up to the cursor
//! and reads these records, so parser and completion always agree. The time is linear in the length of the
//! line.

mod broker;
mod chain;
mod command;
mod file;
mod label;
mod live;
mod nat;
mod rule;
mod set;
mod short;
mod target;
mod value;

pub use command::{SHORTEST_ABBREVIATION, WHOLE_COMMANDS};
pub use file::{FileItem, line_comment, load_file, parse_file};

use crate::ast::{Command, Match, RuleKind, SetElement, Word};
use crate::check::check_matches;
use crate::diag::{Diagnostic, quote};
use crate::field::{FieldDef, FieldId};
use crate::keyword::{self, Keyword};
use crate::lex::{Lexer, Tok, Token, unquote};
use crate::shape::{MAX_NAME, is_name};
use crate::span::{SourceSpan, Span};

/// Maximum length of a line in bytes.
pub const MAX_LINE: usize = 1 << 20;

type Parse<T> = Result<T, Diagnostic>;

/// Something that can stand at the end of an unfinished line.
#[derive(Clone, Copy)]
pub(crate) enum Expect {
    /// One of these words.
    Words(&'static [Keyword]),
    /// A target of a rule of this kind.
    Target(RuleKind),
    /// A subject of `show`.
    Show,
    /// A value of `set on-error`.
    ErrorPolicy,
    /// A timeout.
    Timeout,
    /// A class of packets for the kernel.
    PuntClass,
    /// The filtering of a pool.
    Filtering,
    /// A protocol of forwards.
    NatProto,
    /// A set whose elements are an address and a port.
    PairSet,
    /// A condition that the field supports.
    Cond(FieldId),
    /// A field for which the function returns true.
    Field(fn(&FieldDef) -> bool),
    /// A value of the field.
    Value(FieldId),
    /// The name of an interface.
    Interface,
    /// The name of a NAT pool.
    Pool,
    /// The name of a domain.
    Domain,
    /// The name of an instance of a network function.
    Instance,
    /// A type of network functions.
    FunctionType,
    /// The name of a service chain.
    Chain,
    /// The index or the name of a rule.
    Rule,
    /// The name of a set.
    Set,
    /// `@` and the name of a set that the field can be compared with.
    SetValue(FieldId),
    /// A kind of sets.
    SetKind,
    /// The name of a broker.
    Broker,
    /// An option of a broker.
    BrokerOption,
}

/// Parses a line. `None` for a blank line or a comment. A leading `mmb` and a newline at the end are allowed.
///
/// # Errors
/// The first error of the line. [`crate::check`] tests whether the engine can run a rule that parses.
pub fn parse_line(line: &str) -> Result<Option<Command>, Diagnostic> {
    let line = line.strip_suffix('\n').unwrap_or(line);
    let line = line.strip_suffix('\r').unwrap_or(line);
    plain(line)?;
    Parser::new(line).line()
}

/// Parses matches without a rule, and checks them as [`crate::check`] does. An empty text has no matches.
///
/// # Errors
/// The first error.
pub fn parse_matches(text: &str) -> Result<Vec<Match>, Diagnostic> {
    plain(text)?;
    let matches = Parser::new(text).filter("here are")?;
    check_matches(&matches)?;
    Ok(matches)
}

/// Parses an element of a named set: an address, a prefix, a port, a service or a range of ports.
///
/// # Errors
/// The text is none of these.
pub fn parse_element(text: &str) -> Result<SetElement, Diagnostic> {
    plain(text)?;
    set::element(text, Span::new(0, text.len()))
}

/// Checks that the line is not too long and has no control characters.
fn plain(line: &str) -> Parse<()> {
    if line.len() > MAX_LINE {
        let message = format!("the line has {} bytes; a line may have {MAX_LINE} at most", line.len());
        return Err(Diagnostic::new(Span::default(), message));
    }
    // Nearly all lines are plain ASCII. A test of bytes is many times faster.
    if line.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
        return Ok(());
    }
    let Some((at, c)) = line.char_indices().find(|(_, c)| c.is_control() && *c != '\t') else {
        return Ok(());
    };
    let message =
        format!("the line contains the control character U+{:04X}; rules are plain text", u32::from(c));
    Err(Diagnostic::new(Span::new(at, at + c.len_utf8()), message))
}

/// Returns what could follow at the end of `line`, in grammar order. Empty if the line has an error before
/// its end.
pub(crate) fn expected(line: &str) -> Vec<Expect> {
    let mut parser = Parser::new(line);
    if plain(line).is_err() {
        return Vec::new();
    }
    // Errors do not matter here: the line is usually unfinished.
    let _ = parser.line();
    parser.expected
}

struct Parser<'a> {
    lex: Lexer<'a>,
    expected: Vec<Expect>,
    /// Keywords of commands may be abbreviated, other than in files: a later release may have more keywords.
    abbreviations: bool,
}

impl<'a> Parser<'a> {
    fn new(line: &'a str) -> Self {
        Self { lex: Lexer::new(line), expected: Vec::new(), abbreviations: true }
    }

    fn peek(&self) -> Tok {
        self.lex.peek().tok
    }

    fn text(&self, token: Token) -> &'a str {
        self.lex.text(token.span)
    }

    /// The current token's text if it is a word.
    fn peek_word(&self) -> Option<&'a str> {
        let token = self.lex.peek();
        (token.tok == Tok::Word).then(|| self.text(token))
    }

    /// Takes the current token if it is that word.
    fn eat_word(&mut self, word: &str) -> bool {
        let eaten = self.peek_word() == Some(word);
        if eaten {
            self.lex.next();
        }
        eaten
    }

    fn eat(&mut self, tok: Tok) -> bool {
        let eaten = self.peek() == tok;
        if eaten {
            self.lex.next();
        }
        eaten
    }

    /// Takes `!` or `not`.
    fn eat_not(&mut self) -> bool {
        self.eat(Tok::Bang) || self.eat_word("not")
    }

    /// Records what could stand here, if the line ends here.
    fn expect(&mut self, what: Expect) {
        if self.peek() == Tok::End {
            self.expected.push(what);
        }
    }

    /// An error at the current token.
    fn error_here(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(self.lex.peek().span, message)
    }

    /// The span from `start` to the end of the last token.
    fn since(&self, start: usize) -> SourceSpan {
        Span::new(start, self.lex.last_end().max(start)).into()
    }

    /// Checks that the line ends here.
    fn end(&mut self, after: &str) -> Parse<()> {
        match self.lex.peek() {
            token if token.tok == Tok::End => Ok(()),
            token => {
                let message = format!("unexpected {} after {after}", quote(self.text(token)));
                Err(Diagnostic::new(token.span, message))
            }
        }
    }

    /// The name of an existing interface.
    fn interface_name(&mut self, what: &str) -> Parse<Word> {
        self.expect(Expect::Interface);
        self.name(what)
    }

    /// The name of an existing NAT pool.
    fn pool_name(&mut self) -> Parse<Word> {
        self.expect(Expect::Pool);
        self.name("a pool")
    }

    /// The current token, which must be a word. `what`: its description for messages.
    fn operand(&mut self, what: &str) -> Parse<(&'a str, Span)> {
        let token = self.lex.peek();
        match token.tok {
            Tok::Word => {
                self.lex.next();
                Ok((self.text(token), token.span))
            }
            Tok::End => Err(self.error_here(format!("{what} is missing"))),
            _ => Err(self.error_here(format!("expected {what}, found {}", quote(self.text(token))))),
        }
    }

    /// The name of an interface, a pool or a chain: 1 to 15 of `A-Z a-z 0-9 . _ -`, and no keyword of rules.
    fn name(&mut self, what: &str) -> Parse<Word> {
        if self.peek() == Tok::End {
            return Err(self.error_here(format!("the name of {what} is missing")));
        }
        let token = self.lex.peek();
        let text = self.text(token);
        if token.tok == Tok::Word && keyword::is_reserved(text) {
            let message = format!("{} is a keyword and cannot name {what}", quote(text));
            return Err(Diagnostic::new(token.span, message));
        }
        if token.tok != Tok::Word || !is_name(text) {
            return Err(self.no_name(what));
        }
        self.lex.next();
        Ok(Word { text: text.into(), span: token.span.into() })
    }

    /// The error for a token that does not have the shape of a name.
    fn no_name(&self, what: &str) -> Diagnostic {
        let token = self.lex.peek();
        if token.tok == Tok::End {
            return self.error_here(format!("the name of {what} is missing"));
        }
        let help = format!("a name has 1 to {MAX_NAME} letters, digits, dots, dashes or underscores");
        self.error_here(format!("{} cannot name {what}", quote(self.text(token)))).with_help(help)
    }

    /// A path or similar: quoted, or everything up to the next blank.
    fn unbroken(&mut self, what: &str) -> Parse<(String, Span)> {
        let token = self.lex.peek();
        match token.tok {
            Tok::End => Err(self.error_here(format!("{what} is missing"))),
            Tok::OpenText => Err(self.open_text(token)),
            Tok::Text => {
                self.lex.next();
                let bytes = self.unquoted(token)?;
                match String::from_utf8(bytes) {
                    Ok(text) if !text.is_empty() && !text.contains('\0') => Ok((text, token.span)),
                    _ => Err(Diagnostic::new(
                        token.span,
                        format!("{} cannot be {what}", quote(self.text(token))),
                    )),
                }
            }
            _ => {
                let span = self.lex.next_unbroken();
                Ok((self.lex.text(span).to_owned(), span))
            }
        }
    }

    fn unquoted(&self, token: Token) -> Parse<Vec<u8>> {
        unquote(self.text(token)).map_err(|at| {
            let at = token.span.start + at;
            Diagnostic::new(Span::new(at, at + 1), "the backslash does not start an escape")
                .with_help(r#"escapes are \" \\ \n \r \t \0 and \xHH; a backslash itself is \\"#)
        })
    }

    fn open_text(&self, token: Token) -> Diagnostic {
        Diagnostic::new(token.span, "the quoted text has no closing quote")
    }
}
