use super::*;

fn add(config: &mut Config, line: &str) {
    let Ok(Some(mmb_lang::Command::Add(rule))) = mmb_lang::parse_line(line) else { panic!("{line}") };
    config.add_rule(&rule).unwrap();
}

fn numbers(history: &History) -> Vec<u64> {
    history.revisions().iter().map(|revision| revision.number).collect()
}

#[test]
fn a_change_is_recorded_with_its_author() {
    let history = History::default();
    let mut config = Config::new();
    history.record(&config);
    add(&mut config, "add ip-proto udp drop");
    let author = Author {
        user: Some(7),
        process: Some(8),
        change: "add ip-proto udp drop".to_owned(),
        ..Author::default()
    };
    author.clone().run(|| history.record(&config));
    // Nothing has changed: a new classifier, an interface that comes up.
    history.record(&config);
    let [first, second] = &history.revisions()[..] else { panic!("{:?}", numbers(&history)) };
    assert_eq!((first.number, &first.author, first.snapshot.text().as_str()), (1, &Author::start(), ""));
    assert_eq!((second.number, &second.author), (2, &author));
    assert_eq!(second.snapshot.text(), "add ip-proto udp drop\n");
    assert_eq!(Author::current(), Author::default());
}

#[test]
fn old_revisions_are_forgotten_and_numbers_stay() {
    let history = History::default();
    let mut config = Config::new();
    let changes = REVISIONS as u64 + 5;
    for n in 0..changes {
        add(&mut config, &format!("add tcp-dport {} drop", n + 1));
        history.record(&config);
    }
    assert_eq!(numbers(&history), (6..=changes).collect::<Vec<_>>());
    assert!(history.revision(5).is_none());
    let (first, before) = history.revision(6).unwrap();
    assert_eq!(first.snapshot.text().lines().count(), 6);
    assert!(before.is_none());
    assert_eq!(history.current(), changes);
}

#[test]
fn a_change_waits_until_it_is_confirmed_or_its_time_is_over() {
    let (history, minute) = (History::default(), Duration::from_secs(60));
    let mut config = Config::new();
    history.record(&config);
    add(&mut config, "add ip-proto udp drop");
    history.expect_confirmation(Some(minute));
    history.record(&config);
    let first = history.confirmation().unwrap();
    assert_eq!(first.revision, 1);
    // A second change that waits: the way back stays the same, and the time begins again.
    add(&mut config, "add ip-proto tcp drop");
    history.expect_confirmation(Some(2 * minute));
    history.record(&config);
    let second = history.confirmation().unwrap();
    assert_eq!(second.revision, 1);
    assert!(second.deadline > first.deadline);
    assert!(history.take_expired(first.deadline).is_none());
    let (revision, snapshot) = history.take_expired(second.deadline).unwrap();
    assert_eq!((revision, snapshot.text().as_str()), (1, ""));
    assert!(!history.confirm() && history.confirmation().is_none());
    // A change that needs no confirmation confirms what waits.
    history.expect_confirmation(Some(minute));
    assert!(history.confirmation().is_some());
    history.expect_confirmation(None);
    assert!(history.confirmation().is_none());
}
