//! The table of all fields.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::def::{FieldDef, ValueKind};
use super::id::FieldId;
use super::{icmp_udp, ip4, ip6, tcp};

impl FieldId {
    /// The field's entry.
    pub fn def(self) -> &'static FieldDef {
        &FIELDS[self as usize]
    }

    /// The field's name.
    pub fn name(self) -> &'static str {
        self.def().name
    }
}

const PARTS: [&[FieldDef]; 5] = [&INTERFACES, &ip4::FIELDS, &ip6::FIELDS, &icmp_udp::FIELDS, &tcp::FIELDS];

const COUNT: usize = {
    let (mut total, mut part) = (0, 0);
    while part < PARTS.len() {
        total += PARTS[part].len();
        part += 1;
    }
    total
};

/// All fields; `FIELDS[id as usize].id == id`.
pub static FIELDS: [FieldDef; COUNT] = {
    let mut all = [INTERFACES[0]; COUNT];
    let (mut part, mut at) = (0, 0);
    while part < PARTS.len() {
        let mut i = 0;
        while i < PARTS[part].len() {
            all[at] = PARTS[part][i];
            assert!(all[at].id as usize == at, "the field table and FieldId are in different order");
            at += 1;
            i += 1;
        }
        part += 1;
    }
    assert!(COUNT == FieldId::TcpOptMptcp as usize + 1, "a FieldId has no entry");
    all
};

const INTERFACES: [FieldDef; 3] = {
    use mmb_packet::Loc;
    [
        FieldDef::fixed(FieldId::In, "in", Loc::InPort, 16)
            .kind(ValueKind::Interface)
            .help("interface the packet came in at")
            .example("in lan")
            .read_only("the packet has come in already"),
        FieldDef::fixed(FieldId::Out, "out", Loc::OutPort, 16)
            .kind(ValueKind::Interface)
            .help("interface the packet goes out at; writing it redirects the packet")
            .example("out wan"),
        FieldDef::fixed(FieldId::NetProto, "net-proto", Loc::Ethertype, 16)
            .kind(ValueKind::EtherType)
            .help("network protocol (ethertype behind VLAN tags); rules see IP packets only")
            .example("net-proto ip6")
            .read_only("the header after it would not change"),
    ]
};

/// The field of that name, exactly as in the table.
pub fn field(name: &str) -> Option<&'static FieldDef> {
    static BY_NAME: LazyLock<HashMap<&str, FieldId>> =
        LazyLock::new(|| FIELDS.iter().map(|def| (def.name, def.id)).collect());
    BY_NAME.get(name).map(|id| id.def())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Layer;

    #[test]
    fn names_are_unique_and_found() {
        for def in &FIELDS {
            assert_eq!(field(def.name).map(|found| found.id), Some(def.id));
        }
        assert!(field("IP-TTL").is_none());
    }

    #[test]
    fn fixed_fields_stay_inside_a_header() {
        use mmb_packet::Loc;
        for def in &FIELDS {
            let (bit, header) = match def.loc {
                None | Some(Loc::TcpOption(_) | Loc::TcpOptionAny | Loc::Ip6Ext(_)) => continue,
                Some(Loc::InPort | Loc::OutPort | Loc::Ethertype) => (0, 16),
                Some(Loc::Ip4(bit) | Loc::Tcp(bit)) => (bit, 160),
                Some(Loc::Ip6(bit)) => (bit, 320),
                Some(Loc::Udp(bit) | Loc::Icmp(bit) | Loc::Icmp6(bit)) => (bit, 64),
            };
            assert!(bit + def.width_bits <= header, "{}", def.name);
            assert_eq!(def.width_bits == 1, def.kind == ValueKind::Flag, "{}", def.name);
        }
    }

    /// No field other than a shorthand or a flag of a flags field lies over another.
    #[test]
    fn fields_tile_their_headers() {
        for (a, b) in FIELDS.iter().flat_map(|a| FIELDS.iter().map(move |b| (a, b))) {
            let (Some(loc_a), Some(loc_b)) = (a.loc, b.loc) else { continue };
            let header = a.in_header() && b.in_header() && a.proto == b.proto;
            if a.id >= b.id || !header || a.proto == Layer::Interface {
                continue;
            }
            let (start_a, start_b) = (loc_a.window_bit(), loc_b.window_bit());
            let overlap = start_a < start_b + usize::from(b.width_bits)
                && start_b < start_a + usize::from(a.width_bits);
            let ecn =
                |def: &FieldDef| def.id == FieldId::IpEcn || matches!(def.kind, ValueKind::Shorthand(_));
            let allowed = matches!(a.id, FieldId::IpFlags | FieldId::TcpFlags) || (ecn(a) && ecn(b));
            assert!(!overlap || allowed, "{} and {}", a.name, b.name);
        }
    }
}
