//! Properties of the packet crate for any bytes. The fuzz target `packet` runs them on the fuzzer's input. A
//! test of the crate runs them on the corpus and on random frames.

use mmb_packet::checksum::complete_partial;
use mmb_packet::window::{
    CHUNKS, ETHERTYPE, IN_PORT, IP6_EXTENSIONS, KIND, OPTION_TIMESTAMP, OUT_PORT, UNNAMED_OPTIONS,
};
use mmb_packet::{
    DropReason, Kind, Loc, Meta, PacketFlags, PayloadLayer, Window, fill_window, parse, payload, tcp_options,
};

#[path = "options.rs"]
#[allow(dead_code, reason = "its own target and tests use the rest")]
pub mod options;

#[path = "merge.rs"]
mod merge;

/// Maximum length of an Ethernet header with the tags that the parser skips.
const L2_MOST: usize = 14 + 4 * 4;
const PORTS: (u16, u16) = (0x1234, 0xfedc);

/// Panics if a property does not hold for `frame`.
pub fn check(frame: &[u8]) {
    let mut meta = Meta::default();
    let whole = parse(frame, frame.len(), &mut meta);
    check_meta(frame, whole, &meta);
    check_window(frame, &meta);
    check_payloads(frame, &meta);
    for cut in 0..frame.len().min(300) {
        let mut short = Meta::default();
        let result = parse(&frame[..cut], cut, &mut short);
        check_meta(&frame[..cut], result, &short);
        check_head(frame, cut, whole, &meta);
    }
    any_metadata(frame);
    merge::check(frame);
    if whole.is_ok() {
        check_symmetry(frame, &meta);
        check_partial(frame, &meta);
        check_partial(&with_pseudo_sum(frame, &meta), &meta);
    }
}

/// Offsets are ascending and inside the frame, and the headers of the kind are complete.
fn check_meta(frame: &[u8], result: Result<(), DropReason>, meta: &Meta) {
    let (l3, l4, end) = (usize::from(meta.l3_off), usize::from(meta.l4_off), usize::from(meta.end));
    assert!(l3 <= l4 && l4 <= end && end <= frame.len(), "offsets of {meta:?} in {} bytes", frame.len());
    let fixed = match meta.kind.l4() {
        Kind::L4_NONE => 0,
        Kind::TCP => 20,
        _ => 8,
    };
    assert!(l4 + fixed <= end, "transport header of {meta:?}");
    let is_described = result.is_ok_and(|()| meta.kind.l3() != 0);
    if result.is_err_and(DropReason::is_transport_error) {
        assert_eq!(meta.kind.l4(), Kind::L4_NONE);
        assert_ne!(meta.kind.l3(), 0);
    } else if !is_described {
        assert_eq!((meta.kind, meta.flags, meta.flow_hash), (Kind(0), PacketFlags::empty(), 0));
        return;
    }
    let (ethertype, icmp, header) = match meta.kind.l3() {
        Kind::IP4 => (0x0800, 1, 20),
        _ => (0x86dd, 58, 40),
    };
    assert_eq!(meta.ethertype, ethertype);
    assert!(l4 >= l3 + header);
    let proto = [6, 17, icmp, icmp][match meta.kind.l4() {
        Kind::L4_NONE => return,
        Kind::TCP => 0,
        Kind::UDP => 1,
        Kind::ICMP => 2,
        _ => 3,
    }];
    assert_eq!(meta.proto, proto);
    assert!(!meta.flags.contains(PacketFlags::LATER_FRAGMENT));
}

/// With only the first `cut` bytes contiguous, the result is the same, or an error says that the headers do
/// not fit.
fn check_head(frame: &[u8], cut: usize, whole: Result<(), DropReason>, meta: &Meta) {
    if cut < L2_MOST {
        return;
    }
    let mut seen = Meta::default();
    let result = parse(&frame[..cut], frame.len(), &mut seen);
    if result != Err(DropReason::HeaderTooLong) {
        assert_eq!((result, &seen), (whole, meta), "with {cut} bytes contiguous");
        assert_eq!(window(&frame[..cut], &seen), window(frame, meta), "with {cut} bytes contiguous");
    }
}

fn window(head: &[u8], meta: &Meta) -> Window {
    let mut window = Window::default();
    fill_window(head, meta, PORTS.0, PORTS.1, u8::MAX, &mut window);
    window
}

fn bit(bytes: &[u8], at: usize) -> u8 {
    bytes[at / 8] >> (7 - at % 8) & 1
}

