//! `show brokers`.

use mmb_broker::Count;

use crate::api::{BrokerEntry, BrokerList};
use crate::transaction::Control;

impl Control {
    /// `show brokers`.
    pub fn brokers(&self) -> BrokerList {
        let config = self.state().config;
        let down = self.running_brokers().down();
        let entry = |broker: &mmb_lang::Broker| {
            let count = |which| self.running_brokers().count(&config, &broker.name, which);
            let reasons = down.iter().filter(|(name, _)| **name == *broker.name.text);
            let reasons: Vec<&str> = reasons.map(|(_, reason)| reason.as_str()).collect();
            BrokerEntry {
                name: broker.name.to_string(),
                listen: broker.listen.map(|address| address.to_string()),
                transparent: broker.is_transparent,
                chain: broker.chain.to_string(),
                down: (!reasons.is_empty()).then(|| reasons.join("; ")),
                options: broker.options.iter().map(|(option, n)| (option.word().to_owned(), *n)).collect(),
                counters: Count::ALL
                    .into_iter()
                    .map(|(which, name)| (name.to_owned(), count(which)))
                    .collect(),
            }
        };
        BrokerList { brokers: config.brokers().all().map(entry).collect() }
    }
}
