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
            let counters = self.running_brokers().counters(broker.listen);
            let count = |which| counters.as_ref().map_or(0, |counters| counters.get(which));
            let reason = down.iter().find(|(name, _)| **name == *broker.name.text);
            BrokerEntry {
                name: broker.name.to_string(),
                listen: broker.listen.to_string(),
                chain: broker.chain.to_string(),
                down: reason.map(|(_, reason)| reason.clone()),
                options: broker.options.iter().map(|(option, n)| (option.word().to_owned(), *n)).collect(),
                counters: Count::ALL
                    .into_iter()
                    .map(|(which, name)| (name.to_owned(), count(which)))
                    .collect(),
            }
        };
        BrokerList { brokers: config.brokers().all().iter().map(entry).collect() }
    }
}
