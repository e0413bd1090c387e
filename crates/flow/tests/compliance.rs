//! Checks `docs/nat-compliance.md`: each requirement that is met names tests, and they exist.

#[path = "../../router/tests/pages/mod.rs"]
mod pages;

use std::collections::HashSet;

use mmb_flow::Timeouts;

const PAGE: &str = "docs/nat-compliance.md";

#[test]
fn the_page_names_tests_that_exist() {
    pages::check(PAGE);
}

/// The requirements as the RFCs number them, and the sections of the RFC without numbers.
#[test]
fn the_page_has_every_requirement() {
    let listed: Vec<(String, String)> =
        pages::rows(PAGE).into_iter().map(|row| (row.document, row.requirement)).collect();
    for (document, last) in [("RFC 4787", 14), ("RFC 5382", 10), ("RFC 5508", 11)] {
        for n in 1..=last {
            let is = |(of, requirement): &&(String, String)| {
                let number = requirement.strip_prefix("REQ-").unwrap_or("").split(' ').next();
                of == document && number == Some(&n.to_string())
            };
            assert!(listed.iter().any(|row| is(&row)), "{document} REQ-{n}");
        }
    }
    for section in ["2", "2.1", "2.2", "3", "4", "5", "6", "7", "7.1", "8", "9", "10", "11", "12"] {
        assert!(listed.contains(&("RFC 7857".into(), section.into())), "RFC 7857 section {section}");
    }
    assert_eq!(listed.iter().collect::<HashSet<_>>().len(), listed.len(), "no requirement is listed twice");
}

/// RFC 4787 REQ-5, RFC 5382 REQ-5, RFC 5508 REQ-2, RFC 7857 sections 2.1 and 2.2, in seconds.
#[test]
fn default_timeouts_keep_what_the_rfcs_ask_for() {
    let of = Timeouts::default();
    assert!(of.udp_unreplied >= 120_000 && of.udp_replied >= 300_000);
    assert!(of.tcp_established >= 7_440_000);
    for transitory in [of.tcp_handshake, of.tcp_half_closed, of.tcp_closed, of.tcp_reset] {
        assert!(transitory >= 240_000);
    }
    assert!(of.icmp >= 60_000);
}
