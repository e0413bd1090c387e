//! Commands that show packets, live: `trace` and `capture`.

use super::{Expect, Parse, Parser};
use crate::ast::{CaptureSelection, Command, Match, SessionName};
use crate::diag::{Diagnostic, quote};
use crate::keyword::{CAPTURE, TRACE, is_target};
use crate::lex::Tok;

impl Parser<'_> {
    /// Matches, and limits in any order.
    pub(super) fn trace(&mut self) -> Parse<Command> {
        let (mut matches, mut why, mut count, mut seconds) = (Vec::new(), None, Command::TRACED, None);
        loop {
            self.expect_match();
            self.expect(Expect::Words(TRACE));
            if self.peek() == Tok::End {
                return Ok(Command::Trace { matches, why, count, seconds });
            }
            if self.eat_word("why") {
                why = Some(self.rule_ref()?);
            } else if self.eat_word("count") {
                count = self.number("number of packets", 1..=Command::MAX_TRACED.into())? as u32;
            } else if self.eat_word("seconds") {
                seconds = Some(self.seconds()?);
            } else {
                matches.push(self.packet_match("trace")?);
            }
        }
    }

    fn seconds(&mut self) -> Parse<u32> {
        Ok(self.number("time in seconds", 1..=CaptureSelection::MAX_SECONDS.into())? as u32)
    }

    /// A match of a command that takes no targets.
    fn packet_match(&mut self, command: &str) -> Parse<Match> {
        match self.peek_word().filter(|word| is_target(word)) {
            Some(word) => {
                let message = format!("{} is a target, and `{command}` takes matches only", quote(word));
                Err(self.error_here(message))
            }
            None => self.single_match(),
        }
    }

    /// Matches, and options in any order.
    pub(super) fn capture(&mut self) -> Parse<Command> {
        let (mut matches, mut selection) = (Vec::new(), CaptureSelection::default());
        loop {
            self.expect_match();
            self.expect(Expect::Words(CAPTURE));
            if self.peek() == Tok::End {
                return Ok(Command::Capture { matches, selection });
            }
            if self.eat_word("drops") {
                selection.drops = true;
            } else if self.eat_word("rule") {
                selection.rule = Some(self.rule_ref()?);
            } else if self.eat_word("session") {
                selection.session = Some(self.session_name()?);
            } else if self.eat_word("count") {
                let most = CaptureSelection::MAX_COUNT.into();
                selection.count = self.number("number of packets", 1..=most)? as u32;
            } else if self.eat_word("seconds") {
                selection.seconds = Some(self.seconds()?);
            } else {
                matches.push(self.packet_match("capture")?);
            }
        }
    }

    fn session_name(&mut self) -> Parse<SessionName> {
        let (text, span) = self.unbroken("the session")?;
        text.parse().map_err(|_| {
            let message = format!("invalid session {}", quote(&text));
            Diagnostic::new(span, message)
                .with_help("`show connections verbose` prints the ids of sessions, like 0.12.345")
        })
    }
}
