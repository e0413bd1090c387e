//! Brokers, and the chains that they use.

use std::net::SocketAddr;
use std::sync::Arc;

use mmb_broker::Settings;
use mmb_lang::{Broker, BrokerOption, Command, SourceSpan, Word};
use mmb_nf::Instance;

use super::chains::unknown;
use super::{Chains, Config};
use crate::error::CommandError;

/// Most brokers. Each has a thread.
const MAX_BROKERS: usize = 64;
/// The first port that any process may listen on.
const FIRST_FREE_PORT: u16 = 1024;
/// Milliseconds in a second.
const SECOND: u64 = 1000;

/// The brokers, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Brokers(Vec<Broker>);

impl Brokers {
    /// The brokers.
    pub fn all(&self) -> &[Broker] {
        &self.0
    }

    /// The lines of a file with these brokers.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|broker| Command::BrokerAdd(broker.clone()).to_string())
    }

    /// Whether a broker needs the right to listen on a port below 1024.
    pub fn has_low_ports(&self) -> bool {
        self.0.iter().any(|broker| is_low(broker.listen))
    }
}

/// Whether only privileged processes may listen on a port.
pub(crate) fn is_low(address: SocketAddr) -> bool {
    address.port() < FIRST_FREE_PORT
}

/// The limits and times of a broker.
pub(crate) fn settings(broker: &Broker) -> Settings {
    let mut settings = Settings::default();
    for (option, &number) in &broker.options {
        let time = match option {
            BrokerOption::Connections => {
                settings.connections = number as usize;
                continue;
            }
            BrokerOption::SourceConnections => {
                settings.source_connections = number as usize;
                continue;
            }
            BrokerOption::BodyLimit => {
                settings.body_limit = Some(number);
                continue;
            }
            BrokerOption::HeaderTimeout => &mut settings.header_timeout,
            BrokerOption::IdleTimeout => &mut settings.idle_timeout,
            BrokerOption::ConnectTimeout => &mut settings.connect_timeout,
            BrokerOption::ResponseTimeout => &mut settings.response_timeout,
            BrokerOption::TunnelTimeout => &mut settings.tunnel_timeout,
        };
        *time = number * SECOND;
    }
    settings
}

impl Chains {
    /// The functions of a chain of brokers. Empty: there is no such chain.
    pub fn l7_functions(&self, chain: &str) -> Vec<Arc<Instance>> {
        let program = self.program();
        program.chain(chain).map(|id| program.l7_functions(id)).unwrap_or_default()
    }
}

impl Config {
    /// The brokers.
    pub fn brokers(&self) -> &Brokers {
        &self.brokers
    }

    /// `broker add`.
    pub fn insert_broker(&mut self, broker: &Broker) -> Result<(), CommandError> {
        let Broker { name, listen, chain, .. } = broker;
        if self.brokers.0.iter().any(|other| *other.name == **name) {
            let message = format!("there is a broker `{}` already", &**name);
            return Err(
                CommandError::conflict(message, name.span).help(format!("`broker del {}` first", &**name))
            );
        }
        if let Some(other) = self.brokers.0.iter().find(|other| other.listen == *listen) {
            let message = format!("broker `{}` listens on {listen} already", &*other.name);
            return Err(CommandError::conflict(message, SourceSpan::default()));
        }
        if self.brokers.0.len() >= MAX_BROKERS {
            let message = format!("there are {MAX_BROKERS} brokers already, which is the maximum");
            return Err(CommandError::conflict(message, SourceSpan::default()));
        }
        if self.chains.class(chain).is_none() {
            return Err(self.unknown_chain(chain));
        }
        self.check_broker_chain(broker, chain)?;
        Arc::make_mut(&mut self.brokers).0.push(broker.clone());
        Ok(())
    }

    /// `broker del`.
    pub fn delete_broker(&mut self, name: &Word) -> Result<(), CommandError> {
        let at = self.brokers.0.iter().position(|broker| *broker.name == **name);
        let Some(at) = at else {
            let known: Vec<&str> = self.brokers.0.iter().map(|broker| &*broker.name.text).collect();
            let add = || format!("`broker add {} listen ADDRESS:PORT chain CHAIN`", &**name);
            return Err(unknown("broker", name, &known, add));
        };
        Arc::make_mut(&mut self.brokers).0.remove(at);
        Ok(())
    }

    fn check_broker_chain(&self, broker: &Broker, at: &Word) -> Result<(), CommandError> {
        if !self.chains.l7_functions(&broker.chain).is_empty() {
            return Ok(());
        }
        let (name, chain) = (&*broker.name, &*broker.chain);
        let message = format!("broker `{name}` cannot use chain `{chain}`, whose functions work on packets");
        let help =
            "a chain of brokers has `proxy`, `url-rewrite` or `respond`: `nf add lb proxy 192.0.2.10:80`";
        Err(CommandError::conflict(message, at.span).help(help.to_owned()))
    }

