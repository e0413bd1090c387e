//! Words of NAT pools and forwards: `nat …`.

use super::{Keyword, word, word_of};
use crate::ast::{Filtering, NatProto};

/// Words after `nat`.
pub(crate) const NAT: &[Keyword] =
    &[word("pool", "addresses for the target nat"), word("forward", "send what comes to a port to a host")];

/// Words after `nat pool`.
pub(crate) const NAT_POOL: &[Keyword] =
    &[word("add", "nat pool add <name> <addresses> …"), word("del", "nat pool del <name>")];

/// What stands for the addresses of a pool.
pub(crate) const POOL_INTERFACE: &[Keyword] =
    &[word("interface", "the address of a routed interface, also when it changes: interface <name>")];

/// Words after `nat forward`.
pub(crate) const NAT_FORWARD: &[Keyword] = &[
    word("add", "nat forward add tcp|udp <address> <port> to <address> <port>"),
    word("del", "nat forward del tcp|udp <address> <port>"),
];

/// Words after the addresses of a pool.
pub(crate) const POOL_OPTIONS: &[Keyword] = &[
    word("ports", "the ports it gives out: ports <low>-<high>"),
    word("block", "ports that a host gets at a time: block <number>"),
    word("limit", "sessions that a host may have: limit <number>"),
    word("filtering", "who may send from outside: filtering <how>"),
];

/// Words after `filtering`.
pub(crate) const FILTERING: &[(Filtering, Keyword)] = &[
    (Filtering::EndpointIndependent, word("endpoint-independent", "anybody")),
    (Filtering::AddressDependent, word("address-dependent", "addresses that were sent to")),
    (
        Filtering::AddressAndPortDependent,
        word("address-and-port-dependent", "addresses and ports that were sent to"),
    ),
];

/// Words after `nat forward add` and `nat forward del`.
pub(crate) const NAT_PROTOS: &[(NatProto, Keyword)] =
    &[(NatProto::Tcp, word("tcp", "TCP")), (NatProto::Udp, word("udp", "UDP"))];

/// The word between the endpoints of a forward.
pub(crate) const TO: &[Keyword] = &[word("to", "the host behind NAT: to <address> <port>")];

/// The word of a pool's filtering.
pub(crate) fn filtering_word(filtering: Filtering) -> &'static str {
    word_of(FILTERING, filtering)
}

/// The word of a forward's protocol.
pub(crate) fn nat_proto_word(proto: NatProto) -> &'static str {
    word_of(NAT_PROTOS, proto)
}
