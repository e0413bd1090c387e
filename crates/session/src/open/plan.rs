//! The translation of a session, by the bindings of the rules that open it and the requests of its chain's
//! functions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mmb_flow::{Key, NatConfig, PoolId};
use mmb_nf::TranslationRequest;
use mmb_packet::Kind;
use mmb_policy::{Binding, Choice, NumberSet, Policy, Side};

use crate::hash::{Purpose, hash_key, mix, scale};

/// The new address of one side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum NewAddress<'a> {
    /// The address stays.
    #[default]
    Same,
    /// One of these values.
    Choice(&'a NumberSet),
    /// This address.
    Fixed([u8; 16]),
    /// One of these IPv4 servers.
    Server4(&'a [Ipv4Addr]),
    /// One of these IPv6 servers.
    Server6(&'a [Ipv6Addr]),
    /// An address and port of a pool.
    Pool(PoolId),
    /// A pool that does not exist.
    NoPool,
}

impl NewAddress<'_> {
    /// Returns the number of addresses to choose from.
    pub fn len(&self) -> u128 {
        match self {
            NewAddress::Same | NewAddress::Fixed(_) | NewAddress::NoPool | NewAddress::Pool(_) => 1,
            NewAddress::Choice(values) => values.len(),
            NewAddress::Server4(servers) => servers.len() as u128,
            NewAddress::Server6(servers) => servers.len() as u128,
        }
    }

    /// Returns the address with this number; `None` if the address stays.
    pub fn nth(&self, n: u128, ip4: bool) -> Option<[u8; 16]> {
        let index = |len: usize| usize::try_from(n).ok().filter(|&n| n < len);
        match self {
            NewAddress::Same | NewAddress::NoPool | NewAddress::Pool(_) => None,
            NewAddress::Fixed(address) => Some(*address),
            NewAddress::Choice(values) if ip4 => Some(wide(values.nth(n)? as u32)),
            NewAddress::Choice(values) => Some(values.nth(n)?.to_be_bytes()),
            NewAddress::Server4(servers) => Some(wide(servers[index(servers.len())?].to_bits())),
            NewAddress::Server6(servers) => Some(servers[index(servers.len())?].octets()),
        }
    }
}

/// Returns an IPv4 address in the form of a [`Key`].
pub(crate) fn wide(address: u32) -> [u8; 16] {
    let mut wide = [0; 16];
    wide[..4].copy_from_slice(&address.to_be_bytes());
    wide
}

/// The translation of a session. Where several rules set the same part, the last rule applies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TranslationPlan<'a> {
    pub source: NewAddress<'a>,
    pub destination: NewAddress<'a>,
    pub source_port: Option<&'a Choice>,
    pub destination_port: Option<&'a Choice>,
    pub ip_id: Option<&'a Choice>,
    pub label: Option<&'a Choice>,
    pub sequence: Option<&'a Choice>,
    pub acknowledgment: Option<&'a Choice>,
    /// The destination port that a function requests; overrides rules.
    pub port: Option<u16>,
    /// The first sequence number of the answering side that a function has already sent to the originator.
    pub proxied_isn: Option<u32>,
    /// Most bytes behind that number that the function sends to the answering side itself.
    pub early_bytes: u32,
    /// A function requests the destination: functions of another worker may request another one.
    pub is_requested: bool,
    /// Slot of the rule whose chain requests a pool.
    pub pool_rule: Option<u32>,
}

impl<'a> TranslationPlan<'a> {
    /// Applies the bindings of a rule to a session with this key.
    pub fn apply_rule(&mut self, policy: &'a Policy, slot: u32, key: &Key, nat: &NatConfig) {
        let Some(stateful) = policy.stateful(slot) else { return };
        for binding in &stateful.bindings {
            self.apply_binding(binding, key, nat);
        }
    }

    /// Applies what the functions of a chain request, after all rules. `slot`: the rule that names the chain.
    pub fn apply_request(&mut self, request: &TranslationRequest, slot: u32, key: &Key, nat: &NatConfig) {
        if let Some(pool) = request.pool.as_deref().filter(|_| key.is_ip4()) {
            self.source = nat.pool(pool).map_or(NewAddress::NoPool, NewAddress::Pool);
            self.pool_rule = Some(slot);
        }
        let to = request.destination.filter(|(address, _)| address.is_ipv4() == key.is_ip4());
        if let Some((address, port)) = to {
            self.destination = NewAddress::Fixed(match address {
                IpAddr::V4(address) => wide(address.to_bits()),
                IpAddr::V6(address) => address.octets(),
            });
            self.port = port.filter(|_| has_ports(key));
            self.is_requested = true;
        }
        self.proxied_isn = request.proxied_isn.filter(|_| Kind(key.kind).l4() == Kind::TCP);
        self.early_bytes = request.early_bytes;
    }

