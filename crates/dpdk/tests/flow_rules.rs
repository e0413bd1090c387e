//! Flow rules on ports without special hardware: none of them has any. Ports on kernel interfaces need root
//! and are skipped, with a message, without it.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/net.rs"]
mod net;

use std::net::Ipv4Addr;

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
        let answers = [
            (Device::Null { receive: Some(64) }, "net_null", no_rules),
            (Device::Loop, "net_ring", no_rules),
            (pcap, "net_pcap", no_rules),
            (memif, "net_memif", no_rules),
            (Device::AfPacket { interface: "mmb0".into() }, "net_af_packet", no_rules),
            (xdp(), "net_af_xdp", no_rules),
            (Device::Tap { interface: Some("mmbtap".into()) }, "tap", no_rules),
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
