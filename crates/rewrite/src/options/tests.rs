//! Option edits on frames whose lengths and checksums the builder computes from scratch.

use mmb_lang::{Command, parse_line};
use mmb_packet::build::{Extension, Frame, Ip4, Ip6, Net, Tcp, Udp};
use mmb_packet::{DropReason, Meta, PacketBuf, VecPacket, parse};

use crate::{EditLimits, EditProgram, apply_programs};

const PORT: u16 = 1;

fn program(targets: &str) -> EditProgram {
    let Ok(Some(Command::Add(rule))) = parse_line(&format!("add all {targets}")) else {
        panic!("{targets} are no targets");
    };
    EditProgram::compile(&rule.targets, &|_| Some(7)).unwrap()
}

/// Applies rules, separated by semicolons, to a frame whose output port accepts at most `most` bytes.
fn edited(rules: &str, frame: &[u8], most: usize) -> (Result<(), DropReason>, VecPacket, Meta) {
    let programs: Vec<_> = rules.split(';').map(program).collect();
    let mut meta = Meta { out_port: PORT, ..Meta::default() };
    assert_eq!(parse(frame, frame.len(), &mut meta), Ok(()));
    let before = (frame.to_vec(), meta);
    let mut packet = VecPacket::new(frame);
    let done = apply_programs(programs.iter(), &mut packet, &mut meta, EditLimits { frame_max: |_| most });
    if done.is_err() {
        assert_eq!((packet.head().to_vec(), meta), before, "refused, yet changed");
    }
    (done, packet, meta)
}

fn ip4() -> Ip4 {
    Ip4::new([10, 0, 0, 1], [198, 18, 0, 1])
}

fn nets() -> Vec<Net> {
    let ip6 = Ip6::new([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2]);
    let destination = Extension::Plain { number: 60, body: vec![1; 14] };
    let routing =
        Extension::Routing { kind: 4, segments_left: 1, addresses: vec![[7; 16].into(), [8; 16].into()] };
    let atomic = Extension::Fragment { offset: 0, more: false, id: 5 };
    vec![
        ip4().into(),
        Ip4 { options: vec![1; 40], ..ip4() }.into(),
        ip6.clone().into(),
        ip6.clone().with([destination]).into(),
        ip6.clone().with([routing]).into(),
        ip6.with([atomic]).into(),
    ]
}

fn frame(net: Net, options: &[u8], payload: &[u8]) -> Frame {
    Frame::new(net, Tcp { options: options.to_vec(), flags: 2, ..Tcp::new(40_000, 80) }).payload(payload)
}

/// Checks the result of the rules for packets of all kinds.
#[track_caller]
fn expect(rules: &str, before: &[u8], after: &[u8]) {
    let long: Vec<u8> = (0..255).cycle().take(1001).collect();
    for net in nets() {
        for payload in [&b""[..], b"x", &long] {
            let frame = |options| frame(net.clone(), options, payload).vlan(5);
            let (done, packet, meta) = edited(rules, &frame(before).build(), usize::MAX);
            assert_eq!(done, Ok(()));
            assert_eq!(packet.head(), frame(after).build(), "{rules}");
            let mut again = Meta { out_port: PORT, ..Meta::default() };
            assert_eq!(parse(packet.head(), packet.len(), &mut again), Ok(()));
            assert_eq!(again, meta, "{rules}");
        }
    }
}

#[track_caller]
fn refused(rules: &str, before: &[u8]) -> DropReason {
    let (done, ..) = edited(rules, &frame(ip4().into(), before, b"x").build(), usize::MAX);
    done.expect_err(rules)
}

const MSS: [u8; 4] = [2, 4, 0x05, 0xb4];
const TIMESTAMP: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7];
/// The options of a Linux SYN.
const SYN: [u8; 20] = [2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7, 1, 3, 3, 7];

