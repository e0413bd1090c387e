//! Properties of the walk over TCP options and of their index in the window, for any bytes. The fuzz target
//! `options` runs them on the fuzzer's input. A test of the crate runs them on the corpus and on random
//! options.

use mmb_packet::build::{Extension, Frame, Ip4, Ip6, Net, Tcp};
use mmb_packet::window::{
    OPTION_MSS, OPTION_TIMESTAMP, OPTION_WSCALE, OPTIONS_PRESENT, OPTIONS_VALUED, UNNAMED_OPTIONS,
};
use mmb_packet::{
    Meta, NamedOption, TcpOption, TcpOptions, Window, fill_window, option_bit, parse, tcp_options,
};

/// Maximum number of option bytes in a header.
const MOST: usize = 40;

/// Panics if a property does not hold for `bytes` as the options of a header.
pub fn check(bytes: &[u8]) {
    check_area(bytes);
    let area = &bytes[..bytes.len().min(MOST)];
    let tcp = || Tcp { options: area.to_vec(), ..Tcp::new(40_000, 80) };
    let ip6 = Ip6::new([1; 8], [2; 8]);
    let extended = ip6.clone().with([Extension::Plain { number: 60, body: vec![0; 14] }]);
    let nets = [Net::from(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2])), ip6.into(), extended.into()];
    for (net, payload) in nets.into_iter().zip([&b""[..], b"x", b"\x08\x0a\x01\x02\x03\x04\x05\x06\x07\x08"])
    {
        let frame = Frame::new(net, tcp()).payload(payload).build();
        check_frame(&frame, frame.len() - payload.len());
    }
}

/// The walk is total, agrees with a naive walk, and reports where it ended.
fn check_area(area: &[u8]) {
    let mut options = TcpOptions::new(area);
    assert_eq!((options.area(), options.position()), (area, 0));
    let (expected, end) = walk(area);
    for option in expected {
        assert_eq!(options.next(), Some(option));
        assert_eq!(options.position(), option.at + 2 + option.data.len());
    }
    assert_eq!((options.next(), options.next(), options.position()), (None, None, end));
}

/// The options end at `header_end`: neither the walk nor the index reads the bytes after it.
fn check_frame(frame: &[u8], header_end: usize) {
    let mut meta = Meta::default();
    assert_eq!(parse(frame, frame.len(), &mut meta), Ok(()));
    let area = &frame[usize::from(meta.l4_off) + 20..header_end];
    check_area(area);
    assert!(tcp_options(frame, &meta).eq(walk(area).0));
    assert!(tcp_options(&frame[..header_end], &meta).eq(walk(area).0));
    assert_eq!(tcp_options(&frame[..header_end], &meta).area(), area);
    assert_eq!(tcp_options(&frame[..header_end - 1], &meta).next(), None, "cut short");
    let mut window = Window::default();
    fill_window(frame, &meta, 1, 2, 1 << 5, &mut window);
    assert_eq!(window.bytes()[OPTION_TIMESTAMP..94], index(area)[..], "{area:?}");
    for option in walk(area).0 {
        let bit = option_bit(option.kind);
        assert_eq!(bit.count_ones(), 1, "{option:?}");
        assert_ne!(window.chunk[5] & bit, 0, "{option:?} in {area:?}");
    }
}

/// The options in `area` and the end of the last one, by a naive walk.
fn walk(area: &[u8]) -> (Vec<TcpOption<'_>>, usize) {
    let (mut options, mut at, mut end) = (Vec::new(), 0, 0);
    while at < area.len() && area[at] != 0 {
        if area[at] == 1 {
            at += 1;
            continue;
        }
        let length = if at + 1 < area.len() { usize::from(area[at + 1]) } else { 0 };
        if length < 2 || at + length > area.len() {
            break;
        }
        options.push(TcpOption { kind: area[at], data: &area[at + 2..at + length], at });
        at += length;
        end = at;
    }
    (options, end)
}

/// The expected bytes of the window for the options in `area`: from [`OPTION_TIMESTAMP`] to
/// [`UNNAMED_OPTIONS`].
pub fn index(area: &[u8]) -> [u8; UNNAMED_OPTIONS + 1 - OPTION_TIMESTAMP] {
    let (options, _) = walk(area);
    let mut index = [0; UNNAMED_OPTIONS + 1 - OPTION_TIMESTAMP];
    index[OPTIONS_PRESENT - OPTION_TIMESTAMP] = u8::from(!options.is_empty());
    let names = [
        (2, NamedOption::Mss, Some((OPTION_MSS, 2))),
        (3, NamedOption::Wscale, Some((OPTION_WSCALE, 1))),
        (4, NamedOption::Sackp, None),
        (5, NamedOption::Sack, None),
        (8, NamedOption::Timestamp, Some((OPTION_TIMESTAMP, 8))),
        (34, NamedOption::FastOpen, None),
        (30, NamedOption::Mptcp, None),
    ];
    let is_named = |option: &TcpOption<'_>| names.iter().any(|(kind, ..)| *kind == option.kind);
    index[UNNAMED_OPTIONS - OPTION_TIMESTAMP] = u8::from(!options.iter().all(is_named));
    for (kind, name, value) in names {
        if options.iter().any(|option| option.kind == kind) {
            index[OPTIONS_PRESENT - OPTION_TIMESTAMP] |= name.bit();
        }
        let Some((at, length)) = value else { continue };
        let sound = options.iter().rfind(|option| option.kind == kind && option.data.len() == length);
        if let Some(option) = sound {
            index[OPTIONS_VALUED - OPTION_TIMESTAMP] |= name.bit();
            index[at - OPTION_TIMESTAMP..][..length].copy_from_slice(option.data);
        }
    }
    index
}
