use super::*;

fn element(text: &str) -> SetElement {
    mmb_lang::parse_element(text).unwrap()
}

fn until(deadline: u64) -> ElementInfo {
    ElementInfo { deadline: Some(deadline), ..ElementInfo::default() }
}

#[test]
fn the_last_time_of_an_element_counts() {
    let mut set = PolicySet::new(SetKind::Address);
    assert!(set.insert(element("192.0.2.1"), until(5)));
    assert!(!set.insert(element("192.0.2.1"), until(9)));
    assert!(set.insert(element("192.0.2.2"), until(7)));
    assert_eq!((set.next_deadline(), set.expiring()), (Some(7), 2));
    assert!(set.expired(6).next().is_none());
    assert_eq!(set.expired(9).collect::<Vec<_>>(), [element("192.0.2.2"), element("192.0.2.1")]);
    assert!(!set.insert(element("192.0.2.2"), ElementInfo::default()));
    assert!(set.remove(&element("192.0.2.1")) && !set.remove(&element("192.0.2.1")));
    assert_eq!((set.next_deadline(), set.expiring(), set.len()), (None, 0, 1));
}

#[test]
fn values_are_in_prefixes_of_their_family() {
    let mut set = PolicySet::new(SetKind::Prefix);
    set.insert(element("10.0.0.0/8"), ElementInfo::default());
    assert!(set.contains(32, 0x0aff_ffff, None) && !set.contains(32, 0x0b00_0000, None));
    assert!(!set.contains(128, 0x0aff_ffff, None));
}

#[test]
fn copies_are_the_same_until_one_changes() {
    let mut set = PolicySet::new(SetKind::Port);
    set.insert(element("80"), ElementInfo::default());
    let copy = set.clone();
    assert!(set.is_same(&copy));
    set.insert(element("81"), ElementInfo::default());
    assert!(!set.is_same(&copy));
}
