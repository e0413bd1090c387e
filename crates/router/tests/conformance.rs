//! Checks `docs/router-conformance.md`: each requirement that is met names tests, and these exist.

mod pages;

use std::collections::HashSet;

const PAGE: &str = "docs/router-conformance.md";

#[test]
fn the_page_names_tests_that_exist() {
    pages::check(PAGE);
}

/// Each section of RFC 1812 about forwarding has at least one row.
#[test]
fn the_page_has_every_section_about_forwarding() {
    let rows = pages::rows(PAGE);
    let sections: HashSet<&str> = rows
        .iter()
        .filter(|row| row.document == "RFC 1812")
        .filter_map(|row| row.requirement.split_whitespace().next())
        .collect();
    let of = |chapter: &'static str, last: usize| (1..=last).map(move |n| format!("{chapter}.{n}"));
    let all = of("4.2.2", 11)
        .chain(of("4.2.3", 4))
        .chain(of("4.3.2", 8))
        .chain(of("4.3.3", 10))
        .chain(of("5.2", 8))
        .chain(of("5.2.4", 5))
        .chain(of("5.2.7", 3))
        .chain(of("5.3", 13))
        .chain(of("5.3.5", 4))
        .chain(of("5.3.12", 4))
        .chain(of("5.3.13", 6));
    for section in all {
        let within = |listed: &&str| **listed == section || listed.starts_with(&format!("{section}."));
        assert!(sections.iter().any(within), "RFC 1812, {section} is not listed");
    }
    let distinct: HashSet<_> = rows.iter().map(|row| (&row.document, &row.requirement)).collect();
    assert_eq!(distinct.len(), rows.len(), "no requirement is listed twice");
}
