//! NAT pools and forwards as configured.
//!
//! They are few and change rarely: each change makes a new list, in the order of the lines that made it.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use mmb_flow::NatConfig;
use mmb_lang::{Command, Endpoint4, NatForward, NatPool, NatProto, SourceSpan, Word};
use mmb_session::{forward_config, pool_config};

use crate::error::{Fault, RefusalKind};

/// Most forwards: with more, loading them one by one would take long.
const MAX_FORWARDS: usize = 4096;

/// Pools and forwards, each in the order they were added.
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

    /// The pool called `name`.
    pub fn pool(&self, name: &str) -> Option<&NatPool> {
        self.pools.iter().find(|p| *p.name == *name)
    }

    /// What the engine makes of them.
    pub fn compiled(&self) -> &Arc<NatConfig> {
        &self.compiled
    }

    /// The addresses that hosts inside are known by outside: of pools and forwards.
    pub fn outside(&self) -> Vec<RangeInclusive<IpAddr>> {
        let pools = self.pools.iter().map(|p| p.addresses);
        let forwards = self.forwards.iter().map(|f| [f.outside.address; 2]);
        pools.chain(forwards).map(|[first, last]| first.into()..=last.into()).collect()
    }

    /// Adds a pool whose name is free and that takes no address from another. On an error this value is of no use.
    pub fn add_pool(&mut self, pool: &NatPool) -> Result<(), Fault> {
        let name = &pool.name;
        if self.pool(name).is_some() {
            let fault = Fault::conflict(format!("there is a NAT pool `{}` already", &**name), name.span);
            return Err(fault.help(format!("`nat pool del {}` first", &**name)));
        }
        self.pools.push(pool.clone());
        self.compile(name.span)
    }

    /// Removes a pool; whoever calls has seen to it that no rule names it.
    pub fn delete_pool(&mut self, name: &Word) -> Result<(), Fault> {
        let at = self.pools.iter().position(|p| *p.name == **name);
        self.pools.remove(at.ok_or_else(|| self.unknown_pool(name))?);
        self.compile(name.span)
    }

    /// Adds a forward whose outside is free. On an error this value is of no use.
    pub fn add_forward(&mut self, forward: &NatForward) -> Result<(), Fault> {
        let NatForward { proto, outside, .. } = forward;
        if let Some(other) = self.forward(*proto, *outside) {
            let message = format!("{proto} {outside} is forwarded to {} already", other.inside);
            let fault = Fault::conflict(message, SourceSpan::default());
            return Err(fault.help(format!("`nat forward del {proto} {outside}` first")));
        }
        if self.forwards.len() >= MAX_FORWARDS {
            let message = format!("there are {MAX_FORWARDS} forwards already, the most there can be");
            return Err(Fault::conflict(message, SourceSpan::default()));
        }
        self.forwards.push(*forward);
        self.compile(SourceSpan::default())
    }

    /// Removes a forward.
    pub fn delete_forward(&mut self, proto: NatProto, outside: Endpoint4) -> Result<(), Fault> {
        let at = self.forwards.iter().position(|f| f.proto == proto && f.outside == outside);
        let missing = || {
            let message = format!("{proto} {outside} is not forwarded");
            Fault::new(RefusalKind::NotFound, message, SourceSpan::default())
                .help("`show nat` lists what is".to_owned())
        };
        self.forwards.remove(at.ok_or_else(missing)?);
        self.compile(SourceSpan::default())
    }

    fn forward(&self, proto: NatProto, outside: Endpoint4) -> Option<&NatForward> {
        self.forwards.iter().find(|f| f.proto == proto && f.outside == outside)
    }

    /// The error for a name that no pool has.
    pub fn unknown_pool(&self, name: &Word) -> Fault {
        let message = format!("there is no NAT pool `{}`", &**name);
        let fault = Fault::new(RefusalKind::NotFound, message, name.span);
        let known: Vec<&str> = self.pools.iter().map(|p| &*p.name.text).collect();
        match known.as_slice() {
            [] => fault.help("add it first: `nat pool add NAME ADDRESS[-ADDRESS] …`".to_owned()),
            known => fault.help(format!("there are: {}", known.join(", "))),
        }
    }

    /// Makes of all this what the engine wants; what is wrong stands at `at`.
    fn compile(&mut self, at: SourceSpan) -> Result<(), Fault> {
        let pools = self.pools.iter().map(pool_config).collect::<Result<_, _>>();
        let forwards = self.forwards.iter().map(forward_config).collect::<Result<_, _>>();
        let config = pools.and_then(|pools| NatConfig::new(pools, forwards?));
        self.compiled = Arc::new(config.map_err(|sentence| Fault::conflict(sentence, at))?);
        Ok(())
    }

    /// The lines of a file that give these pools and forwards.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let pools = self.pools.iter().map(|p| Command::NatPoolAdd(p.clone()).to_string());
        pools.chain(self.forwards.iter().map(|f| Command::NatForwardAdd(*f).to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs lines; the sentence of the first that is refused.
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
            done.map_err(|fault| fault.diagnostic.message)?;
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