    /// Checks that brokers can use their chains.
    pub(super) fn check_broker_chains(&self) -> Result<(), CommandError> {
        let none = Word::from("");
        self.brokers.0.iter().try_for_each(|broker| self.check_broker_chain(broker, &none))
    }

    /// Checks that no broker uses a chain.
    pub(super) fn check_chain_without_broker(&self, chain: &Word) -> Result<(), CommandError> {
        let user = self.brokers.0.iter().find(|broker| *broker.chain == **chain);
        user.map_or(Ok(()), |broker| {
            let message = format!("chain `{}` is used by broker `{}`", &**chain, &*broker.name);
            let help = format!("`broker del {}` first", &*broker.name);
            Err(CommandError::conflict(message, chain.span).help(help))
        })
    }

    /// Checks that rules can use a chain.
    pub(super) fn check_packet_chain(&self, chain: &str) -> Result<(), CommandError> {
        if self.chains.l7_functions(chain).is_empty() {
            return Ok(());
        }
        let message = format!("rules cannot use chain `{chain}`, whose functions work in brokers");
        let help = format!("`broker add NAME listen ADDRESS:PORT chain {chain}` uses it");
        Err(CommandError::conflict(message, SourceSpan::default()).help(help))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(lines: &[&str]) -> Result<Config, String> {
        let text = lines.join("\n");
        super::super::file::load(text.as_bytes(), &Config::new())
            .map_err(|refusal| refusal.into_reply().error)
    }

    const LINES: [&str; 5] = [
        "nf add lb proxy 192.0.2.10:80 192.0.2.11:80*2 check http /health",
        "nf add urls url-rewrite ^/old/(.*) /new/$1",
        "nf add stats count",
        "chain add site urls | lb",
        "chain add inside stats",
    ];

    fn with(line: &str) -> Result<Config, String> {
        config(&[&LINES[..], &[line]].concat())
    }

    #[test]
    fn a_broker_is_a_line_of_the_file() {
        let line = "broker add web listen [2001:db8::1]:80 chain site connections 7 header-timeout 3";
        let config = with(line).unwrap();
        assert_eq!(config.brokers().lines().collect::<Vec<_>>(), [line]);
        let settings = settings(&config.brokers().all()[0]);
        let expected = Settings { connections: 7, header_timeout: 3000, ..Settings::default() };
        assert_eq!(settings, expected);
        assert_eq!(config.chains().l7_functions("site").len(), 2);
        assert!(config.brokers().has_low_ports());
    }

    #[test]
    fn chains_and_their_users_are_of_one_kind() {
        let start = "broker add web listen 10.0.0.1:8080 chain";
        for (lines, named) in [
            (&["broker add web listen 10.0.0.1:8080 chain none"][..], "no chain `none`"),
            (&["broker add web listen 10.0.0.1:8080 chain inside"], "cannot use chain `inside`"),
            (&["add-stateful tcp-dport 80 chain site"], "rules cannot use chain `site`"),
            (&["chain add mixed lb | stats"], "`stats` works on packets, and `lb` in brokers"),
            (&["chain add forked [urls, else: pass]"], "plain list"),
            (
                &["nf add more proxy 10.0.0.1", "chain add two lb | more"],
                "`lb` and `more` both choose servers",
            ),
            (&["chain add twice urls | urls"], "stands twice"),
        ] {
            let error = config(&[&LINES[..], lines].concat()).err().unwrap();
            assert!(error.contains(named), "{lines:?}: {error}");
        }
        let two = |name: &str, port: u16| format!("broker add {name} listen 10.0.0.1:{port} chain site");
        for (second, named) in
            [(two("web", 81), "`web` already"), (two("other", 80), "listens on 10.0.0.1:80")]
        {
            let error = config(&[&LINES[..], &[&two("web", 80), &second]].concat()).err().unwrap();
            assert!(error.contains(named), "{error}");
        }
        let mut config = with(&format!("{start} site")).unwrap();
        let chain = |line: &str| match mmb_lang::parse_line(line) {
            Ok(Some(Command::ChainSet(chain))) => chain,
            other => panic!("{other:?}"),
        };
        let error = config.clone().set_chain(&chain("chain set site stats")).unwrap_err();
        assert!(error.diagnostic.message.contains("broker `web` cannot use"), "{error:?}");
        assert!(config.set_chain(&chain("chain set site lb")).is_ok());
        let error = config.delete_chain(&Word::from("site")).unwrap_err();
        assert!(error.diagnostic.message.contains("used by broker `web`"), "{error:?}");
        let error = config.delete_broker(&Word::from("wen")).unwrap_err();
        assert!(error.diagnostic.message.contains("no broker `wen`"), "{error:?}");
        assert!(config.delete_broker(&Word::from("web")).is_ok());
        assert!(config.delete_chain(&Word::from("site")).is_ok());
    }
}
