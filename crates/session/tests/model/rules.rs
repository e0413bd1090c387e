//! The rules that a model's world may have, each said twice: to the engine, and to the model.

use crate::common::{IN, OUT};
use crate::packet::{ICMP, TCP, Tuple, UDP};

/// What a rule does to the session that it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    Source([u8; 4]),
    Pool,
    SourcePort,
    Sequence,
    Destination(&'static [[u8; 4]]),
    DestinationPort(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Nothing,
    Accept,
    Drop,
    /// Sets the differentiated services field.
    Dscp(u8),
}

pub struct ModelRule {
    pub text: &'static str,
    pub stateful: bool,
    pub matches: fn(&Tuple, u16) -> bool,
    pub binds: &'static [Binding],
    pub effect: Effect,
}

impl ModelRule {
    pub fn opens(&self) -> bool {
        self.stateful && self.effect != Effect::Drop
    }

    /// What the rule says, or what comes to the same with functions of service chains.
    pub fn said(&self, chained: bool) -> String {
        match (chained, self.binds) {
            (true, [Binding::Pool]) => self.text.replace("nat p", "chain hide"),
            (true, [Binding::Source(FIXED)]) => format!("{} chain watch", self.text),
            (true, []) if self.effect == Effect::Accept => format!("{} chain watch", self.text),
            _ => self.text.to_owned(),
        }
    }

    pub fn translates(&self) -> bool {
        !self.binds.is_empty()
    }
}

fn from_inside(tuple: &Tuple) -> bool {
    tuple.source.0[0] == 10
}

/// The address of the first rule that translates sources.
pub const FIXED: [u8; 4] = [200, 0, 0, 1];
const OTHER: [u8; 4] = [200, 0, 0, 3];
pub const POOL: [[u8; 4]; 2] = [[200, 0, 1, 1], [200, 0, 1, 2]];
pub const POOL_PORTS: [u16; 2] = [2000, 6095];
pub const POOL_LINE: &str = "nat pool add p 200.0.1.1-200.0.1.2 ports 2000-6095";
/// Which rule of [`RULES`] uses the pool.
pub const POOL_RULE: usize = 2;
/// A function has the last word about what it translates: no rule behind that of the pool may have another.
pub const OVERRULED: u16 = 1 << 4;
pub const CHAIN_LINES: [&str; 4] =
    ["nf add t tally", "nf add nat source p", "chain add watch t", "chain add hide t | nat"];
pub const VIP: [u8; 4] = [192, 0, 2, 100];
pub const SERVERS: [[u8; 4]; 3] = [[192, 0, 2, 1], [192, 0, 2, 2], [192, 0, 2, 9]];

pub const FORWARD_ENDPOINT: ([u8; 4], u16) = ([200, 0, 1, 1], 8080);
pub const FORWARDED_HOST: ([u8; 4], u16) = ([10, 0, 0, 2], 80);
pub const FORWARD_LINE: &str = "nat forward add tcp 200.0.1.1 8080 to 10.0.0.2 80";

pub const RULES: [ModelRule; 10] = [
    ModelRule {
        text: "add-stateful ip-saddr 10.0.0.0/8 accept",
        stateful: true,
        matches: |t, _| from_inside(t),
        binds: &[],
        effect: Effect::Accept,
    },
    ModelRule {
        text: "add-stateful ip-saddr 10.0.0.0/8 ip-proto != tcp map ip-saddr 200.0.0.1",
        stateful: true,
        matches: |t, _| from_inside(t) && t.proto != TCP,
        binds: &[Binding::Source(FIXED)],
        effect: Effect::Nothing,
    },
    ModelRule {
        text: "add-stateful ip-saddr 10.0.0.0/8 nat p",
        stateful: true,
        matches: |t, _| from_inside(t),
        binds: &[Binding::Pool],
        effect: Effect::Nothing,
    },
    ModelRule {
        text: "add-stateful ip-saddr 10.0.0.0/8 udp-dport 53 map ip-daddr 192.0.2.9 map udp-dport 5353",
        stateful: true,
        matches: |t, _| from_inside(t) && t.proto == UDP && t.destination.1 == 53,
        binds: &[Binding::Destination(&[[192, 0, 2, 9]]), Binding::DestinationPort(5353)],
        effect: Effect::Nothing,
    },
    ModelRule {
        text: "add-stateful ip-saddr 10.0.0.0/8 tcp-dport 80 shuffle tcp-sport mod ip-saddr 200.0.0.3 \
               shuffle tcp-seq-num",
        stateful: true,
        matches: |t, _| from_inside(t) && t.proto == TCP && t.destination.1 == 80,
        binds: &[Binding::SourcePort, Binding::Source(OTHER), Binding::Sequence],
        effect: Effect::Nothing,
    },
    ModelRule {
        text: "add-stateful ip-daddr 192.0.2.100 lb 192.0.2.1 192.0.2.2",
        stateful: true,
        matches: |t, _| t.destination.0 == VIP,
        binds: &[Binding::Destination(&[SERVERS[0], SERVERS[1]])],
        effect: Effect::Nothing,
    },
    ModelRule {
        text: "add-stateful tcp-dport 80 mod ip-dscp 46",
        stateful: true,
        matches: |t, _| t.proto == TCP && t.destination.1 == 80,
        binds: &[],
        effect: Effect::Dscp(46),
    },
    ModelRule {
        text: "add-stateful ip-saddr 192.0.2.2 udp-sport 7 drop",
        stateful: true,
        matches: |t, _| t.source.0 == SERVERS[1] && t.proto == UDP && t.source.1 == 7,
        binds: &[],
        effect: Effect::Drop,
    },
    ModelRule {
        text: "add in port1 ip-proto != icmp drop",
        stateful: false,
        matches: |t, in_port| in_port == OUT && t.proto != ICMP,
        binds: &[],
        effect: Effect::Drop,
    },
    ModelRule {
        text: "add in port0 ip-saddr 10.0.0.3 udp-dport 7 drop",
        stateful: false,
        matches: |t, in_port| {
            in_port == IN && t.source.0 == [10, 0, 0, 3] && t.proto == UDP && t.destination.1 == 7
        },
        binds: &[],
        effect: Effect::Drop,
    },
];
