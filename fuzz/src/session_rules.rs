//! Configurations for the fuzz target `session`.

use std::net::IpAddr;

use mmb_flow::{HeldLimits, SessionSettings, Timeouts};
use mmb_nf::{Context, DropReason, EmitTarget, Function, Packet, Properties, Setup, Verdict};
use mmb_session_harness::RuleSet;

/// Rules of configurations. Each bit of a byte of the input selects one.
const RULES: [&str; 8] = [
    "add-stateful ip-saddr 10.0.0.0/8 nat p",
    "add-stateful ip6-saddr fd00::/8 map ip6-saddr 2001:db8::1 shuffle ip6-flow-label",
    "add-stateful ip-saddr 10.0.0.0/8 ip-proto tcp shuffle tcp-seq-num map tcp-ack-num 7 shuffle tcp-sport",
    "add-stateful udp-dport 53 map ip-daddr 192.0.2.9 map udp-dport 5353 map ip-id 99",
    "add-stateful ip-daddr 192.0.2.100 lb 192.0.2.1 192.0.2.2",
    "add-stateful ip-saddr 10.0.0.0/8 accept",
    "add in port1 out port0 ip-ttl < 64 drop",
    "add-stateful tcp-dport 80 ip-ttl > 3 mod ip-dscp 7 map ip-saddr 200.0.2.0/30",
];

/// Rules of configurations with chains.
const CHAIN_RULES: [&str; 8] = [
    "add-stateful ip-saddr 10.0.0.0/8 chain away",
    "add-stateful ip6-saddr fd00::/8 chain plain",
    "add-stateful ip-saddr 10.0.0.0/8 ip-proto tcp shuffle tcp-seq-num map tcp-ack-num 7 chain plain",
    "add-stateful udp-dport 53 map ip-daddr 192.0.2.9 map udp-dport 5353 chain twice",
    "add-stateful ip-daddr 192.0.2.100 chain web",
    "add-stateful tcp-dport 80 chain guarded",
    "add in port1 out port0 ip-ttl < 64 mod ip-id 99",
    "add-stateful ip-saddr 10.0.0.0/8 nat p chain plain",
];
/// Functions of configurations with chains.
const FUNCTIONS: [&str; 14] = [
    "nf add m monitor",
    "nf add c count",
    "nf add k mark dscp 3",
    "nf add s mss-clamp 500",
    "nf add r police 8kbit burst 1518 per source",
    "nf add a acl deny ip-saddr 10.0.0.3 allow",
    "nf add n nat p",
    "nf add b lb 192.0.2.1 192.0.2.2:5353 by least-connections",
    "nf add p split web: tcp-dport {80,5353} dns: udp-dport {53,5353}",
    "nf add t mirror port1 forward",
    "nf add f flow",
    "nf add g flow",
    "nf add y synproxy",
    "nf add w whim ip-proto udp",
];
/// Chains of two configurations.
const CHAINS: [[&str; 5]; 2] = [
    [
        "chain add away m | n | c",
        "chain add plain c | [w | k, else: s | t]",
        "chain add twice m | f | c",
        "chain add web b | p [web: s, dns: drop, rest: pass] | r",
        "chain add guarded y | a",
    ],
    [
        "chain add away a | n | f | m",
        "chain add plain [c | w, else: t] | k",
        "chain add twice m | f | c | g | r",
        "chain add web a | b | p [web: r, dns: m, rest: drop]",
        "chain add guarded c | y",
    ],
];

/// A function that accepts the traffic of its argument. The last byte of a packet selects the verdict.
struct ByteDriven(String);

