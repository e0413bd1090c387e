//! `show brokers`.

use mmb_broker::Count;

use crate::api::{BrokerEntry, BrokerList};
use crate::transaction::Control;

impl Control {
    /// `show brokers`.
    pub fn brokers(&self) -> BrokerList {
        let config = self.state().config;
        let (down, starting) = (self.running_brokers().down(), self.running_brokers().starting());
        let is_starting = |broker: &mmb_lang::Broker| {
            starting.iter().any(|one| one.name.text == broker.name.text)
                || self.running_brokers().is_restarting(&config, &broker.name)
        };
        let entry = |broker: &mmb_lang::Broker| {
            let count = |which| self.running_brokers().count(&config, &broker.name, which);
            let reasons = down.iter().filter(|(name, _)| **name == *broker.name.text);
            let reasons: Vec<&str> = reasons.map(|(_, reason)| reason.as_str()).collect();
            BrokerEntry {
                name: broker.name.to_string(),
                listen: broker.listen.map(|address| address.to_string()),
                transparent: broker.is_transparent,
                chain: broker.chain.to_string(),
                starting: is_starting(broker),
                down: (!reasons.is_empty()).then(|| reasons.join("; ")),
                options: broker.options.iter().map(|(option, n)| (option.word().to_owned(), *n)).collect(),
                counters: Count::ALL
                    .into_iter()
                    .map(|(which, name)| (name.to_owned(), count(which)))
                    .collect(),
            }
        };
        // Those of a change that is not published yet are shown as well.
        let all = config.brokers().all();
        let is_new =
            |one: &&mmb_lang::Broker| !config.brokers().all().any(|known| known.name.text == one.name.text);
        BrokerList { brokers: all.chain(starting.iter().filter(is_new)).map(entry).collect() }
    }
}