#[test]
fn a_value_is_overwritten_in_place() {
    expect("mod tcp-opt-mss 1400", &MSS, &[2, 4, 0x05, 0x78]);
    expect("mod tcp-opt-mss 1400", &[1, 2, 4, 5, 180, 1, 1, 0], &[1, 2, 4, 0x05, 0x78, 1, 1, 0]);
    expect("mod tcp-opt-wscale 14", &SYN, &[&SYN[..19], &[14]].concat());
    expect("mod tcp-opt-wscale 14", &[3, 3, 7], &[3, 3, 14]);
    expect("mod tcp-opt-timestamp 0x0102030405060708", &TIMESTAMP, &[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
    expect("mod tcp-opt 253 0xaabbcc", &[1, 253, 5, 1, 2, 3, 0, 0], &[1, 253, 5, 0xaa, 0xbb, 0xcc, 0, 0]);
    let all = "mod tcp-opt-mss 1; mod tcp-opt-wscale 2; mod tcp-opt-timestamp 3; mod tcp-opt-mss 4; mod tcp-opt-mss 5";
    expect(all, &SYN, &[2, 4, 0, 5, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 3, 1, 3, 3, 2]);
}

#[test]
fn unreadable_bytes_stay_if_only_values_change() {
    let rest = [1, 0, 9, 9, 30, 77, 0, 0];
    expect("mod tcp-opt-mss 1400", &[&MSS[..], &rest].concat(), &[&[2, 4, 0x05, 0x78][..], &rest].concat());
    expect("mod tcp-opt-wscale 3", &[&MSS[..], &rest].concat(), &[&MSS[..], &rest].concat());
    expect("strip tcp-opt-mptcp", &[&MSS[..], &rest].concat(), &[&MSS[..], &rest].concat());
    // Removed and added again at the same position: the same list.
    expect(
        "strip tcp-opt-mss add tcp-opt-mss 1460",
        &[&MSS[..], &rest].concat(),
        &[&MSS[..], &rest].concat(),
    );
    expect("strip all; add tcp-opt-mss 1", &[&MSS[..], &rest].concat(), &[&[2, 4, 0, 1][..], &rest].concat());
}

#[test]
fn unreadable_bytes_are_removed_by_a_new_layout() {
    let before = [2, 4, 5, 180, 1, 4, 2, 30, 77, 0, 0, 0];
    expect("add tcp-opt-wscale 7", &before, &[2, 4, 5, 180, 1, 4, 2, 3, 3, 7, 0, 0]);
    expect("strip tcp-opt-mss", &before, &[1, 4, 2, 0]);
    expect("strip tcp-opt-sackp", &before, &MSS);
    expect("add tcp-opt-sackp", &[0, 2, 4, 5], &[4, 2, 0, 0]);
}

#[test]
fn a_write_repairs_an_option_of_invalid_length() {
    expect("mod tcp-opt-mss 1400", &[2, 3, 5, 0], &[2, 4, 0x05, 0x78]);
    expect("mod tcp-opt-mss 1400", &[2, 6, 5, 180, 0, 0, 4, 2], &[2, 4, 0x05, 0x78, 4, 2, 0, 0]);
    expect(
        "mod tcp-opt-fast-open 0x0102030405060708",
        &[1, 1, 34, 2],
        &[1, 1, 34, 10, 1, 2, 3, 4, 5, 6, 7, 8],
    );
    expect("mod tcp-opt 253 0x01; mod tcp-opt 253 0x0203", &[253, 2, 4, 2], &[253, 4, 2, 3, 4, 2, 0, 0]);
}

#[test]
fn every_duplicate_gets_the_value() {
    let before = [1, 2, 4, 5, 180, 1, 1, 2, 4, 2, 24, 3, 3, 7, 1, 1];
    let after = [1, 2, 4, 0x05, 0x78, 1, 1, 2, 4, 0x05, 0x78, 3, 3, 7, 1, 1];
    expect("mod tcp-opt-mss 1400", &before, &after);
    expect("add tcp-opt-mss 1400", &before, &after);
    expect("mod tcp-opt-mss 1400", &[2, 4, 5, 180, 1, 2, 2, 0], &[2, 4, 0x05, 0x78, 1, 2, 4, 0x05, 0x78]);
    expect("strip tcp-opt-mss", &before, &[3, 3, 7]);
}

#[test]
fn padding_stays_with_the_option_behind_it() {
    expect(
        "strip tcp-opt-timestamp",
        &[&MSS[..], &TIMESTAMP, &[1, 3, 3, 7]].concat(),
        &[&MSS[..], &[1, 3, 3, 7]].concat(),
    );
    expect("strip tcp-opt-timestamp", &TIMESTAMP, &[]);
    expect("strip tcp-opt-sackp", &SYN, &[&[2, 4, 5, 180][..], &SYN[6..], &[0, 0]].concat());
    expect("add tcp-opt-mss 1460", &TIMESTAMP, &[&TIMESTAMP[..], &MSS].concat());
    expect("add tcp-opt-sackp", &[1, 1, 1, 1], &[4, 2]);
}

#[test]
fn options_are_added_in_rule_order() {
    expect(
        "add tcp-opt-mss 1460 add tcp-opt-sackp; add tcp-opt-wscale 7",
        &[],
        &[2, 4, 5, 180, 4, 2, 3, 3, 7],
    );
    expect("add tcp-opt-mss 1400", &SYN, &[&[2, 4, 0x05, 0x78][..], &SYN[4..]].concat());
    expect("strip tcp-opt-mss add tcp-opt-mss 1", &SYN, &[&SYN[4..], &[2, 4, 0, 1]].concat());
    expect("add tcp-opt 253 0xabcd", &[], &[253, 4, 0xab, 0xcd]);
    expect("add tcp-opt 253", &[], &[253, 2]);
    expect("add tcp-opt-fast-open", &[], &[34, 2]);
}

#[test]
fn strip_all_but_applies_at_the_position_of_the_first() {
    let kept = [2, 4, 5, 180, 1, 3, 3, 7];
    expect("strip ! tcp-opt-mss strip ! tcp-opt-wscale", &SYN, &kept);
    expect(
        "strip ! tcp-opt-mss add tcp-opt-sackp strip ! tcp-opt-wscale",
        &SYN,
        &[&kept[..], &[4, 2]].concat(),
    );
    expect("add tcp-opt 19 0x01; strip ! tcp-opt-mss strip ! tcp-opt-wscale", &SYN, &kept);
    expect("strip ! tcp-opt 3", &SYN, &[1, 3, 3, 7]);
    expect("strip all", &SYN, &[]);
    expect("strip tcp-opt", &SYN, &[]);
    expect("strip ! tcp-opt 19", &SYN, &[]);
}

#[test]
fn header_fields_change_with_the_options() {
    let frame = |net: Ip4, dport, flags, options: &[u8]| {
        let tcp = Tcp { options: options.to_vec(), flags, ..Tcp::new(40_000, dport) };
        Frame::new(net, tcp).payload(b"odd").pad_to(100).build()
    };
    let rules = "mod tcp-dport 443; add tcp-opt-mss 1460 mod tcp-syn 1; mod ip-ttl 9 mod ip-saddr 192.0.2.1 mod out wan";
    let (done, packet, meta) = edited(rules, &frame(ip4(), 80, 0x10, &TIMESTAMP), 200);
    let net = Ip4 { ttl: 9, src: [192, 0, 2, 1].into(), ..ip4() };
    let options = [&TIMESTAMP[..], &MSS].concat();
    let mut expected = frame(net, 443, 0x12, &options);
    // The trailer of the frame stays behind the packet.
    expected.extend([0; 4]);
    assert_eq!((done, packet.head(), meta.out_port), (Ok(()), &expected[..], 7));
}

/// RFC 9293, 3.1: the data offset has four bits.
#[test]
fn options_are_limited_to_forty_bytes() {
    let thirty_six = [&[1, 1, 253, 34][..], &[0x5a; 32]].concat();
    expect("add tcp-opt-mss 1460", &thirty_six, &[&thirty_six[..], &MSS].concat());
    expect("add tcp-opt-wscale 7", &thirty_six, &[&thirty_six[..], &[3, 3, 7]].concat());
    assert_eq!(refused("add tcp-opt 254 0x010203", &thirty_six), DropReason::OptionSpace);
    assert_eq!(refused("add tcp-opt-timestamp 1", &thirty_six), DropReason::OptionSpace);
    let with_room = "add tcp-opt-timestamp 1; strip tcp-opt 253";
    expect(with_room, &thirty_six, &[8, 10, 0, 0, 0, 0, 0, 0, 0, 1]);
    let full = "mod tcp-opt 253 0x00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff0011223344";
    assert_eq!(refused(full, &[1, 1, 253, 2]), DropReason::OptionSpace, "padding counts");
    let data: Vec<u8> = (0..16).chain(0..16).map(|n| n * 0x11).chain([0, 0x11, 0x22, 0x33, 0x44]).collect();
    expect(full, &[1, 253, 2, 0], &[&[1, 253, 39][..], &data].concat());
}

/// An intermediate list may hold more options than a header can.
#[test]
fn only_the_result_has_to_fit() {
    let adds: Vec<String> = (100..=255).map(|kind| format!("add tcp-opt {kind} 0x0102030405")).collect();
    let adds = adds.join("; ");
    expect(&format!("{adds}; strip ! tcp-opt 200"), &SYN, &[200, 7, 1, 2, 3, 4, 5]);
    assert_eq!(refused(&adds, &SYN), DropReason::OptionSpace);
    let twenty = [253, 2].repeat(20);
    expect(&format!("{adds}; strip ! tcp-opt 200"), &twenty, &[200, 7, 1, 2, 3, 4, 5]);
}

#[test]
fn fragments_keep_their_length() {
    let first = |options: &[u8]| frame(Ip4 { flags: 1, ..ip4() }.into(), options, &[1; 8]).build();
    let outcome = |rules, options: &[u8]| edited(rules, &first(options), usize::MAX);
    assert_eq!(outcome("add tcp-opt-mss 1460", &TIMESTAMP).0, Err(DropReason::OptionFragment));
    assert_eq!(outcome("strip all mod out wan", &TIMESTAMP).0, Err(DropReason::OptionFragment));
    let (done, packet, _) = outcome("mod tcp-opt-mss 1400", &MSS);
    assert_eq!((done, &packet.head()[54..58]), (Ok(()), &[2, 4, 0x05, 0x78][..]));
    let (done, packet, _) = outcome("strip tcp-opt-sackp add tcp-opt 253", &[4, 2, 1, 1]);
    assert_eq!((done, &packet.head()[54..58]), (Ok(()), &[253, 2, 0, 0][..]), "as long as before");
}

#[test]
fn frames_respect_the_ports_maximum() {
    let syn = frame(ip4().into(), &MSS, b"").build();
    let outcome = |rules, most| edited(rules, &syn, most).0;
    assert_eq!(outcome("add tcp-opt-sackp mod out wan", syn.len() + 3), Err(DropReason::OptionMtu));
    assert_eq!(outcome("add tcp-opt-sackp", syn.len() + 4), Ok(()));
    assert_eq!(outcome("mod tcp-opt-mss 1", 0), Ok(()), "no growth");
    assert_eq!(outcome("strip all", 0), Ok(()), "it shrinks");
    let programs = [program("add tcp-opt-sackp"), program("mod out wan")];
    let mut meta = Meta { out_port: PORT, ..Meta::default() };
    assert_eq!(parse(&syn, syn.len(), &mut meta), Ok(()));
    let frame_max = |port| if port == 7 { usize::MAX } else { 0 };
    let done =
        apply_programs(programs.iter(), &mut VecPacket::new(&syn), &mut meta, EditLimits { frame_max });
    assert_eq!((done, meta.out_port), (Ok(()), 7), "the port that it really goes out at");
}

#[test]
fn an_edit_needs_head_room() {
    let syn = frame(ip4().into(), &MSS, b"x").build();
    let (mut packet, mut meta) = (VecPacket::with_room(&syn, 3), Meta::default());
    assert_eq!(parse(&syn, syn.len(), &mut meta), Ok(()));
    let programs = [program("mod ip-ttl 1"), program("add tcp-opt-sackp")];
    let done =
        apply_programs(programs.iter(), &mut packet, &mut meta, EditLimits { frame_max: |_| usize::MAX });
    assert_eq!((done, packet.head()), (Err(DropReason::OptionRoom), &syn[..]));
}

#[test]
fn packets_respect_ips_maximum_length() {
    for (net, header) in [(Net::from(ip4()), 20), (Ip6::new([1; 16], [2; 16]).into(), 0)] {
        let payload = vec![0x5a; 65_535 - header - 24];
        let long = frame(net.clone(), &MSS, &payload).build();
        assert_eq!(edited("add tcp-opt-sackp", &long, usize::MAX).0, Err(DropReason::OptionSpace));
        let (done, packet, meta) = edited("strip all", &long, usize::MAX);
        assert_eq!((done, packet.head()), (Ok(()), &frame(net, &[], &payload).build()[..]));
        assert_eq!(usize::from(meta.end), packet.len().min(65_535));
    }
}

#[test]
fn packets_without_tcp_are_unchanged() {
    let later = Ip4 { fragment_offset: 8, ..ip4() };
    for frame in [
        Frame::new(ip4(), Udp::new(1, 2)).payload([0x5a; 40]).build(),
        Frame::new(later, mmb_packet::build::Transport::Raw(6)).payload([0x5a; 40]).build(),
    ] {
        let (done, packet, _) = edited("add tcp-opt-mss 1460 strip tcp-opt-sackp", &frame, usize::MAX);
        assert_eq!((done, packet.head()), (Ok(()), &frame[..]));
    }
}
