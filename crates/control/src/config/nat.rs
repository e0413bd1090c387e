//! NAT pools and port forwards.
//!
//! They are few and change rarely. Each change makes a new list, in the order in which they were added.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use mmb_flow::NatConfig;
use mmb_lang::{Command, Endpoint4, NatForward, NatPool, NatProto, SourceSpan, Word};
use mmb_policy::{forward_config, pool_config};

use crate::error::CommandError;

/// Maximum number of forwards. Adding more one by one would take too long.
const MAX_FORWARDS: usize = 4096;

/// Pools and forwards, each in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Nat {
    pools: Vec<NatPool>,
    forwards: Vec<NatForward>,
    compiled: Arc<NatConfig>,
}

impl Nat {
    /// The pools.
    pub fn pools(&self) -> &[NatPool] {
        &self.pools
    }

    /// The forwards.
    pub fn forwards(&self) -> &[NatForward] {
        &self.forwards
    }

    /// The pool with this name.
    pub fn pool(&self, name: &str) -> Option<&NatPool> {
        self.pools.iter().find(|p| *p.name == *name)
    }

    /// The configuration of the engine.
    pub fn compiled(&self) -> &Arc<NatConfig> {
        &self.compiled
    }

    /// The outside addresses of pools and forwards.
    pub fn outside(&self) -> Vec<RangeInclusive<IpAddr>> {
        let pools = self.pools.iter().map(|p| p.addresses);
        let forwards = self.forwards.iter().map(|f| [f.outside.address; 2]);
        pools.chain(forwards).map(|[first, last]| first.into()..=last.into()).collect()
    }

    /// Adds a pool. On an error this value must be dropped.
    ///
    /// # Errors
    /// The name is in use, or the pool overlaps with another pool.
    pub fn add_pool(&mut self, pool: &NatPool) -> Result<(), CommandError> {
        let name = &pool.name;
        if self.pool(name).is_some() {
            let message = format!("there is a NAT pool `{}` already", &**name);
            return Err(
                CommandError::conflict(message, name.span).help(format!("`nat pool del {}` first", &**name))
            );
        }
        self.pools.push(pool.clone());
        self.compile(name.span)
    }

    /// Deletes a pool that no rule uses.
    ///
    /// # Errors
    /// There is no such pool.
    pub fn delete_pool(&mut self, name: &Word) -> Result<(), CommandError> {
        let at = self.pools.iter().position(|p| *p.name == **name);
        self.pools.remove(at.ok_or_else(|| self.unknown_pool(name))?);
        self.compile(name.span)
    }

    /// Adds a forward. On an error this value must be dropped.
    ///
    /// # Errors
    /// The outside address and port are in use, or there are too many forwards.
    pub fn add_forward(&mut self, forward: &NatForward) -> Result<(), CommandError> {
        let NatForward { proto, outside, .. } = forward;
        if let Some(other) = self.forward(*proto, *outside) {
            let message = format!("{proto} {outside} is forwarded to {} already", other.inside);
            let error = CommandError::conflict(message, SourceSpan::default());
            return Err(error.help(format!("`nat forward del {proto} {outside}` first")));
        }
        if self.forwards.len() >= MAX_FORWARDS {
            let message = format!("there are {MAX_FORWARDS} forwards already, which is the maximum");
            return Err(CommandError::conflict(message, SourceSpan::default()));
        }
        self.forwards.push(*forward);
        self.compile(SourceSpan::default())
    }

    /// Deletes a forward.
    ///
    /// # Errors
    /// There is no such forward.
    pub fn delete_forward(&mut self, proto: NatProto, outside: Endpoint4) -> Result<(), CommandError> {
        let at = self.forwards.iter().position(|f| f.proto == proto && f.outside == outside);
        let missing = || {
            let message = format!("{proto} {outside} is not forwarded");
            CommandError::not_found(message, SourceSpan::default())
                .help("`show nat` lists the forwards".to_owned())
        };
        self.forwards.remove(at.ok_or_else(missing)?);
        self.compile(SourceSpan::default())
    }

