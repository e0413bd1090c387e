//! Network functions and service chains.
//!
//! Only here brackets nest, so only here the parser is recursive: at most [`Chain::MAX_DEPTH`] levels deep.

use super::{Expect, Parse, Parser};
use crate::ast::{
    Body, Branch, BranchEnd, Chain, Command, Domain, DomainKind, NfInstance, OnFailure, PlaceWords,
    ProcessMode, ProcessPlace, Step, Word,
};
use crate::diag::{Diagnostic, quote};
use crate::keyword::{
    ARM_ENDS, ARMS, BRACKET, CHAIN, DOMAIN, DOMAIN_KIND, DOMAIN_OPTIONS, ELSE, NF, ON_FAILURE, PIPE, PROCESS,
    PROCESS_CPU, PROCESS_MODES, is_body_word,
};
use crate::lex::Tok;
use crate::shape::{is_name, is_word};
use crate::span::Span;

/// Help text with the syntax of chains.
const EXAMPLE: &str = "a chain is written a | b [output: c | d, output: drop] | e, or [a, b, else: c]";
/// Maximum length of a function type in bytes.
const MAX_TYPE: usize = 31;

impl Parser<'_> {
    /// Parses the words after `nf`.
    pub(super) fn nf(&mut self) -> Parse<Command> {
        Ok(match self.keyword(NF, "action on functions")? {
            "add" => Command::NfAdd(self.function()?),
            "set" => {
                let name = self.known_instance()?;
                let words = self.args()?;
                if words.is_empty() {
                    let error = self.error_here(format!("the words for {} are missing", quote(&name)));
                    return Err(error.with_help("nf set <instance> <word> …"));
                }
                Command::NfSet { name, words }
            }
            _ => Command::NfDel { name: self.known_instance()? },
        })
    }

    fn function(&mut self) -> Parse<NfInstance> {
        let name = self.instance("an instance")?;
        self.expect(Expect::FunctionType);
        let (kind, span) = self
            .operand("the type of the function")
            .map_err(|error| error.with_help("nf add <instance> <type> [<word> …]"))?;
        if !is_word(kind, MAX_TYPE) {
            let message = format!("{} cannot be a type of functions", quote(kind));
            let help = format!("a type has 1 to {MAX_TYPE} letters, digits, dots, dashes or underscores");
            return Err(Diagnostic::new(span, message).with_help(help));
        }
        let kind = Word { text: kind.into(), span: span.into() };
        let (args, process) = self.function_args()?;
        Ok(NfInstance { name, kind, args, process })
    }

    /// Words up to the end of the line, and the process if the last ones are `process DOMAIN [MODE] [cpu N]`.
    /// In quotes, `process` is an argument like any other.
    fn function_args(&mut self) -> Parse<(Vec<Box<str>>, Option<ProcessPlace>)> {
        let mut words: Vec<(Box<str>, bool, Span)> = Vec::new();
        // Where the words behind the last `process` begin.
        let mut behind = None;
        while self.peek() != Tok::End {
            let token = self.lex.peek();
            let is_bare = token.tok == Tok::Word;
            let word = self.function_arg()?;
            if is_bare && *word == *PROCESS {
                behind = Some(words.len() + 1);
            }
            words.push((word, is_bare, token.span));
            if let Some(behind) = behind {
                self.expect_place(words.get(behind..).unwrap_or_default());
            }
        }
        let process = match behind {
            Some(behind) => self.process_place(words.get(behind..).unwrap_or_default())?,
            None => None,
        };
        if let (Some(_), Some(behind)) = (&process, behind) {
            words.truncate(behind - 1);
        }
        Ok((words.into_iter().map(|(word, ..)| word).collect(), process))
    }

    /// What can follow the words behind `process`.
    fn expect_place(&mut self, words: &[(Box<str>, bool, Span)]) {
        match words {
            [] => self.expect(Expect::Domain),
            [(domain, ..)] if is_name(domain) => {
                self.expect(Expect::Words(PROCESS_MODES));
                self.expect(Expect::Words(PROCESS_CPU));
            }
            [(domain, ..), (mode, true, _)] if is_name(domain) && ProcessMode::from_word(mode).is_some() => {
                self.expect(Expect::Words(PROCESS_CPU));
            }
            _ => {}
        }
    }

    /// The place of a function by the words behind `process`. None: they are arguments.
    fn process_place(&self, words: &[(Box<str>, bool, Span)]) -> Parse<Option<ProcessPlace>> {
        let read: Vec<(&str, bool)> = words.iter().map(|(word, is_bare, _)| (&**word, *is_bare)).collect();
        let help = "nf add <instance> <type> [<word> …] process <domain> [poll|event|adaptive] [cpu <n>]";
        let (domain, mode, number) = match PlaceWords::read(&read) {
            PlaceWords::Arguments => return Ok(None),
            PlaceWords::NoDomain => {
                return Err(self.error_here("the domain behind `process` is missing").with_help(help));
            }
            PlaceWords::NoCpu => {
                return Err(self.error_here("the number of the processor is missing").with_help(help));
            }
            PlaceWords::Place { domain, mode, cpu } => (domain, mode, cpu),
        };
        let span_at = |n: usize| words.get(n).map(|(.., span)| *span).unwrap_or_default();
        if !is_name(domain) {
            return Err(Diagnostic::new(span_at(0), format!("{} cannot name a domain", quote(domain))));
        }
        let invalid = |text: &str| {
            let error =
                Diagnostic::new(span_at(words.len() - 1), format!("invalid processor {}", quote(text)));
            error.with_help(format!("it is a number from 0 to {}", ProcessPlace::LAST_CPU))
        };
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let cpu_of = |text: &str| match text.parse() {
            Ok(cpu) if is_number(text) && cpu <= ProcessPlace::LAST_CPU => Ok(cpu),
            _ => Err(invalid(text)),
        };
        let cpu = number.map(cpu_of).transpose()?;
        let domain = Word { text: domain.into(), span: span_at(0).into() };
        Ok(Some(ProcessPlace { domain, mode, cpu }))
    }

    /// Words up to the end of the line.
    fn args(&mut self) -> Parse<Vec<Box<str>>> {
        let mut args = Vec::new();
        while self.peek() != Tok::End {
            args.push(self.function_arg()?);
        }
        Ok(args)
    }

    /// A word for a function.
    fn function_arg(&mut self) -> Parse<Box<str>> {
        let token = self.lex.peek();
        if token.span.start == self.lex.last_end() {
            let message = format!("a blank is missing before {}", quote(self.text(token)));
            return Err(self.error_here(message));
        }
        let (word, span) = self.unbroken("a word for a function")?;
        if token.tok != Tok::Text && word.contains('"') {
            let message = format!("{} has a quote within", quote(self.lex.text(span)));
            let help = r#"quotes stand around the whole word: "a b", and \" is a quote between them"#;
            return Err(Diagnostic::new(span, message).with_help(help));
        }
        Ok(word.into())
    }

    /// Parses the words after `domain`.
    pub(super) fn domain(&mut self) -> Parse<Command> {
        if self.keyword(DOMAIN, "action on domains")? == "del" {
            self.expect(Expect::Domain);
            return Ok(Command::DomainDel { name: self.name("a domain")? });
        }
        let name = self.name("a domain")?;
        let word = self.keyword(DOMAIN_KIND, "kind of the domain")?;
        let kind = DomainKind::ALL.into_iter().find(|kind| kind.word() == word).unwrap_or_default();
        let (mut buffers, mut on_failure) = (None, None);
        loop {
            self.expect(Expect::Words(DOMAIN_OPTIONS));
            let token = self.lex.peek();
            if token.tok == Tok::End {
                break;
            }
            let option = self.keyword(DOMAIN_OPTIONS, "option of a domain")?;
            let again = if option == "buffers" {
                let (least, most) = Domain::BUFFER_RANGE.into_inner();
                let number = self.number("number of buffers", least.into()..=most.into())?;
                buffers.replace(number as u32).is_some()
            } else {
                let word = self.keyword(ON_FAILURE, "treatment of packets")?;
                let how = if word == "pass" { OnFailure::Pass } else { OnFailure::Drop };
                on_failure.replace(how).is_some()
            };
            if again {
                return Err(Diagnostic::new(token.span, format!("the domain has `{option}` twice")));
            }
        }
        let buffers = buffers.unwrap_or(Domain::BUFFERS);
        let on_failure = on_failure.unwrap_or_default();
        Ok(Command::DomainAdd(Domain { name, kind, buffers, on_failure }))
    }

    /// The name of an existing instance.
    fn known_instance(&mut self) -> Parse<Word> {
        self.expect(Expect::Instance);
        self.instance("an instance")
    }

    /// The name of an instance. Keywords of rules are allowed (`nf add nat nat office`), since no rule names
    /// an instance. Keywords of chains are not.
    pub(super) fn instance(&mut self, what: &str) -> Parse<Word> {
        let token = self.lex.peek();
        let text = self.text(token);
        match token.tok {
            Tok::Word if is_body_word(text) => {
                let message = format!("{} is a keyword of chains and cannot name {what}", quote(text));
                let help =
                    "`drop` and `pass` are whole ways, `else` names one: [a, else: drop]; `then` is `|`";
                Err(Diagnostic::new(token.span, message).with_help(help))
            }
            Tok::Word if is_name(text) => {
                self.lex.next();
                Ok(Word { text: text.into(), span: token.span.into() })
            }
            _ => Err(self.no_name(what)),
        }
    }

    /// Parses the words after `chain`.
    pub(super) fn chain(&mut self) -> Parse<Command> {
        Ok(match self.keyword(CHAIN, "action on chains")? {
            "add" => Command::ChainAdd(self.whole_chain()?),
            "set" => {
                self.expect(Expect::Chain);
                Command::ChainSet(self.whole_chain()?)
            }
            _ => Command::ChainDel { name: self.chain_name()? },
        })
    }

    /// The name of an existing chain.
    pub(super) fn chain_name(&mut self) -> Parse<Word> {
        self.expect(Expect::Chain);
        self.name("a chain")
    }

    fn whole_chain(&mut self) -> Parse<Chain> {
        let name = self.name("a chain")?;
        let body = self.body(0, &mut 0)?;
        match self.peek() {
            Tok::End => Ok(Chain { name, body }),
            _ => Err(self.stray_in_chain()),
        }
    }

    /// Parses steps at bracket depth `depth`. `parts` counts functions and branches.
    fn body(&mut self, depth: usize, parts: &mut usize) -> Parse<Body> {
        let mut steps = vec![self.step(depth, parts)?];
        loop {
            self.expect(Expect::Words(PIPE));
            if !self.eat(Tok::Pipe) && !self.eat_word("then") {
                return Ok(Body(steps));
            }
            steps.push(self.step(depth, parts)?);
        }
    }

    fn step(&mut self, depth: usize, parts: &mut usize) -> Parse<Step> {
        // Completion offers nothing that a limit forbids.
        if *parts < Chain::MAX_PARTS {
            self.expect(Expect::Instance);
        }
        self.expect_bracket(depth);
        let token = self.lex.peek();
        let function = match token.tok {
            Tok::OpenArms => None,
            Tok::End => {
                let error = self.error_here("the name of a function is missing");
                return Err(error.with_help("`show functions` lists those that there are"));
            }
            Tok::Word => {
                self.part(parts)?;
                Some(self.instance("a function")?)
            }
            Tok::Pipe | Tok::Comma | Tok::CloseArms => {
                let text = quote(self.text(token));
                let error = self.error_here(format!("the name of a function is missing before {text}"));
                return Err(error.with_help(EXAMPLE));
            }
            _ => return Err(self.stray_in_chain()),
        };
        if function.is_some() {
            self.expect_bracket(depth);
        }
        if self.peek() != Tok::OpenArms {
            return Ok(Step { function, arms: Vec::new() });
        }
        if depth == Chain::MAX_DEPTH {
            let message = format!("brackets in a chain nest {} deep at most", Chain::MAX_DEPTH);
            return Err(self.error_here(message));
        }
        self.lex.next();
        let arms = self.arms(function.is_some(), depth + 1, parts)?;
        match self.peek() {
            Tok::CloseArms => {
                self.lex.next();
                Ok(Step { function, arms })
            }
            Tok::End => Err(self.error_here("a `]` is missing: the bracket is open")),
            _ => Err(self.stray_in_chain()),
        }
    }

    fn expect_bracket(&mut self, depth: usize) {
        if depth < Chain::MAX_DEPTH {
            self.expect(Expect::Words(BRACKET));
        }
    }

    fn part(&mut self, parts: &mut usize) -> Parse<()> {
        *parts += 1;
        if *parts <= Chain::MAX_PARTS {
            return Ok(());
        }
        let most = Chain::MAX_PARTS;
        Err(self
            .error_here(format!("a chain has {most} functions and branches at most, all brackets together")))
    }

    /// Parses the branches within brackets. `labelled`: the bracket follows a function.
    fn arms(&mut self, labelled: bool, depth: usize, parts: &mut usize) -> Parse<Vec<Branch>> {
        let mut arms: Vec<Branch> = Vec::new();
        loop {
            self.part(parts)?;
            if arms.last().is_some_and(Branch::is_else) {
                let error = self.error_here("no branch can follow `else:`");
                return Err(error.with_help("`else:` stands last"));
            }
            let label = self.label(labelled)?;
            // Before the body is read: completion offers nothing behind an error.
            check_label(&arms, label.as_ref())?;
            arms.push(self.arm(label, depth, parts)?);
            self.expect(Expect::Words(ARMS));
            if !self.eat(Tok::Comma) {
                return Ok(arms);
            }
        }
    }

    fn arm(&mut self, label: Option<Word>, depth: usize, parts: &mut usize) -> Parse<Branch> {
        self.expect(Expect::Words(ARM_ENDS));
        let (end, body) = if self.eat_word("drop") {
            (BranchEnd::Drop, Body::default())
        } else if self.eat_word("pass") {
            (BranchEnd::Join, Body::default())
        } else {
            (BranchEnd::Join, self.body(depth, parts)?)
        };
        Ok(Branch { label, end, body })
    }

    /// `LABEL:`.
    fn label(&mut self, labelled: bool) -> Parse<Option<Word>> {
        self.expect(Expect::Words(ELSE));
        let token = self.lex.peek();
        let text = self.text(token);
        if token.tok != Tok::Word || !self.lex.colon_follows() {
            if !labelled {
                return Ok(None);
            }
            let message = match token.tok {
                Tok::End => "the output of the function is missing".to_owned(),
                Tok::Comma | Tok::CloseArms => format!("a branch is missing before {}", quote(text)),
                _ => format!("a branch after a function needs the label of an output, found {}", quote(text)),
            };
            let help = "behind a function, branches are written [output: a | b, output: drop, output: pass]";
            return Err(self.error_here(message).with_help(help));
        }
        if !labelled && text != "else" {
            let message = format!("the output {} has no function in front of the bracket", quote(text));
            let help = "without a function only `else:` may stand before a branch; sessions take the first that fits";
            return Err(self.error_here(message).with_help(help));
        }
        if !is_name(text) {
            return Err(self.no_name("an output"));
        }
        self.lex.next();
        self.lex.next();
        Ok(Some(Word { text: text.into(), span: token.span.into() }))
    }

    fn stray_in_chain(&self) -> Diagnostic {
        let text = quote(self.text(self.lex.peek()));
        match self.peek() {
            Tok::Word => self.error_here(format!("{text} follows a function without `|` between them")),
            Tok::OpenText | Tok::Text => {
                self.error_here(format!("{text} cannot be a function: names have no quotes"))
            }
            _ => self.error_here(format!("unexpected {text}")),
        }
        .with_help(EXAMPLE)
    }
}

/// Checks that each output has one branch.
fn check_label(before: &[Branch], label: Option<&Word>) -> Parse<()> {
    let Some(label) = label else { return Ok(()) };
    if before.iter().any(|one| one.label.as_ref().is_some_and(|known| known.text == label.text)) {
        let message = format!("the output {} stands in the bracket twice", quote(label));
        return Err(Diagnostic::new(label.span.span(), message));
    }
    Ok(())
}
