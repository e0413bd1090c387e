use mmb_router::Device as RouterDevice;

use super::*;
use crate::config::file;

fn loaded(text: &str) -> Config {
    file::load(text.as_bytes(), &Config::new()).unwrap()
}

fn refused(text: &str) -> String {
    let refusal = file::load(text.as_bytes(), &Config::new()).err().unwrap();
    format!("{} ({:?})", refusal.message, refusal.diagnostics[0].help)
}

const TWO: &str = "interface add a af-xdp eth0\ninterface add b af-packet eth1\n";

#[test]
fn xdp_ports_share_one_tap_and_others_have_twins() {
    let text = format!("{TWO}interface add c af-xdp eth2\ninterface add d null\nroute a b c d\n");
    let config = loaded(&text);
    let up = |_| true;
    let names: Vec<_> =
        config.devices(up).into_iter().map(|d| (d.name.clone(), d.port_kind().to_string())).collect();
    let expected = [
        ("a", "af-xdp eth0"),
        ("b", "af-packet eth1"),
        ("b", "tap b"),
        ("c", "af-xdp eth2"),
        ("d", "null"),
        ("d", "tap d"),
        (PUNT, "tap mmb-punt"),
    ];
    assert_eq!(names, expected.map(|(name, kind)| (name.to_owned(), kind.to_owned())));
    // Ids are unique, and those of the operator's interfaces count from 0.
    let mut ids: Vec<_> = config.ports().collect();
    assert_eq!(ids[..4], [0, 1, 2, 3].map(PortId));
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 7);
    let forwarding = config.forwarding(up);
    let of = |id: u16| *forwarding.ports.iter().find(|p| p.id == PortId(id)).unwrap();
    let punt = config.punt;
    let routed = Some(Routed { punt, is_broker: false });
    assert_eq!((of(0).routed, of(2).routed), (routed, routed));
    let twin = of(1).routed.unwrap().punt.unwrap();
    assert_eq!(
        of(twin.0),
        PortConfig { id: twin, peer: Some(PortId(1)), enabled: false, routed: None, reverse_path: None }
    );
    assert_eq!(of(punt.unwrap().0).peer, None);
    let routed: Vec<_> = config.routed_ports(up).into_iter().map(|p| (p.ifname, p.device)).collect();
    let real = |real: Option<&str>| RouterDevice::Twin { real: real.map(str::to_owned) };
    let kernel_names = [
        ("eth0", RouterDevice::Xdp),
        ("b", real(Some("eth1"))),
        ("eth2", RouterDevice::Xdp),
        ("d", real(None)),
    ];
    assert_eq!(routed, kernel_names.map(|(name, device)| (name.to_owned(), device)));
    // Interfaces that are down have no ports, and the TAP exists while a port needs it.
    let some = |id: PortId| id == PortId(1);
    assert_eq!(config.devices(some).len(), 2);
    assert_eq!(config.forwarding(some).ports.len(), 2);
    assert_eq!(config.routed_ports(some).len(), 1);
}

#[test]
fn routed_ports_are_lines_of_a_file_and_keep_their_ids() {
    let text = format!("{TWO}interface add c null\nroute c\nroute a\n");
    let first = loaded(&text);
    let again = file::text(&first);
    assert_eq!(again, format!("{TWO}interface add c null\nroute a\nroute c\n"));
    // A new interface in front and a newly routed one: no id changes.
    let more = format!("interface add z null\n{}route b z\n", again);
    let next = file::load(more.as_bytes(), &first).unwrap();
    let id = |config: &Config, name: &str| config.interface(name).map(|i| (i.id, i.routed));
    assert_eq!((id(&first, "a"), id(&first, "c"), first.punt), (id(&next, "a"), id(&next, "c"), next.punt));
    let diff = file::diff(&file::Snapshot::new(&first), &file::Snapshot::new(&next));
    assert_eq!(
        (diff.removed.len(), &diff.added[..]),
        (0, &["interface add z null", "route z", "route b"].map(str::to_owned)[..])
    );
    // A file without interfaces keeps them, and may route more.
    let kept = file::load(b"route b\n", &first).unwrap();
    assert!(kept.interface("b").unwrap().routed.is_some() && id(&kept, "c") == id(&first, "c"));
}

#[test]
fn routing_and_wires_exclude_each_other() {
    let text = refused(&format!("{TWO}wire a b\nroute a\n"));
    assert!(text.contains("wired to `b`") && text.contains("`wire del a` first"), "{text}");
    let text = refused(&format!("{TWO}route a\nwire b a\n"));
    assert!(text.contains("`a` is routed") && text.contains("`route del a` first"), "{text}");
    let mut config = loaded(&format!("{TWO}route a b\nroute b\n"));
    let (a, b) = (Word::from("a"), Word::from("b"));
    let text = format!("{:?}", config.delete_interface(&b).unwrap_err().diagnostic);
    assert!(text.contains("`route del b` first"), "{text}");
    config.unroute(&a).unwrap();
    config.unroute(&b).unwrap();
    assert!(config.unroute(&b).is_err() && config.punt.is_none());
    config.wire(&a, &b).unwrap();
    assert_eq!(config.devices(|_| true).len(), 2);
}

#[test]
fn twins_have_names_that_the_kernel_allows() {
    for (line, word) in [
        ("interface add eth1 af-packet eth1\nroute eth1\n", "`eth1` uses"),
        ("interface add default null\nroute default\n", "cannot have the name"),
        ("interface add mmb-punt null\nroute mmb-punt\n", "cannot have the name"),
        ("interface add lan null\ninterface add b af-packet lan\nroute lan\n", "`b` uses"),
        ("interface add t tap mmb-punt\ninterface add x af-xdp eth0\nroute x\n", "`t` uses mmb-punt"),
    ] {
        let text = refused(line);
        assert!(text.contains(word), "{text}");
    }
    // The names are in use while the twins exist.
    let mut config = loaded(&format!("{TWO}route a b\n"));
    for ifname in ["b", PUNT] {
        let kind = PortKind::AfPacket { ifname: ifname.to_owned() };
        let error = config.add_interface(&Word::from("t"), &kind, None).unwrap_err();
        assert!(error.diagnostic.message.contains("is in use already"), "{error:?}");
    }
}

#[test]
fn twins_count_as_ports() {
    let mut config = Config::new();
    for n in 0..MAX_PORTS / 2 {
        let name = Word::from(format!("p{n}").as_str());
        config.add_interface(&name, &PortKind::Null, None).unwrap();
        config.route(&[name], None).unwrap();
    }
    let error = config.add_interface(&Word::from("more"), &PortKind::Null, None).unwrap_err();
    assert!(error.diagnostic.message.contains("twins"), "{error:?}");
    config.unroute(&Word::from("p0")).unwrap();
    config.add_interface(&Word::from("more"), &PortKind::Null, None).unwrap();
    assert!(config.route(&[Word::from("p0")], None).is_err());
}
