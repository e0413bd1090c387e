//! What lines of the language say about rules and NAT, as values for the engine.

use mmb_flow::{Filtering, ForwardConfig, NatConfig, PoolConfig, Proto, Settings};
use mmb_lang::{Command, NatForward, NatPool, NatProto, Socket4, parse_line};
use mmb_policy::Policy;

use crate::Rules;

/// A pool for the engine.
///
/// # Errors
/// As [`PoolConfig`]'s functions.
pub fn pool_config(pool: &NatPool) -> Result<PoolConfig, String> {
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

/// A forward for the engine.
///
/// # Errors
/// As [`ForwardConfig::new`].
pub fn forward_config(forward: &NatForward) -> Result<ForwardConfig, String> {
    let proto = match forward.proto {
        NatProto::Tcp => Proto::Tcp,
        NatProto::Udp => Proto::Udp,
    };
    let end = |socket: Socket4| (socket.address, socket.port);
    ForwardConfig::new(proto, end(forward.outside), end(forward.inside))
}

impl Rules {
    /// Rules, pools and forwards, a line each; the interface `port7` is port 7. Rules with the same text as some `before`
    /// keep their identity.
    ///
    /// # Errors
    /// What is wrong with the first line that is not good, and the line.
    pub fn read<L: AsRef<str>>(
        lines: &[L],
        settings: Settings,
        before: Option<&Policy>,
    ) -> Result<Rules, String> {
        let (mut rules, mut pools, mut forwards) = (Vec::new(), Vec::new(), Vec::new());
        for line in lines.iter().map(AsRef::as_ref) {
            let said = match parse_line(line) {
                Ok(Some(Command::Add(rule))) => {
                    rules.push(rule);
                    Ok(())
                }
                Ok(Some(Command::NatPoolAdd(said))) => pool_config(&said).map(|pool| pools.push(pool)),
                Ok(Some(Command::NatForwardAdd(said))) => forward_config(&said).map(|one| forwards.push(one)),
                Ok(_) => Err("neither a rule nor a pool nor a forward".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            said.map_err(|message| format!("{line}: {message}"))?;
        }
        let port = |name: &str| name.strip_prefix("port").and_then(|n| n.parse().ok());
        let none = Policy::new();
        let policy = before.unwrap_or(&none).replace(&rules, &port);
        let policy = policy.map_err(|(at, error)| format!("{}: {error}", rules[at]))?;
        Ok(Rules::new(policy, NatConfig::new(pools, forwards)?, settings))
    }
}