    fn forward(&self, proto: NatProto, outside: Endpoint4) -> Option<&NatForward> {
        self.forwards.iter().find(|f| f.proto == proto && f.outside == outside)
    }

    /// The error for a pool that does not exist.
    pub fn unknown_pool(&self, name: &Word) -> CommandError {
        let message = format!("there is no NAT pool `{}`", &**name);
        let error = CommandError::not_found(message, name.span);
        let known: Vec<&str> = self.pools.iter().map(|p| &*p.name.text).collect();
        match known.as_slice() {
            [] => error.help("add it first: `nat pool add NAME ADDRESS[-ADDRESS] …`".to_owned()),
            known => error.help(format!("there are: {}", known.join(", "))),
        }
    }

    /// Compiles the configuration of the engine. Errors are placed at `at`.
    fn compile(&mut self, at: SourceSpan) -> Result<(), CommandError> {
        let pools = self.pools.iter().map(pool_config).collect::<Result<_, _>>();
        let forwards = self.forwards.iter().map(forward_config).collect::<Result<_, _>>();
        let config = pools.and_then(|pools| NatConfig::new(pools, forwards?));
        self.compiled = Arc::new(config.map_err(|error| CommandError::conflict(error.to_string(), at))?);
        Ok(())
    }

    /// The lines of a file with these pools and forwards.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let pools = self.pools.iter().map(|p| Command::NatPoolAdd(p.clone()).to_string());
        pools.chain(self.forwards.iter().map(|f| Command::NatForwardAdd(*f).to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs lines. The error is the message of the first line that is refused.
    fn run(lines: &[&str]) -> Result<Nat, String> {
        let mut nat = Nat::default();
        for line in lines {
            let done = match mmb_lang::parse_line(line).expect("a good line").expect("a command") {
                Command::NatPoolAdd(pool) => nat.add_pool(&pool),
                Command::NatPoolDel { name } => nat.delete_pool(&name),
                Command::NatForwardAdd(forward) => nat.add_forward(&forward),
                Command::NatForwardDel { proto, outside } => nat.delete_forward(proto, outside),
                other => panic!("{other}"),
            };
            done.map_err(|error| error.diagnostic.message)?;
        }
        Ok(nat)
    }

    #[test]
    fn pools_share_no_port_of_an_address() {
        let lines = [
            "nat pool add a 192.0.2.1-192.0.2.9 ports 1024-2047",
            "nat pool add b 192.0.2.5 ports 2048-65535 block 64 limit 2 filtering endpoint-independent",
            "nat forward add tcp 192.0.2.5 80 to 10.0.0.1 8080",
        ];
        let nat = run(&lines).unwrap();
        assert_eq!(nat.lines().collect::<Vec<_>>(), lines);
        let refused = |line: &str| run(&[lines[0], lines[1], lines[2], line]).unwrap_err();
        assert!(refused("nat pool add a 192.0.2.50").contains("`a` already"));
        assert!(refused("nat pool add c 192.0.2.9 ports 2000-2100").contains("pools a and c"));
        assert!(refused("nat pool add c 192.0.2.4-192.0.2.6 ports 5000-6000").contains("pools b and c"));
        assert!(refused("nat pool del c").contains("`c`"));
        assert!(refused("nat forward add tcp 192.0.2.5 80 to 10.0.0.9 80").contains("10.0.0.1 8080"));
        assert!(refused("nat forward add tcp 192.0.2.5 81 to 192.0.2.9 80").contains("pool a"));
        assert!(refused("nat forward del udp 192.0.2.5 80").contains("is not forwarded"));
        let more = ["nat pool del a", "nat pool add c 192.0.2.9 ports 2000-2100"];
        assert!(run(&[&lines[..], &more[..]].concat()).is_ok());
        let other = "nat forward add udp 192.0.2.5 80 to 10.0.0.1 8080";
        assert!(run(&[lines[2], other, "nat forward del tcp 192.0.2.5 80", lines[2]]).is_ok());
    }
}
