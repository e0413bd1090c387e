//! Two implementations on the same frames: the oracle's, and that of `mmb_packet`, which the engine uses.

use mmb_packet::{
    Ip6Ext, Loc, Meta, NamedOption, PayloadLayer, Window, fill_window, parse, payload, tcp_options,
};
use proptest::prelude::*;

use crate::options::{named, walk};
use crate::{generate, headers};

const NAMES: [(NamedOption, &str); 7] = [
    (NamedOption::Mss, "tcp-opt-mss"),
    (NamedOption::Wscale, "tcp-opt-wscale"),
    (NamedOption::Sackp, "tcp-opt-sackp"),
    (NamedOption::Sack, "tcp-opt-sack"),
    (NamedOption::Timestamp, "tcp-opt-timestamp"),
    (NamedOption::FastOpen, "tcp-opt-fast-open"),
    (NamedOption::Mptcp, "tcp-opt-mptcp"),
];

const EXTENSIONS: [(Ip6Ext, u8); 9] = [
    (Ip6Ext::HopByHop, 0),
    (Ip6Ext::Routing, 43),
    (Ip6Ext::Fragment, 44),
    (Ip6Ext::Esp, 50),
    (Ip6Ext::Ah, 51),
    (Ip6Ext::DestOpt, 60),
    (Ip6Ext::Mobility, 135),
    (Ip6Ext::Hip, 139),
    (Ip6Ext::Shim6, 140),
];

const PAYLOADS: [(PayloadLayer, &str); 6] = [
    (PayloadLayer::Ip, "ip-payload"),
    (PayloadLayer::Ip6, "ip6-payload"),
    (PayloadLayer::Icmp, "icmp-payload"),
    (PayloadLayer::Icmp6, "icmp6-payload"),
    (PayloadLayer::Udp, "udp-payload"),
    (PayloadLayer::Tcp, "tcp-payload"),
];

/// The bits from `at` on in the window, as a number.
fn bits(window: &Window, at: usize, width: usize) -> u128 {
    crate::bits::get(window.bytes(), at, width)
}

fn is_there(window: &Window, (at, mask, value): (usize, u8, u8)) -> bool {
    window.bytes()[at] & mask == value
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn options_extension_headers_and_payloads(frames in generate::frames(8)) {
        for frame in &frames {
            let (mut meta, mut window) = (Meta::default(), Window::default());
            let Ok(Some(headers)) = headers::read(frame) else { continue };
            prop_assert_eq!(parse(frame, frame.len(), &mut meta), Ok(()));
            fill_window(frame, &meta, 0, 1, 0xff, &mut window);
            let area = headers.option_area(frame);
            let list = area.map_or_else(Vec::new, |area| walk(&frame[area]));
            let ours: Vec<_> = list.iter().map(|option| (option.kind, &*option.data)).collect();
            let theirs: Vec<_> = tcp_options(frame, &meta).map(|option| (option.kind, option.data)).collect();
            prop_assert_eq!(&ours, &theirs);
            prop_assert_eq!(is_there(&window, Loc::TcpOptionAny.present()), !ours.is_empty());
            for (option, name) in NAMES {
                let (kind, length) = named(name).unwrap();
                let mut of_kind = ours.iter().filter(|(k, _)| *k == kind);
                let loc = Loc::TcpOption(option);
                prop_assert_eq!(is_there(&window, loc.present()), of_kind.clone().count() > 0);
                let Some(length) = length else { continue };
                let value = of_kind.rfind(|(_, data)| data.len() == length);
                prop_assert_eq!(is_there(&window, loc.valued()), value.is_some());
                let number = value.map(|(_, data)| data.iter().fold(0, |n, byte| n << 8 | u128::from(*byte)));
                prop_assert_eq!(bits(&window, loc.window_bit(), length * 8), number.unwrap_or(0));
            }
            for (header, number) in EXTENSIONS {
                let there = is_there(&window, Loc::Ip6Ext(header).present());
                prop_assert_eq!(there, headers.extensions.contains(&number), "{}", number);
            }
            prop_assert_eq!(is_there(&window, Loc::Ip6Ext(Ip6Ext::Any).present()), !headers.extensions.is_empty());
            for (which, name) in PAYLOADS {
                prop_assert_eq!(payload(frame, &meta, which), headers.payload(frame, name), "{}", name);
            }
        }
    }
}
