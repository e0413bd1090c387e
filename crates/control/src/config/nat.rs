//! NAT pools and port forwards.
//!
//! They are few and change rarely. Each change makes a new list, in the order in which they were added.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use mmb_flow::{NatConfig, NatConfigError};
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
    /// Addresses of the interfaces that pools follow, by name.
    followed: Arc<BTreeMap<String, Ipv4Addr>>,
    /// Pools that cannot have the address of their interface, with the reason.
    refused: Vec<(String, NatConfigError)>,
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

    /// First and last address of a pool. None: the interface that it follows has none.
    pub fn addresses(&self, pool: &NatPool) -> Option<[Ipv4Addr; 2]> {
        let number = self.compiled.pool(&pool.name)?;
        let (first, last) = self.compiled.pools().get(usize::from(number.0))?.addresses();
        Some([first, last])
    }

    /// The pools that follow an interface.
    pub fn followers<'a>(&'a self, interface: &'a str) -> impl Iterator<Item = &'a NatPool> {
        let follows = move |pool: &&NatPool| pool.addresses.interface().is_some_and(|i| **i == *interface);
        self.pools.iter().filter(follows)
    }

    /// The addresses of the interfaces that pools follow, by the interfaces' names.
    pub fn followed(&self) -> &BTreeMap<String, Ipv4Addr> {
        &self.followed
    }

    /// The pools that cannot have the address of their interface, with the reason.
    pub fn refused(&self) -> &[(String, NatConfigError)] {
        &self.refused
    }

    /// Changes the addresses of the interfaces that pools follow. A pool whose address belongs to another
    /// pool has none ([`Nat::refused`]).
    pub fn follow(&mut self, addresses: BTreeMap<String, Ipv4Addr>) {
        self.followed = Arc::new(addresses);
        // The other pools and the forwards are valid without these addresses.
        let _ = self.compile(SourceSpan::default());
    }

    /// No pools and forwards, and the same addresses of interfaces.
    pub fn cleared(&self) -> Nat {
        Nat { followed: self.followed.clone(), ..Nat::default() }
    }

    /// The outside addresses of pools and forwards.
    pub fn outside(&self) -> Vec<RangeInclusive<IpAddr>> {
        let pools = self.compiled.pools().iter().map(|pool| <[_; 2]>::from(pool.addresses()));
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
        self.compile_added(name.span)
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
        self.compile_added(SourceSpan::default())
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
            [] => error.help("add it first: `nat pool add NAME ADDRESSES …`".to_owned()),
            known => error.help(format!("there are: {}", known.join(", "))),
        }
    }

    /// Compiles the configuration of the engine. Errors are placed at `at`.
    ///
    /// A pool without address is none of the engine's: packets that it should translate are dropped.
    fn compile(&mut self, at: SourceSpan) -> Result<(), CommandError> {
        let conflict = |error: NatConfigError| CommandError::conflict(error.to_string(), at);
        let fixed = |pool: &NatPool| Some(pool_config(pool, pool.addresses.range()?));
        let mut pools: Vec<_> =
            self.pools.iter().filter_map(fixed).collect::<Result<_, _>>().map_err(conflict)?;
        let forwards: Vec<_> =
            self.forwards.iter().map(forward_config).collect::<Result<_, _>>().map_err(conflict)?;
        let mut config = NatConfig::new(pools.clone(), forwards.clone()).map_err(conflict)?;
        self.refused.clear();
        for pool in &self.pools {
            let Some(&address) = pool.addresses.interface().and_then(|name| self.followed.get(&*name.text))
            else {
                continue;
            };
            let with = |pool| NatConfig::new([&pools[..], &[pool]].concat(), forwards.clone());
            match pool_config(pool, [address; 2]).and_then(with) {
                Ok(with) => {
                    config = with;
                    pools = config.pools().to_vec();
                }
                Err(error) => self.refused.push((pool.name.to_string(), error)),
            }
        }
        self.compiled = Arc::new(config);
        Ok(())
    }

    /// Compiles after an addition. No pool may lose its address by it.
    fn compile_added(&mut self, at: SourceSpan) -> Result<(), CommandError> {
        let before = self.refused.len();
        self.compile(at)?;
        match self.refused.get(before) {
            Some((_, error)) => Err(CommandError::conflict(error.to_string(), at)),
            None => Ok(()),
        }
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

    /// A pool has the address that its interface has, unless another pool has it.
    #[test]
    fn pools_follow_interfaces() {
        let lines = ["nat pool add a 192.0.2.0/28", "nat pool add p interface wan ports 1024-65535"];
        let mut nat = run(&lines).unwrap();
        assert_eq!(nat.lines().collect::<Vec<_>>(), lines);
        let address = |nat: &Nat| nat.addresses(nat.pool("p").unwrap()).map(|[first, _]| first.to_string());
        assert_eq!((address(&nat), nat.outside().len()), (None, 1));
        let wan = |address: &str| BTreeMap::from([("wan".to_owned(), address.parse().unwrap())]);
        nat.follow(wan("198.51.100.7"));
        assert_eq!((address(&nat).as_deref(), nat.outside().len()), (Some("198.51.100.7"), 2));
        let add = |nat: &mut Nat, line: &str| match mmb_lang::parse_line(line) {
            Ok(Some(Command::NatPoolAdd(pool))) => nat.add_pool(&pool).map_err(|e| e.diagnostic.message),
            other => panic!("{other:?}"),
        };
        let error = add(&mut nat.clone(), "nat pool add q 198.51.100.0-198.51.100.9").unwrap_err();
        assert_eq!(error, "the pools q and p share addresses and ports");
        nat.follow(wan("192.0.2.3"));
        assert_eq!((address(&nat), nat.refused().len()), (None, 1));
        nat.follow(wan("127.0.0.1"));
        assert_eq!((address(&nat), nat.refused().len()), (None, 1));
        // A new file begins with the addresses that are known.
        nat.follow(wan("198.51.100.8"));
        let mut next = nat.cleared();
        add(&mut next, lines[1]).unwrap();
        assert_eq!(address(&next).as_deref(), Some("198.51.100.8"));
        nat.follow(BTreeMap::new());
        assert_eq!((address(&nat), nat.refused().len()), (None, 0));
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
