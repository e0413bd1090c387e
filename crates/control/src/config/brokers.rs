//! Brokers, and the chains that they use.

use std::net::SocketAddr;
use std::sync::Arc;

use mmb_broker::Settings;
use mmb_dataplane::PortId;
use mmb_lang::{Broker, BrokerOption, Command, Rule, SourceSpan, Word};
use mmb_nf::Instance;
use mmb_policy::{RuleView, broker_port_name};

use super::chains::unknown;
use super::interfaces::no_free_port;
use super::{Chains, Config, Interface, interfaces, references};
use crate::error::CommandError;

/// Most brokers. Each has a thread.
const MAX_BROKERS: usize = 64;
/// The first port that any process may listen on.
const FIRST_FREE_PORT: u16 = 1024;
/// Milliseconds in a second.
const SECOND: u64 = 1000;

/// The brokers, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Brokers(Vec<Configured>);

/// A broker, and the port that leads to it if it is transparent.
#[derive(Clone, Debug)]
struct Configured {
    broker: Broker,
    port: Option<PortId>,
}

/// Where connections of a broker come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entrance {
    /// An address of the machine.
    Listen(SocketAddr),
    /// A port of the engine, with connections to any address.
    Transparent {
        /// The port.
        port: PortId,
        /// Servers see the addresses of the clients.
        keeps_source: bool,
    },
}

impl Brokers {
    /// The brokers.
    pub fn all(&self) -> impl Iterator<Item = &Broker> {
        self.0.iter().map(|one| &one.broker)
    }

    /// The lines of a file with these brokers.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.all().map(|broker| Command::BrokerAdd(broker.clone()).to_string())
    }

    /// Whether a broker needs the right to listen on a port below 1024.
    pub fn has_low_ports(&self) -> bool {
        self.all().filter_map(|broker| broker.listen).any(is_low)
    }

    /// The broker with this name.
    fn get(&self, name: &str) -> Option<&Broker> {
        self.all().find(|broker| *broker.name == *name)
    }

    /// The port that leads to a transparent broker.
    fn port(&self, name: &str) -> Option<PortId> {
        self.0.iter().find(|one| *one.broker.name == *name)?.port
    }

    /// The ports that lead to transparent brokers.
    pub(super) fn ports(&self) -> impl Iterator<Item = PortId> {
        self.0.iter().filter_map(|one| one.port)
    }

    /// Where the connections of brokers come from.
    pub(crate) fn entrances(&self) -> impl Iterator<Item = (&Broker, Entrance)> {
        self.0.iter().flat_map(|Configured { broker, port }| {
            let keeps_source = broker.keeps_source;
            let transparent = port.map(|port| Entrance::Transparent { port, keeps_source });
            let entrances = [broker.listen.map(Entrance::Listen), transparent];
            entrances.into_iter().flatten().map(move |entrance| (broker, entrance))
        })
    }

    /// The port id of an interface, or of a broker by [`broker_port_name`].
    pub(super) fn port_of(&self, interfaces: &[Interface], name: &str) -> Option<u16> {
        let is_own = |one: &&Configured| broker_port_name(&one.broker.name) == *name;
        interfaces::port_of(interfaces, name).or_else(|| self.0.iter().find(is_own)?.port.map(|port| port.0))
    }
}

/// Whether only privileged processes may listen on a port.
pub(crate) fn is_low(address: SocketAddr) -> bool {
    address.port() < FIRST_FREE_PORT
}

