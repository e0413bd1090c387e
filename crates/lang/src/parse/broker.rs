//! `broker add` and `broker del`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::{Expect, Parse, Parser};
use crate::ast::{Broker, Command, Word};
use crate::diag::{Diagnostic, quote};
use crate::keyword::{BROKER, BROKER_OPTIONS, BROKER_WORDS};
use crate::lex::Tok;

const HELP: &str = "broker add <name> [listen <address>:<port>] [transparent [keep-source]] chain <chain> [<option> <number>] …";

impl Parser<'_> {
    /// Parses the words after `broker`.
    pub(super) fn broker(&mut self) -> Parse<Command> {
        Ok(match self.keyword(BROKER, "action on brokers")? {
            "add" => Command::BrokerAdd(self.whole_broker()?),
            _ => {
                self.expect(Expect::Broker);
                Command::BrokerDel { name: self.instance("a broker")? }
            }
        })
    }

    fn whole_broker(&mut self) -> Parse<Broker> {
        let name = self.instance("a broker")?;
        let mut broker = self.entrances(name)?;
        broker.chain = self.chain_name()?;
        loop {
            self.expect(Expect::BrokerOption);
            let token = self.lex.peek();
            if token.tok == Tok::End {
                return Ok(broker);
            }
            let words = BROKER_OPTIONS.iter().map(|(_, keyword)| keyword.word);
            let index = self.choice(words, "option of a broker")?;
            let option = BROKER_OPTIONS[index].0;
            let number =
                self.number(&format!("value of `{}`", option.word()), option.min()..=option.max())?;
            if broker.options.insert(option, number).is_some() {
                return Err(Diagnostic::new(token.span, format!("the broker has `{}` twice", option.word())));
            }
        }
    }

    /// `[listen ADDRESS:PORT] [transparent [keep-source]] chain`: at least one of the two, in this order. The
    /// chain is left empty.
    fn entrances(&mut self, name: Word) -> Parse<Broker> {
        let chain = Word::from("");
        let (listen, is_transparent, keeps_source) = (None, false, false);
        let mut broker =
            Broker { name, listen, is_transparent, keeps_source, chain, options: BTreeMap::new() };
        let (mut words, mut what) = (&BROKER_WORDS[..2], "word after the name of a broker");
        loop {
            match self.keyword(words, what)? {
                "listen" => {
                    broker.listen = Some(self.socket_address()?);
                    (words, what) = (&BROKER_WORDS[1..3], "word after the address of a broker");
                }
                "transparent" => {
                    broker.is_transparent = true;
                    (words, what) = (&BROKER_WORDS[2..], "word after `transparent`");
                }
                "keep-source" => {
                    broker.keeps_source = true;
                    (words, what) = (&BROKER_WORDS[2..3], "word after `keep-source`");
                }
                _ => return Ok(broker),
            }
        }
    }

    /// `ADDRESS:PORT`; an IPv6 address in brackets.
    fn socket_address(&mut self) -> Parse<SocketAddr> {
        let (text, span) =
            self.unbroken("the address of the broker").map_err(|error| error.with_help(HELP))?;
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() != 0 => Ok(address),
            _ => Err(Diagnostic::new(span, format!("{} is not an address with a port", quote(&text)))
                .with_help(
                    "write 192.0.2.1:80 or [2001:db8::1]:80; 0.0.0.0:80 and [::]:80 stand for all addresses",
                )),
        }
    }
}
