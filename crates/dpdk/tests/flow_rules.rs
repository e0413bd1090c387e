//! Flow rules on ports without special hardware: none of them marks packets, and a tap supports other rules.
//! Ports on kernel interfaces need root and are skipped, with a message, without it.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/net.rs"]
mod net;

use std::net::{Ipv4Addr, Ipv6Addr};

use mmb_dpdk::{Device, FlowAddresses, FlowFate, FlowPattern, FlowProto, FlowRule};
use net::*;

fn anywhere(proto: FlowProto) -> FlowPattern {
    let addresses = FlowAddresses::V4([(Ipv4Addr::UNSPECIFIED, 0); 2]);
    FlowPattern { addresses, proto, ports: [(0, 0); 2] }
}

fn marks() -> FlowRule {
    FlowRule {
        pattern: anywhere(FlowProto::Udp),
        mark: Some(1),
        counts: false,
        priority: 0,
        fate: FlowFate::Passthru,
    }
}

fn rule(pattern: FlowPattern, fate: FlowFate) -> FlowRule {
    FlowRule { pattern, mark: None, fate, ..marks() }
}

/// In testpmd's syntax: `flow validate 0 ingress pattern eth / ipv4 / udp / end actions mark id 1 / passthru
/// / end`.
#[test]
fn drivers_report_support_for_marks() {
    in_namespace(|| {
        let pool = pool();
        let socket = std::env::temp_dir().join(format!("mmb-flow-rules-{}", std::process::id()));
        let capture = std::env::temp_dir().join(format!("mmb-flow-rules-{}.pcap", std::process::id()));
        let pcap = Device::Pcap { rx: None, tx: Some(capture.to_str().unwrap().into()) };
        let memif = Device::Memif { socket: socket.to_str().unwrap().into(), client: false };
        let no_rules =
            "rte_flow_validate failed: Function not implemented (error 38, caused by an unspecified part)";
        let other_rules = "rte_flow_validate failed: action not supported (error 95, caused by an action)";
        let answers = [
            (Device::Null { receive: Some(64) }, "net_null", no_rules),
            (Device::Loop, "net_ring", no_rules),
            (pcap, "net_pcap", no_rules),
            (memif, "net_memif", no_rules),
            (Device::AfPacket { interface: "mmb0".into() }, "net_af_packet", no_rules),
            (xdp(), "net_af_xdp", no_rules),
            (Device::Tap { interface: Some("mmbtap".into()) }, "net_tap", other_rules),
        ];
        for (device, driver, answer) in answers {
            let port = open(device, &pool).unwrap();
            assert_eq!(port.info().driver, driver);
            let error = port.validate_flow(&marks()).unwrap_err();
            assert_eq!(error.to_string(), format!("port p0: {answer}"), "{driver}");
            // Creating a rule that is not supported fails, too.
            assert_eq!(port.create_flow(&marks()).unwrap_err(), error);
        }
        let _ = std::fs::remove_file(socket);
        let _ = std::fs::remove_file(capture);
    });
}

/// Rules of a tap, which the kernel applies to frames that its interface sends. They exist as long as their
/// handles.
#[test]
fn rules_of_a_tap() {
    in_namespace(|| {
        let pool = pool();
        let mut port = open(Device::Tap { interface: Some("mmbtap".into()) }, &pool).unwrap();
        sysctl("net/ipv6/conf/mmbtap/disable_ipv6", "1");
        let net = |address: [u8; 4], bits| (Ipv4Addr::from(address), bits);
        let four = FlowAddresses::V4([net([10, 1, 2, 3], 8), net([192, 0, 2, 1], 32)]);
        let to_dns = FlowPattern { addresses: four, proto: FlowProto::Udp, ports: [(0, 0), (53, 0xffff)] };
        let six = FlowAddresses::V6([(Ipv6Addr::LOCALHOST, 128), (Ipv6Addr::UNSPECIFIED, 0)]);
        let web = FlowPattern { addresses: six, proto: FlowProto::Tcp, ports: [(80, 0xffff), (0, 0)] };
        for pattern in [to_dns, web] {
            port.validate_flow(&rule(pattern, FlowFate::Drop)).unwrap();
            port.validate_flow(&rule(pattern, FlowFate::Passthru)).unwrap();
        }
        let counted = FlowRule { counts: true, ..rule(to_dns, FlowFate::Drop) };
        assert_eq!(port.validate_flow(&counted).unwrap_err().errno, libc::ENOTSUP);
        let (mut rx, _) = queues(&mut port);
        let peer = Raw::new("mmbtap");
        let dns = mmb_packet::build::Frame::new(
            mmb_packet::build::Ip4::new([10, 0, 0, 1], [192, 0, 2, 1]),
            mmb_packet::build::Udp::new(1, 53),
        )
        .payload([0; 30])
        .build();
        let arrives = |rx: &mut _| {
            peer.send(&dns);
            peer.send(&frame(60, 9));
            let mut got = Vec::new();
            while !got.contains(&frame(60, 9)) {
                got.extend(receive_within(rx, 1, 1_000));
            }
            got.contains(&dns)
        };
        assert!(arrives(&mut rx));
        match port.create_flow(&rule(to_dns, FlowFate::Drop)) {
            Ok(handle) => {
                assert_eq!(handle.packets().unwrap(), None);
                assert!(!arrives(&mut rx));
                handle.destroy().unwrap();
                assert!(arrives(&mut rx));
                let dropped = port.create_flow(&rule(to_dns, FlowFate::Drop)).unwrap();
                drop(port);
                drop(rx);
                drop(dropped);
            }
            // The driver's rules need the kernel's traffic control.
            Err(error) => {
                println!("not tried: {error}");
                assert_eq!(error.call, "rte_flow_create");
            }
        }
    });
}
