//! What a session is to be given, by the bindings of the rules that open it and the functions of its chain.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mmb_flow::{Key, NatConfig, PoolId};
use mmb_nf::TranslationRequest;
use mmb_packet::Kind;
use mmb_policy::{Binding, Choice, NumberSet, Policy, Side};

use crate::random::mix;

/// New addresses of one side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum NewAddress<'a> {
    /// None: it stays.
    #[default]
    Same,
    /// One of these.
    Of(&'a NumberSet),
    /// This one.
    One([u8; 16]),
    /// One of these servers.
    Server4(&'a [Ipv4Addr]),
    /// One of these servers.
    Server6(&'a [Ipv6Addr]),
    /// One of a pool, with a port.
    Pool(PoolId),
    /// A pool that there is not.
    NoPool,
}

impl NewAddress<'_> {
    /// How many there are to choose from.
    pub fn len(&self) -> u128 {
        match self {
            NewAddress::Same | NewAddress::One(_) | NewAddress::NoPool | NewAddress::Pool(_) => 1,
            NewAddress::Of(values) => values.len(),
            NewAddress::Server4(servers) => servers.len() as u128,
            NewAddress::Server6(servers) => servers.len() as u128,
        }
    }

    /// The address with this number; none if the old one stays.
    pub fn nth(&self, place: u128, ip4: bool) -> Option<[u8; 16]> {
        let place_of = |len: usize| usize::try_from(place).ok().filter(|&place| place < len);
        match self {
            NewAddress::Same | NewAddress::NoPool | NewAddress::Pool(_) => None,
            NewAddress::One(address) => Some(*address),
            NewAddress::Of(values) if ip4 => Some(wide(values.nth(place)? as u32)),
            NewAddress::Of(values) => Some(values.nth(place)?.to_be_bytes()),
            NewAddress::Server4(servers) => Some(wide(servers[place_of(servers.len())?].to_bits())),
            NewAddress::Server6(servers) => Some(servers[place_of(servers.len())?].octets()),
        }
    }
}

/// An IPv4 address as a [`Key`] has it.
pub(crate) fn wide(address: u32) -> [u8; 16] {
    let mut wide = [0; 16];
    wide[..4].copy_from_slice(&address.to_be_bytes());
    wide
}

/// What a session is to be given. Where several rules say something about a field, the last one is heard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan<'a> {
    pub source: NewAddress<'a>,
    pub destination: NewAddress<'a>,
    pub source_port: Option<&'a Choice>,
    pub destination_port: Option<&'a Choice>,
    pub ip_id: Option<&'a Choice>,
    pub label: Option<&'a Choice>,
    pub sequence: Option<&'a Choice>,
    pub acknowledgment: Option<&'a Choice>,
    /// The destination's port, whatever else is said about it.
    pub port: Option<u16>,
    /// The first sequence number of the side that answers, as the opener has been told.
    pub answers: Option<u32>,
    /// The destination is a function's wish: another worker's may be another one.
    pub wished: bool,
    /// Slot of the rule by whose chain there is a pool.
    pub pool_by: Option<u32>,
}

impl<'a> Plan<'a> {
    /// Hears what a rule says about sessions with this key.
    pub fn hear(&mut self, policy: &'a Policy, slot: u32, key: &Key, nat: &NatConfig) {
        let Some(stateful) = policy.stateful(slot) else { return };
        for binding in &stateful.bindings {
            self.bind(binding, key, nat);
        }
    }

    /// Hears what the functions of a chain wish, after all rules; `slot` is that of the rule which names the chain.
    pub fn grant(&mut self, request: &TranslationRequest, slot: u32, key: &Key, nat: &NatConfig) {
        if let Some(pool) = request.pool.as_deref().filter(|_| key.is_ip4()) {
            self.source = nat.pool(pool).map_or(NewAddress::NoPool, NewAddress::Pool);
            self.pool_by = Some(slot);
        }
        let to = request.destination.filter(|(address, _)| address.is_ipv4() == key.is_ip4());
        if let Some((address, port)) = to {
            self.destination = NewAddress::One(match address {
                IpAddr::V4(address) => wide(address.to_bits()),
                IpAddr::V6(address) => address.octets(),
            });
            self.port = port.filter(|_| has_ports(key));
            self.wished = true;
        }
        self.answers = request.proxied_isn.filter(|_| Kind(key.kind).l4() == Kind::TCP);
    }

    fn bind(&mut self, binding: &'a Binding, key: &Key, nat: &NatConfig) {
        let is_ip4 = key.is_ip4();
        let is_tcp = Kind(key.kind).l4() == Kind::TCP;
        match binding {
            Binding::Address { side: Side::Source, ip4, choice } if *ip4 == is_ip4 => {
                self.source = NewAddress::Of(&choice.values);
            }
            Binding::Address { side: Side::Destination, ip4, choice } if *ip4 == is_ip4 => {
                self.destination = NewAddress::Of(&choice.values);
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
    pub fn moves(&self) -> bool {
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
        self.answers.is_some() || chosen.iter().any(Option::is_some)
    }

    /// Whether the destination, or the source but for a pool's, may change.
    pub fn draws(&self) -> bool {
        !matches!(self.source, NewAddress::Same | NewAddress::Pool(_))
            || !matches!(self.destination, NewAddress::Same)
            || self.destination_port.is_some()
            || self.port.is_some()
    }

    /// The key after translation, but for the source port and a pool's address. Choices follow from the key, `seed` and
    /// `attempt`, so that all workers make the same.
    pub fn target(&self, key: &Key, seed: u64, attempt: u64) -> Key {
        if !self.draws() {
            return *key;
        }
        let ip4 = key.is_ip4();
        let ports = self.destination_port.map_or(1, |choice| choice.values.len());
        // Where there is one of each, nothing has to be drawn.
        let draw = match self.source.len().max(self.destination.len()).max(ports) {
            1 => 0,
            _ => mix(hash_of(key, seed), attempt),
        };
        let mut to = *key;
        to.source = self.source.nth(scaled(draw, self.source.len()), ip4).unwrap_or(key.source);
        let draw = mix(draw, 1);
        to.destination =
            self.destination.nth(scaled(draw, self.destination.len()), ip4).unwrap_or(key.destination);
        let draw = mix(draw, 2);
        let port =
            self.destination_port.and_then(|choice| choice.values.nth(scaled(draw, choice.values.len())));
        let port = self.port.or(port.map(|port| port as u16));
        to.destination_port = port.map_or(key.destination_port, u16::to_be_bytes);
        to
    }
}

/// A number below `len` that a draw of 64 bits stands for.
pub(crate) fn scaled(draw: u64, len: u128) -> u128 {
    match u64::try_from(len) {
        Ok(len) => (u128::from(draw) * u128::from(len)) >> 64,
        // Of so many values it makes no difference that some are a little more likely.
        Err(_) => (u128::from(draw) << 64 | u128::from(mix(draw, 3))) % len,
    }
}

/// A number that follows from a key, and that nobody who does not know the seed foresees.
pub(crate) fn hash_of(key: &Key, seed: u64) -> u64 {
    let words: [u64; 5] = bytemuck::cast(*key);
    words.iter().fold(seed, |hash, &word| mix(hash, word))
}

/// Whether the key has ports (or no transport header to have them in).
pub(crate) fn has_ports(key: &Key) -> bool {
    matches!(Kind(key.kind).l4(), Kind::TCP | Kind::UDP)
}

/// Whether the source port is one that may be replaced by another if need be: a port, or a query's identifier.
pub(crate) fn has_free_port(key: &Key) -> bool {
    has_ports(key) || key.asks == Key::BY_SOURCE
}