impl Function for ByteDriven {
    const TYPE: &'static str = "whim";
    const USAGE: &'static str = "MATCH…";
    const HELP: &'static str = "does anything";
    const HOLDS: bool = true;
    type Pad = u64;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        Ok(ByteDriven(setup.args.join(" ")))
    }

    fn properties(&self) -> Properties {
        Properties { accepts: self.0.clone(), ..Properties::default() }
    }

    fn packet(&self, packet: &mut Packet<'_>, pad: &mut u64, cx: &mut Context<'_, ()>) -> Verdict {
        *pad += 1;
        let last = packet.head.last().copied().unwrap_or(0);
        match last >> 2 & 15 {
            0 => Verdict::Drop(DropReason::ChainError),
            1 => Verdict::Refuse(DropReason::Acl),
            2 => Verdict::End(DropReason::BackendDown),
            3 => {
                cx.emit([EmitTarget::Ingress, EmitTarget::Egress][usize::from(last >> 7)], packet.head);
                Verdict::Pass
            }
            4 if *pad > 3 => Verdict::Branch(last),
            8 => Verdict::Hold,
            9 => cx.hold_at(u32::from(last)),
            byte => {
                let packet = &*packet;
                match byte {
                    10 => cx.held(packet).release(),
                    11 => cx.held(packet).behind_packet().release_first(2),
                    12 => cx.held(packet).opposite().release_before(128),
                    13 => cx.held(packet).drop_first(1, DropReason::Police),
                    _ => 0,
                };
                Verdict::Pass
            }
        }
    }

    fn resume(&self, packet: &mut Packet<'_>, pad: &mut u64, cx: &mut Context<'_, ()>) -> Verdict {
        *pad += 1;
        if pad.is_multiple_of(5) {
            cx.held(packet).release();
        }
        match *pad % 16 {
            0 => Verdict::End(DropReason::BackendDown),
            1 => Verdict::Branch(1),
            2 => Verdict::Hold,
            _ => Verdict::Pass,
        }
    }
}

/// Timeouts that few bytes of the input can reach.
const TIMEOUTS: Timeouts = Timeouts {
    tcp_handshake: 4_000,
    tcp_established: 60_000,
    tcp_half_closed: 9_000,
    tcp_closed: 5_000,
    tcp_reset: 3_000,
    udp_unreplied: 7_000,
    udp_replied: 20_000,
    icmp: 6_000,
    other: 8_000,
    fragment: 2_000,
    held: 3_000,
};
/// Limits that few packets reach.
const HELD: HeldLimits = HeldLimits { session: 5, worker: 12 };
/// Longer than all timeouts, in milliseconds.
pub(super) const FOREVER: u32 = 400_000;
/// Capacity of the session tables.
pub(super) const SESSIONS: usize = 24;

const FILTERING: [&str; 3] = ["endpoint-independent", "address-dependent", "address-and-port-dependent"];

/// Set in configurations with chains.
const WITH_CHAINS: u8 = 0x40;

/// The rules of a configuration. `config` selects rules, `more` selects settings.
pub(super) fn rules(config: u8, more: u8, workers: u16, before: Option<&RuleSet>) -> RuleSet {
    let filtering = FILTERING[usize::from(more >> 2) % 3];
    let pool =
        format!("nat pool add p 200.0.1.1-200.0.1.2 ports 2000-2031 block 16 limit 12 filtering {filtering}");
    let chained = more & WITH_CHAINS != 0;
    let all = if chained { CHAIN_RULES } else { RULES };
    let mut lines: Vec<&str> = (0..8).filter(|n| config & 1 << n != 0).map(|n| all[n]).collect();
    lines.push(&pool);
    if chained {
        lines.extend(FUNCTIONS);
        lines.extend(CHAINS[usize::from(more & 1)]);
    }
    if more & 1 != 0 {
        lines.push("nat forward add tcp 200.0.1.1 80 to 10.0.0.2 80");
    }
    let settings = SessionSettings {
        timeouts: TIMEOUTS,
        held: HELD,
        tcp_pickup: more & 2 == 0,
        tcp_window_check: more & 0x80 != 0,
        ..SessionSettings::default()
    };
    let mut registry = mmb_nf_builtin::registry();
    registry.add::<ByteDriven>();
    let rules = RuleSet::parse_with(&lines, settings, before, &registry, workers).expect("valid lines");
    // Both ports belong to a wire, or are routed, or one of them is.
    let routed: &[u16] = [&[][..], &[0, 1], &[0], &[1]][usize::from(more >> 4 & 3)];
    rules.with_routing(routed, |to| match to {
        IpAddr::V4(to) => Some(u16::from(to.octets()[0] != 10)),
        IpAddr::V6(to) => Some(u16::from(to.octets()[0] != 0xfd)),
    })
}