/// The window holds every header bit at its place, and nothing else. Chunks that were not requested stay
/// unchanged.
fn check_window(frame: &[u8], meta: &Meta) {
    let mut expected = Window::default();
    let bytes = expected.bytes_mut();
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let mut copy = |loc: fn(u16) -> Loc, header: usize, bits: u16| {
        let (byte, mask, value) = loc(0).present();
        assert_eq!(byte, KIND);
        for at in (0..bits).filter(|_| meta.kind.0 & mask == value) {
            let to = loc(at).window_bit();
            bytes[to / 8] |= bit(frame, header * 8 + usize::from(at)) << (7 - to % 8);
        }
    };
    copy(Loc::Ip4, l3, 160);
    copy(Loc::Ip6, l3, 320);
    copy(Loc::Tcp, l4, 160);
    copy(Loc::Udp, l4, 64);
    copy(Loc::Icmp, l4, 64);
    copy(Loc::Icmp6, l4, 64);
    // ip-proto and ip6-next are in the first chunk. The last chunk has them again, between their neighbours.
    match meta.kind.l3() {
        Kind::IP4 => bytes[64 + 9] = frame[l3 + 9],
        Kind::IP6 => bytes[64 + 6] = frame[l3 + 6],
        _ => {}
    }
    if meta.kind.l4() == Kind::TCP {
        let area = &frame[l4 + 20..l4 + usize::from(frame[l4 + 12] >> 4) * 4];
        bytes[OPTION_TIMESTAMP..=UNNAMED_OPTIONS].copy_from_slice(&options::index(area));
    }
    bytes[IP6_EXTENSIONS..].copy_from_slice(&extensions(frame, meta).to_be_bytes());
    bytes[KIND] = meta.kind.0;
    bytes[IN_PORT..IN_PORT + 2].copy_from_slice(&PORTS.0.to_be_bytes());
    bytes[ETHERTYPE..ETHERTYPE + 2].copy_from_slice(&meta.ethertype.to_be_bytes());
    bytes[OUT_PORT..OUT_PORT + 2].copy_from_slice(&PORTS.1.to_be_bytes());
    for chunks in 0..1u8 << CHUNKS {
        let mut window = Window { chunk: [0x5a; CHUNKS] };
        fill_window(frame, meta, PORTS.0, PORTS.1, chunks, &mut window);
        for i in 0..CHUNKS {
            let want = if chunks >> i & 1 == 1 { expected.chunk[i] } else { 0x5a };
            assert_eq!(
                window.chunk[i].to_ne_bytes(),
                want.to_ne_bytes(),
                "chunk {i} of {chunks:#b}, {meta:?}"
            );
        }
    }
}

/// The bits of the extension headers that are present, by a separate walk.
fn extensions(frame: &[u8], meta: &Meta) -> u16 {
    if meta.kind.l3() != Kind::IP6 {
        return 0;
    }
    let ip = &frame[usize::from(meta.l3_off)..usize::from(meta.end)];
    let (mut number, mut at, mut found) = (ip[6], 40, 0);
    let numbers = [0, 43, 44, 50, 51, 60, 135, 139, 140];
    while let Some(bit) = numbers.iter().position(|n| *n == number)
        && let Some(header) = ip.get(at..at + 8)
    {
        let length = match number {
            44 | 50 => 8,
            51 => 4 * (usize::from(header[1]) + 2),
            _ => 8 * (usize::from(header[1]) + 1),
        };
        let is_second = number == 44 && found & 0x8000 >> bit != 0;
        if at + length > ip.len() || is_second {
            break;
        }
        found |= 0x8000 >> bit | 0x0040;
        let later = number == 44 && u16::from_be_bytes([header[2], header[3]]) >= 8;
        if number == 50 || later {
            break;
        }
        (number, at) = (header[0], at + length);
    }
    found
}

/// Payloads end with the IP packet, begin after the header before them, and are never empty.
fn check_payloads(frame: &[u8], meta: &Meta) {
    let (l3, l4, end) = (usize::from(meta.l3_off), usize::from(meta.l4_off), usize::from(meta.end));
    let (net, transport) = (meta.kind.l3(), meta.kind.l4());
    let expect = |which, there: bool, start: usize, end: usize| {
        let expected = (there && start < end).then(|| &frame[start..end]);
        assert_eq!(payload(frame, meta, which), expected, "{which:?} of {meta:?}");
    };
    let byte = |at: usize| usize::from(*frame.get(at).unwrap_or(&0));
    let udp_end = end.min(l4 + (byte(l4 + 4) << 8 | byte(l4 + 5)));
    expect(PayloadLayer::Ip, net == Kind::IP4, l3 + byte(l3) % 16 * 4, end);
    expect(PayloadLayer::Ip6, net == Kind::IP6, l3 + 40, end);
    expect(PayloadLayer::Icmp, transport == Kind::ICMP, l4 + 8, end);
    expect(PayloadLayer::Icmp6, transport == Kind::ICMP6, l4 + 8, end);
    expect(PayloadLayer::Udp, transport == Kind::UDP, l4 + 8, udp_end);
    expect(PayloadLayer::Tcp, transport == Kind::TCP, l4 + byte(l4 + 12) / 16 * 4, end);
}

