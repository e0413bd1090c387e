//! Tests of the parent module.

use mmb_classify::Pattern;

use super::*;

/// The words for the mask of a rule with these matches.
fn of(matches: &str) -> String {
    let Ok(Some(mmb_lang::Command::Add(rule))) = mmb_lang::parse_line(&format!("add {matches} drop")) else {
        panic!("{matches}");
    };
    let pattern = Pattern::compile(&rule, &|_| Some(3)).expect("a good rule");
    words(pattern.entries()[0].cover().mask())
}

#[test]
fn masks_are_shown_as_fields() {
    for (matches, expected) in [
        ("ip-saddr 10.0.0.0/24 tcp-dport 80", "ip-saddr/24 tcp-dport"),
        ("ip6-saddr 2001:db8::/32 ip6-hop-limit 3", "ip6-saddr/32 ip6-hop-limit"),
        ("icmp-type 8", "icmp-type"),
        ("tcp-syn", "tcp-syn"),
        ("tcp-flags 18", "tcp-flags"),
        ("ip-df ip-ttl 3", "ip-df ip-ttl"),
        ("udp-len 8 udp-dport 3", "udp-dport udp-len"),
        ("tcp-opt-mss 1460", "tcp-opt-mss"),
        ("tcp-opt-sack", "has:tcp-opt-sack"),
        ("tcp-opt-sack tcp-opt-timestamp 7", "tcp-opt-timestamp has:tcp-opt-sack"),
        ("ip6-eh-routing", "has:ip6-eh-routing"),
        ("tcp-opt", "has:tcp-opt"),
        ("in lan", "in"),
        ("tcp-dport", "-"),
        ("all", "-"),
    ] {
        assert_eq!(of(matches), expected, "{matches}");
    }
    assert_eq!(of("tcp-dport 1024-2047"), "tcp-dport/6");
}

#[test]
fn every_field_has_a_name() {
    let with_value = FIELDS.iter().filter(|def| PACKETS.iter().any(|headers| is_value_of(def, *headers)));
    let mut seen = 0;
    for def in with_value {
        let mut mask = [0; CHUNKS * CHUNK];
        let at = def.loc.expect("it has a value").window_bit();
        (at..at + usize::from(def.width_bits)).for_each(|i| mask[i / BYTE] |= 0x80 >> (i % BYTE));
        let chunk = |i| u128::from_ne_bytes(mask[i * CHUNK..(i + 1) * CHUNK].try_into().expect("16 bytes"));
        let text = words(&std::array::from_fn(chunk));
        // Of fields on the same bits, one gives the name.
        let same = |name: &str| {
            FIELDS.iter().any(|other| {
                let bits = |def: &FieldDef| def.loc.map(|loc| (loc.window_bit(), def.width_bits));
                other.name == name && bits(other) == bits(def)
            })
        };
        assert!(same(&text), "{}: {text}", def.name);
        seen += 1;
    }
    assert!(seen > 50, "{seen}");
}
