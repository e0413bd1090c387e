//! `show brokers` as text.

use std::fmt::Write;

use super::columns::Align::{Left, Right};
use super::columns::Columns;
use crate::api::{BrokerEntry, BrokerList};

/// Counters that stand in the columns.
const COLUMNS: [&str; 4] = ["clients", "requests", "status_5xx", "servers"];

/// `show brokers`; `verbose` adds all counters.
pub(crate) fn brokers(list: &BrokerList, verbose: bool) -> String {
    if list.brokers.is_empty() {
        return "no brokers\n".to_owned();
    }
    let mut columns = Columns::new([
        ("broker", Left),
        ("listen", Left),
        ("chain", Left),
        ("state", Left),
        ("clients", Right),
        ("requests", Right),
        ("5xx", Right),
        ("servers", Right),
    ]);
    for broker in &list.brokers {
        let BrokerEntry { name, listen, transparent, chain, starting, down, counters, .. } = broker;
        let rules = transparent.then_some("transparent");
        let listen: Vec<&str> = listen.as_deref().into_iter().chain(rules).collect();
        let state = match (down, starting) {
            (Some(_), _) => "down",
            (None, true) => "starting",
            (None, false) => "up",
        };
        let [clients, requests, errors, servers] =
            COLUMNS.map(|name| counters.get(name).copied().unwrap_or_default().to_string());
        let [name, chain] = [name, chain].map(Clone::clone);
        columns.row([name, listen.join(", "), chain, state.to_owned(), clients, requests, errors, servers]);
    }
    let mut text = columns.render();
    for broker in &list.brokers {
        // Writing to a String cannot fail.
        if let Some(reason) = &broker.down {
            let _ = writeln!(text, "{reason}");
        }
        let shown = broker.options.iter().chain(&broker.counters).filter(|_| verbose);
        for (name, number) in shown {
            let _ = writeln!(text, "{}: {}: {number}", broker.name, name.replace('_', " "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_is_down_has_its_reason() {
        assert_eq!(brokers(&BrokerList::default(), true), "no brokers\n");
        let mut broker = BrokerEntry {
            name: "web".into(),
            listen: Some("10.0.0.1:80".into()),
            chain: "site".into(),
            counters: [("clients".into(), 2), ("status_5xx".into(), 1)].into(),
            ..BrokerEntry::default()
        };
        let shown =
            |broker: &BrokerEntry, verbose| brokers(&BrokerList { brokers: vec![broker.clone()] }, verbose);
        let text = "broker  listen       chain  state  clients  requests  5xx  servers\n\
                    web     10.0.0.1:80  site   up           2         0    1        0\n";
        assert_eq!(shown(&broker, false), text);
        assert_eq!(shown(&broker, true), format!("{text}web: clients: 2\nweb: status 5xx: 1\n"));
        broker.starting = true;
        assert!(shown(&broker, false).contains("site   starting        2"));
        broker.down = Some("the reason".into());
        assert!(shown(&broker, false).ends_with("the reason\n"));
    }
}
