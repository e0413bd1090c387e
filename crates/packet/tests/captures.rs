//! Frames from tcpdump's test captures: the parser finds what tcpdump prints, and the builder makes the
//! same bytes, checksums included.

use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Tcp, Udp};
use mmb_packet::checksum::complete_partial;
use mmb_packet::{Kind, Meta, PacketFlags, parse};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn mac(hex: &str) -> [u8; 6] {
    let mut mac = [0; 6];
    mac.copy_from_slice(&bytes(hex));
    mac
}

fn parsed(frame: &[u8]) -> Meta {
    let mut meta = Meta::default();
    assert_eq!(parse(frame, frame.len(), &mut meta), Ok(()));
    meta
}

#[track_caller]
fn expect(frame: &[u8], kind: u8, proto: u8, offsets: [u16; 3], flags: PacketFlags) {
    let m = parsed(frame);
    assert_eq!((m.kind, m.proto, [m.l3_off, m.l4_off, m.end], m.flags), (Kind(kind), proto, offsets, flags));
    let mut same = frame.to_vec();
    assert!(!complete_partial(&mut same, [], &m) && same == frame, "a right checksum was completed");
}

/// dns_udp.pcap: IP 192.168.1.11.43966 > 209.87.249.18.53: [udp sum ok] … (56)
#[test]
fn dns_query() {
    let frame = bytes(
        "001122334466 001122334455 0800 45000054 59cd0000 401194ae c0a8010b d157f912 abbe0035 00407824
         5934 0120 0001 0000 0000 0001 0377777707746370 64756d70036f7267 00 00010001 0000291000000000
         00000c000a000842f5d00996f90b13",
    );
    expect(&frame, Kind::IP4 | Kind::UDP, 17, [14, 34, 98], PacketFlags::empty());
    let ip = Ip4 { id: 22989, ..Ip4::new([192, 168, 1, 11], [209, 87, 249, 18]) };
    let built = Frame::new(ip, Udp::new(43966, 53))
        .macs(mac("001122334455"), mac("001122334466"))
        .payload(&frame[42..])
        .build();
    assert_eq!(built, frame);
}

/// A BGP capture: vlan 23, p 6, 2.2.2.2.179 > 3.3.3.3.56988: Flags [P.], cksum 0x3c01 (correct), … length 71
#[test]
fn bgp_open_in_a_vlan() {
    let frame = bytes(
        "02060a0efff4 02060a0efff3 8100c017 0800 45c0007b faf70000 ff06b5bb 02020202 03030303 00b3de9c 13f29ccb
         f728dc73 80184000 3c010000 0101080a8090f8b68090f8b5 ffffffffffffffffffffffffffffffff 00470104fde8005a
         020202022a020601040001008002060104001900460202800002020200020440024078020641040000fde802024700",
    );
    expect(&frame, Kind::IP4 | Kind::TCP, 6, [18, 38, 141], PacketFlags::empty());
    let ip = Ip4 { tos: 0xc0, id: 64247, ttl: 255, ..Ip4::new([2, 2, 2, 2], [3, 3, 3, 3]) };
    let tcp = Tcp {
        seq: 334666955,
        ack: 4146650227,
        flags: 0x18,
        window: 16384,
        options: bytes("0101080a8090f8b68090f8b5"),
        ..Tcp::new(179, 56988)
    };
    let built = Frame::new(ip, tcp)
        .macs(mac("02060a0efff3"), mac("02060a0efff4"))
        .tag(0x8100, 0xc017)
        .payload(&frame[70..])
        .build();
    assert_eq!(built, frame);
}

/// icmp-rfc8335.pcap: IP 149.28.74.237 > 204.194.23.128: ICMP type-#42, length 24
#[test]
fn icmp_extended_echo() {
    let frame = bytes(
        "fe0004a34c83 560004a34c83 0800 4500002c 00010000 4001b684 951c4aed ccc21780 2a00abd4 002a2a01
         2000d819000c0301667870302e300000",
    );
    expect(&frame, Kind::IP4 | Kind::ICMP, 1, [14, 34, 58], PacketFlags::empty());
    let icmp = Icmp { rest: [0, 42, 42, 1], ..Icmp::new(42) };
    let built = Frame::new(Ip4 { id: 1, ..Ip4::new([149, 28, 74, 237], [204, 194, 23, 128]) }, icmp)
        .macs(mac("560004a34c83"), mac("fe0004a34c83"))
        .payload(&frame[42..])
        .build();
    assert_eq!(built, frame);
}