/// The limits and times of an entrance of a broker.
pub(crate) fn settings(broker: &Broker, entrance: Entrance) -> Settings {
    let keeps_source = matches!(entrance, Entrance::Transparent { keeps_source: true, .. });
    let mut settings = Settings { keeps_source, ..Settings::default() };
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

    /// `broker add`. A transparent broker gets the port that it has in `earlier`.
    pub fn insert_broker(&mut self, broker: &Broker, earlier: Option<&Config>) -> Result<(), CommandError> {
        let Broker { name, listen, chain, .. } = broker;
        if self.brokers.get(name).is_some() {
            let message = format!("there is a broker `{}` already", &**name);
            return Err(
                CommandError::conflict(message, name.span).help(format!("`broker del {}` first", &**name))
            );
        }
        if let Some(address) = listen
            && let Some(other) = self.brokers.all().find(|other| other.listen == *listen)
        {
            let message = format!("broker `{}` listens on {address} already", &*other.name);
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
        let port = match broker.is_transparent {
            true => {
                let keep = earlier.and_then(|earlier| earlier.brokers.port(name));
                Some(self.hidden_port(keep, earlier).ok_or_else(|| no_free_port(name.span))?)
            }
            false => None,
        };
        Arc::make_mut(&mut self.brokers).0.push(Configured { broker: broker.clone(), port });
        Ok(())
    }

    /// `broker del`.
    pub fn delete_broker(&mut self, name: &Word) -> Result<(), CommandError> {
        let at = self.brokers.all().position(|broker| *broker.name == **name);
        let Some(at) = at else { return Err(self.unknown_broker(name)) };
        let uses = |view: &RuleView<'_>| {
            view.text.contains(&**name)
                && view.rule().is_ok_and(|rule| references::brokers(&rule).any(|used| **used == **name))
        };
        if let Some(view) = self.policy.rules().find(uses) {
            let message = format!("broker `{}` is used by rule {} (`{}`)", &**name, view.index, view.text);
            let error = CommandError::conflict(message, name.span);
            return Err(error.help(format!("`del {}` first", view.index)));
        }
        Arc::make_mut(&mut self.brokers).0.remove(at);
        Ok(())
    }

    fn unknown_broker(&self, name: &Word) -> CommandError {
        let known: Vec<&str> = self.brokers.all().map(|broker| &*broker.name.text).collect();
        let add = || format!("`broker add {} listen ADDRESS:PORT chain CHAIN`", &**name);
        unknown("broker", name, &known, add)
    }

    /// Checks that rules can send connections to their brokers.
    pub(super) fn check_brokers(&self, rule: &Rule) -> Result<(), CommandError> {
        for name in references::brokers(rule) {
            let broker = self.brokers.get(name).ok_or_else(|| self.unknown_broker(name))?;
            if !broker.is_transparent {
                let message =
                    format!("broker `{}` is not transparent: it only listens on an address", &**name);
                let help = format!("`broker add {} transparent chain {}`", &**name, &*broker.chain);
                return Err(CommandError::conflict(message, name.span).help(help));
            }
            let is_wired = |input: &&Word| self.interface(input).is_some_and(|one| one.peer.is_some());
            if let Some(input) = references::inputs(rule).find(is_wired) {
                let message = format!(
                    "interface `{}` is wired, and a broker has no route to the ends of a wire",
                    &**input
                );
                let help = "connections to brokers come in by routed interfaces: `route add INTERFACE`";
                return Err(CommandError::conflict(message, input.span).help(help.to_owned()));
            }
        }
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
        self.brokers.all().try_for_each(|broker| self.check_broker_chain(broker, &none))
    }

    /// Checks that no broker uses a chain.
    pub(super) fn check_chain_without_broker(&self, chain: &Word) -> Result<(), CommandError> {
        let user = self.brokers.all().find(|broker| *broker.chain == **chain);
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
        let (broker, entrance) = config.brokers().entrances().next().unwrap();
        let settings = settings(broker, entrance);
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

    #[test]
    fn rules_name_transparent_brokers() {
        let all = "broker add all transparent keep-source chain site";
        let both = "broker add both listen 10.0.0.1:80 transparent chain site";
        let web = "broker add web listen 10.0.0.2:80 chain site";
        let wired = ["interface add a null", "interface add b null", "wire a b", "interface add c null"];
        let of = |rule| config(&[&LINES[..], &wired, &[all, both, web, "route c", rule]].concat());
        let config = of("add in c tcp-dport 80 broker all").unwrap();
        assert_eq!(config.brokers().lines().collect::<Vec<_>>(), [all, both, web]);
        let entrances: Vec<_> = config.brokers().entrances().map(|(_, entrance)| entrance).collect();
        let [Entrance::Transparent { port, keeps_source: true }, Entrance::Listen(_), ..] = entrances[..]
        else {
            panic!("{entrances:?}")
        };
        assert_eq!(entrances.len(), 4);
        assert_eq!(config.port_of(&broker_port_name("all")), Some(port.0));
        assert_eq!(config.port_of(&broker_port_name("web")), None);
        let slot = config.policy().rule(1).unwrap().slot;
        assert_eq!(config.policy().stateful(slot).unwrap().broker, Some(port.0));
        assert_eq!(config.policy().rule(1).unwrap().text, "add in c tcp-dport 80 broker all");
        for (rule, named) in [
            ("add tcp-dport 80 broker none", "no broker `none`"),
            ("add tcp-dport 80 broker web", "`web` is not transparent"),
            ("add in a tcp-dport 80 broker all", "interface `a` is wired"),
            ("add udp-dport 80 broker all", "this rule matches none"),
        ] {
            let error = of(rule).err().unwrap();
            assert!(error.contains(named), "{rule}: {error}");
        }
        assert!(of("add ! in a tcp-dport 80 broker all").is_ok());
        // The port of a broker stays, and a broker stays while a rule names it.
        let text = super::super::file::text(&config).replace("keep-source ", "");
        let next = super::super::file::load(text.as_bytes(), &config).map_err(|_| ()).unwrap();
        assert_eq!(next.port_of(&broker_port_name("all")), Some(port.0));
        let mut config = config;
        let error = config.delete_broker(&Word::from("all")).unwrap_err();
        assert!(error.diagnostic.message.contains("used by rule 1"), "{error:?}");
    }
}
