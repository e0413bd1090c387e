//! Rules, NAT and chains of configuration lines, as values for the engine.

use std::sync::Arc;

use mmb_flow::{Filtering, ForwardConfig, NatConfig, NatConfigError, PoolConfig, PortProto, SessionSettings};
use mmb_lang::{Chain, Command, Endpoint4, NatForward, NatPool, NatProto, NfAdd, Rule, parse_line};
use mmb_nf::{Order, Program, ProgramSpec, Registry};
use mmb_policy::Policy;

use crate::Rules;

/// What functions choose with.
const SEED: u64 = 42;

/// Returns the engine's configuration of a pool.
///
/// # Errors
/// As [`PoolConfig`]'s functions.
pub fn pool_config(pool: &NatPool) -> Result<PoolConfig, NatConfigError> {
    let ([first, last], [low, high]) = (pool.addresses, pool.ports);
    let mut config = PoolConfig::new(&pool.name, first, last)?.with_ports(low, high)?;
    if let Some(size) = pool.block {
        config = config.with_block(size)?;
    }
    if let Some(limit) = pool.limit {
        config = config.with_limit(limit)?;
    }
    Ok(config.with_filtering(match pool.filtering {
        mmb_lang::Filtering::EndpointIndependent => Filtering::EndpointIndependent,
        mmb_lang::Filtering::AddressDependent => Filtering::AddressDependent,
        mmb_lang::Filtering::AddressAndPortDependent => Filtering::AddressAndPortDependent,
    }))
}

/// Returns the engine's configuration of a forward.
///
/// # Errors
/// As [`ForwardConfig::new`].
pub fn forward_config(forward: &NatForward) -> Result<ForwardConfig, NatConfigError> {
    let proto = match forward.proto {
        NatProto::Tcp => PortProto::Tcp,
        NatProto::Udp => PortProto::Udp,
    };
    let end = |socket: Endpoint4| (socket.address, socket.port);
    ForwardConfig::new(proto, end(forward.outside), end(forward.inside))
}

impl Rules {
    /// Rules, pools, forwards and chains of functions `flow`, a line each; the interface `port7` is port 7.
    /// Rules with the same text as some `before` keep their identity.
    ///
    /// # Errors
    /// What is wrong with the first line that is not good, and the line.
    pub fn read<L: AsRef<str>>(
        lines: &[L],
        settings: SessionSettings,
        before: Option<&Policy>,
    ) -> Result<Rules, String> {
        let (policy, chains) = Default::default();
        Rules::read_after(lines, settings, (before.unwrap_or(&policy), &chains), &Registry::default(), 1)
    }

    /// Reads lines as [`Rules::read`], with these function types and this number of workers. Functions with
    /// the same name, type and words as one in `before` keep their identity.
    ///
    /// # Errors
    /// As [`Rules::read`].
    pub fn read_with<L: AsRef<str>>(
        lines: &[L],
        settings: SessionSettings,
        before: Option<&Rules>,
        registry: &Registry,
        workers: u16,
    ) -> Result<Rules, String> {
        let none = Rules::default();
        let before = before.unwrap_or(&none);
        Rules::read_after(lines, settings, (&before.policy, &before.chains), registry, workers)
    }

    fn read_after<L: AsRef<str>>(
        lines: &[L],
        settings: SessionSettings,
        (policy, chains): (&Policy, &Program),
        registry: &Registry,
        workers: u16,
    ) -> Result<Rules, String> {
        let mut said = Said::default();
        for line in lines.iter().map(AsRef::as_ref) {
            said.hear(line).map_err(|message| format!("{line}: {message}"))?;
        }
        let port = |name: &str| name.strip_prefix("port").and_then(|n| n.parse().ok());
        let pools: Vec<String> = said.pools.iter().map(|pool| pool.name().to_owned()).collect();
        let program = Program::compile(&ProgramSpec {
            functions: &said.functions,
            chains: &said.chains,
            registry,
            resolve_port: &port,
            has_pool: &|name| pools.iter().any(|pool| pool == name),
            workers,
            seed: SEED,
            previous: Some(chains),
            scratchpad_limit: Rules::SCRATCHPAD,
            order: Order::Maximal,
        });
        let program = program.map_err(|error| error.to_string())?;
        let class = |name: &str| program.chain(name).map(|chain| program.class(chain).to_vec());
        let policy = policy.replace_with(&said.rules, &port, &class);
        let policy = policy.map_err(|(at, error)| format!("{}: {error}", said.rules[at]))?;
        let mut rules = Rules::new(
            policy,
            NatConfig::new(said.pools, said.forwards).map_err(|error| error.to_string())?,
            settings,
        );
        rules.chains = Arc::new(program);
        Ok(rules)
    }
}

/// What lines have said.
#[derive(Default)]
struct Said {
    rules: Vec<Rule>,
    pools: Vec<PoolConfig>,
    forwards: Vec<ForwardConfig>,
    functions: Vec<NfAdd>,
    chains: Vec<Chain>,
}

impl Said {
    fn hear(&mut self, line: &str) -> Result<(), String> {
        match parse_line(line).map_err(|error| error.to_string())? {
            Some(Command::Add(rule)) => self.rules.push(rule),
            Some(Command::NatPoolAdd(said)) => {
                self.pools.push(pool_config(&said).map_err(|error| error.to_string())?)
            }
            Some(Command::NatForwardAdd(said)) => {
                self.forwards.push(forward_config(&said).map_err(|error| error.to_string())?)
            }
            Some(Command::NfAdd(function)) => self.functions.push(function),
            Some(Command::ChainAdd(chain)) => self.chains.push(chain),
            _ => return Err("neither a rule nor a pool nor a forward nor a function nor a chain".to_owned()),
        }
        Ok(())
    }
}