/// Metadata of another packet: nothing may panic.
fn any_metadata(bytes: &[u8]) {
    let Some((&[l3, l4, l4_high, kind, proto, flags], head)) = bytes.split_first_chunk() else { return };
    let l4_off = u16::from_be_bytes([if l4_high < 0xf0 { 0 } else { l4_high }, l4]);
    let meta = Meta {
        l3_off: l3.into(),
        l4_off,
        kind: Kind(kind),
        proto,
        flags: PacketFlags::from_bits_retain(flags),
        ..Meta::default()
    };
    let filled = window(head, &meta);
    assert_eq!(filled.bytes()[KIND], kind);
    assert!(tcp_options(head, &meta).count() <= 20);
    for which in [
        PayloadLayer::Ip,
        PayloadLayer::Ip6,
        PayloadLayer::Icmp,
        PayloadLayer::Icmp6,
        PayloadLayer::Udp,
        PayloadLayer::Tcp,
    ] {
        assert!(payload(head, &meta, which).is_none_or(|bytes| !bytes.is_empty()));
    }
}

/// The reply has the same flow hash.
fn check_symmetry(frame: &[u8], meta: &Meta) {
    let mut back = frame.to_vec();
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    match meta.kind.l3() {
        Kind::IP4 => back[l3 + 12..l3 + 20].rotate_left(4),
        Kind::IP6 => back[l3 + 8..l3 + 40].rotate_left(16),
        _ => return,
    }
    if matches!(meta.kind.l4(), Kind::TCP | Kind::UDP) {
        back[l4..l4 + 4].rotate_left(2);
    }
    let mut seen = Meta::default();
    assert_eq!(parse(&back, back.len(), &mut seen), Ok(()));
    assert_eq!(&seen, meta);
}

/// RFC 1071 word by word, with each carry added at once.
fn naive_sum(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0u16;
    for word in pieces.concat().chunks(2) {
        let word = u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]);
        let (low, carry) = sum.overflowing_add(word);
        sum = low + u16::from(carry);
    }
    sum
}

/// The pseudo header, and the offset of the checksum field.
fn pseudo_header(frame: &[u8], meta: &Meta) -> Option<(Vec<u8>, usize)> {
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let field = match meta.kind.l4() {
        Kind::TCP => l4 + 16,
        Kind::UDP => l4 + 6,
        _ => return None,
    };
    let mut header = match meta.kind.l3() {
        Kind::IP4 => frame[l3 + 12..l3 + 20].to_vec(),
        _ => frame[l3 + 8..l3 + 40].to_vec(),
    };
    header.extend([0, meta.proto]);
    header.extend((meta.end - meta.l4_off).to_be_bytes());
    Some((header, field))
}

/// The frame as Linux passes it to hardware, if it has a checksum to complete.
fn with_pseudo_sum(frame: &[u8], meta: &Meta) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if let Some((pseudo, field)) = pseudo_header(&frame, meta) {
        frame[field..field + 2].copy_from_slice(&naive_sum(&[&pseudo]).to_be_bytes());
    }
    frame
}

/// Completion changes only the checksum field, only from the sum of the pseudo header, only to a valid value,
/// only once, and equally wherever the packet is split.
fn check_partial(frame: &[u8], meta: &Meta) {
    let mut done = frame.to_vec();
    let completed = complete_partial(&mut done, [], meta);
    let l4 = usize::from(meta.l4_off);
    match pseudo_header(frame, meta) {
        Some((pseudo, field)) => {
            let segment = |bytes: &[u8]| bytes[l4..usize::from(meta.end)].to_vec();
            let right = |bytes: &[u8]| naive_sum(&[&pseudo, &segment(bytes)]) == 0xffff;
            let pending = frame[field..field + 2] == naive_sum(&[&pseudo]).to_be_bytes();
            let excepted = meta.flags.intersects(PacketFlags::FRAGMENT | PacketFlags::ROUTED)
                || (meta.kind.l4() == Kind::UDP
                    && frame[l4 + 4..l4 + 6] != (meta.end - meta.l4_off).to_be_bytes());
            assert_eq!(completed, pending && !right(frame) && !excepted);
            assert!(!completed || right(&done));
            done[field..field + 2].copy_from_slice(&frame[field..field + 2]);
            assert_eq!(done, frame, "bytes outside of the checksum");
            check_split(frame, meta, completed, l4 + 20);
        }
        None => assert!(!completed && done == frame),
    }
}

fn check_split(frame: &[u8], meta: &Meta, completed: bool, headers: usize) {
    let mut whole = frame.to_vec();
    complete_partial(&mut whole, [], meta);
    assert!(!complete_partial(&mut whole.clone(), [], meta), "completed twice");
    for at in (headers..frame.len()).take(5) {
        let (mut head, rest) = (frame[..at].to_vec(), &frame[at..]);
        let (left, right) = rest.split_at(rest.len() / 2);
        assert_eq!(complete_partial(&mut head, [left, right], meta), completed);
        assert_eq!(head, whole[..at]);
    }
}