/// IP6 fe80::a00:27ff:fe46:e884 > ff02::16: HBH (rtalert: 0x0000) (padn) [icmp6 sum ok] ICMP6, listener
/// report v2
#[test]
fn listener_report_behind_hop_by_hop_options() {
    let frame = bytes(
        "333300000016 08002746e884 86dd 6000000000240001 fe800000000000000a0027fffe46e884
         ff020000000000000000000000000016 3a00050200000100 8f00583e00000001
         04000000ff0200000000000000000001ff000000",
    );
    expect(&frame, Kind::IP6 | Kind::ICMP6, 58, [14, 62, 90], PacketFlags::empty());
    let ip = Ip6::new([0xfe80, 0, 0, 0, 0xa00, 0x27ff, 0xfe46, 0xe884], [0xff02, 0, 0, 0, 0, 0, 0, 0x16])
        .with([Extension::Plain { number: 0, body: vec![5, 2, 0, 0, 1, 0] }]);
    let built = Frame::new(Ip6 { hop_limit: 1, ..ip }, Icmp { rest: [0, 0, 0, 1], ..Icmp::new(143) })
        .macs(mac("08002746e884"), mac("333300000016"))
        .payload(&frame[70..])
        .build();
    assert_eq!(built, frame);
}

/// ipv6-routing-header.pcap: RT6 (len=2, type=0, segleft=1, [0]2200::210:2:0:0:4) 5645 > 5642: [udp sum ok]
/// UDP, length 0
#[test]
fn the_pseudo_header_has_the_last_hop() {
    let frame = bytes(
        "0013c4c784f0 00123fae22f7 86dd 6000000000202b04 22000000000002440212 3ffffeae22f7
         22000000000002400002000000000004 1102000100000000 22000000000002100002000000000004 160d160a000827b6",
    );
    expect(&frame, Kind::IP6 | Kind::UDP, 17, [14, 78, 86], PacketFlags::ROUTED);
    let hops = Extension::Routing {
        kind: 0,
        segments_left: 1,
        addresses: vec![[0x2200, 0, 0, 0x210, 2, 0, 0, 4].into()],
    };
    let ip =
        Ip6::new([0x2200, 0, 0, 0x244, 0x212, 0x3fff, 0xfeae, 0x22f7], [0x2200, 0, 0, 0x240, 2, 0, 0, 4])
            .with([hops]);
    let built = Frame::new(Ip6 { hop_limit: 4, ..ip }, Udp::new(5645, 5642))
        .macs(mac("00123fae22f7"), mac("0013c4c784f0"))
        .build();
    assert_eq!(built, frame);
}

/// OSPFv3_with_AH.pcap: AH(length=4(24-bytes)…): OSPFv3
#[test]
fn authentication_header() {
    let frame = bytes(
        "c20168b30001 c20068b30001 86dd 6e00000000343301 fe800000000000000000000000000001
         fe800000000000000000000000000002 590400000000010000000016d0883638d39101562e836679
         0302001c0101010100000001e47100000000001305dc0007000012fd",
    );
    expect(&frame, Kind::IP6, 89, [14, 78, 106], PacketFlags::empty());
}

/// 802.1ad_QinQ.pcap: vlan 200, p 0, ethertype 802.1Q (0x8100), vlan 2001, p 0, ethertype ARP
#[test]
fn arp_in_two_vlans_is_not_ip() {
    let frame = bytes(
        "ffffffffffff 0020d25afb3f 88a800c8 810007d1 0806 0001080006040001 0020d25afb3fac154f61
         000000000000ac154f64 000000000000000000000000",
    );
    let m = parsed(&frame);
    assert_eq!((m.kind, m.ethertype, m.l3_off, m.end), (Kind(0), 0x0806, 22, 62));
}

/// mptcp-v1.pcap, as captured on the sending Linux host: Flags [S], cksum 0x1734 (incorrect -> 0x667c)
#[test]
fn linux_left_the_checksum_to_hardware() {
    let mut frame = bytes(
        "020000000002 020000000001 0800 45000040 ad7f4000 40067637 0a000101 0a000201 821a2714 81fbb5fd
         00000000 b002ffff 17340000 020405b4 0402080a 1baf9ea1 00000000 01030308 1e040101",
    );
    let m = parsed(&frame);
    assert!(complete_partial(&mut frame, [], &m));
    assert_eq!(frame[50..52], [0x66, 0x7c]);
    expect(&frame, Kind::IP4 | Kind::TCP, 6, [14, 34, 78], PacketFlags::empty());
}