    /// Applies one binding.
    fn apply_binding(&mut self, binding: &'a Binding, key: &Key, nat: &NatConfig) {
        let is_ip4 = key.is_ip4();
        let is_tcp = Kind(key.kind).l4() == Kind::TCP;
        match binding {
            Binding::Address { side: Side::Source, ip4, choice } if *ip4 == is_ip4 => {
                self.source = NewAddress::Choice(&choice.values);
            }
            Binding::Address { side: Side::Destination, ip4, choice } if *ip4 == is_ip4 => {
                self.destination = NewAddress::Choice(&choice.values);
            }
            Binding::Port { proto, side, choice } if *proto == key.proto && has_ports(key) => match side {
                Side::Source => self.source_port = Some(choice),
                Side::Destination => self.destination_port = Some(choice),
            },
            Binding::Balance { ip4, .. } if is_ip4 && !ip4.is_empty() => {
                self.destination = NewAddress::Server4(ip4);
            }
            Binding::Balance { ip6, .. } if !is_ip4 && !ip6.is_empty() => {
                self.destination = NewAddress::Server6(ip6);
            }
            Binding::Nat { pool } if is_ip4 => {
                self.source = nat.pool(pool).map_or(NewAddress::NoPool, NewAddress::Pool);
            }
            Binding::IpId(choice) if is_ip4 => self.ip_id = Some(choice),
            Binding::FlowLabel(choice) if !is_ip4 => self.label = Some(choice),
            Binding::SeqNum(choice) if is_tcp => self.sequence = Some(choice),
            Binding::AckNum(choice) if is_tcp => self.acknowledgment = Some(choice),
            _ => {}
        }
    }

    /// Whether addresses or ports may change.
    pub fn changes_endpoints(&self) -> bool {
        let same = |address: &NewAddress| matches!(address, NewAddress::Same);
        !same(&self.source)
            || !same(&self.destination)
            || self.source_port.is_some()
            || self.destination_port.is_some()
            || self.port.is_some()
    }

    /// Whether numbers besides addresses and ports may change.
    pub fn replaces_numbers(&self) -> bool {
        let chosen = [self.ip_id, self.label, self.sequence, self.acknowledgment];
        self.proxied_isn.is_some() || chosen.iter().any(Option::is_some)
    }

    /// Whether the destination may change, or the source otherwise than by a pool.
    pub fn chooses_target(&self) -> bool {
        !matches!(self.source, NewAddress::Same | NewAddress::Pool(_))
            || !matches!(self.destination, NewAddress::Same)
            || self.destination_port.is_some()
            || self.port.is_some()
    }

    /// Returns the key after translation, without the source port and the address of a pool. Choices depend
    /// on the key, `seed` and `attempt` only, so that all workers make the same ones.
    pub fn target(&self, key: &Key, seed: u64, attempt: u64) -> Key {
        if !self.chooses_target() {
            return *key;
        }
        let ip4 = key.is_ip4();
        let ports = self.destination_port.map_or(1, |choice| choice.values.len());
        // Nothing to choose: no hash is needed.
        let draw = match self.source.len().max(self.destination.len()).max(ports) {
            1 => 0,
            _ => mix(hash_key(key, seed, Purpose::Choice), attempt),
        };
        let mut to = *key;
        to.source = self.source.nth(scale(draw, self.source.len()), ip4).unwrap_or(key.source);
        let draw = mix(draw, 1);
        to.destination =
            self.destination.nth(scale(draw, self.destination.len()), ip4).unwrap_or(key.destination);
        let draw = mix(draw, 2);
        let port =
            self.destination_port.and_then(|choice| choice.values.nth(scale(draw, choice.values.len())));
        let port = self.port.or(port.map(|port| port as u16));
        to.destination_port = port.map_or(key.destination_port, u16::to_be_bytes);
        to
    }
}

/// Whether the protocol of the key has ports.
pub(crate) fn has_ports(key: &Key) -> bool {
    matches!(Kind(key.kind).l4(), Kind::TCP | Kind::UDP)
}

/// Whether the source port may be replaced: it is a port, or the identifier of a query.
pub(crate) fn has_free_port(key: &Key) -> bool {
    has_ports(key) || key.asks == Key::BY_SOURCE
}

/// Whether a binding names a NAT pool.
pub(crate) fn is_pool(binding: &Binding) -> bool {
    matches!(binding, Binding::Nat { .. })
}
