//! `broker add` and `broker del`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::{Expect, Parse, Parser};
use crate::ast::{Broker, Command};
use crate::diag::{Diagnostic, quote};
use crate::keyword::{BROKER, BROKER_CHAIN, BROKER_LISTEN, BROKER_OPTIONS};
use crate::lex::Tok;

const HELP: &str = "broker add <name> listen <address>:<port> chain <chain> [<option> <number>] …";

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
        self.keyword(BROKER_LISTEN, "word after the name of a broker")?;
        let listen = self.socket_address()?;
        self.keyword(BROKER_CHAIN, "word after the address of a broker")?;
        let chain = self.chain_name()?;
        let mut options = BTreeMap::new();
        loop {
            self.expect(Expect::BrokerOption);
            let token = self.lex.peek();
            if token.tok == Tok::End {
                return Ok(Broker { name, listen, chain, options });
            }
            let words = BROKER_OPTIONS.iter().map(|(_, keyword)| keyword.word);
            let index = self.choice(words, "option of a broker")?;
            let option = BROKER_OPTIONS[index].0;
            let number =
                self.number(&format!("value of `{}`", option.word()), option.min()..=option.max())?;
            if options.insert(option, number).is_some() {
                return Err(Diagnostic::new(token.span, format!("the broker has `{}` twice", option.word())));
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
