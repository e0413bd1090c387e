//! `nf`, `chain` and `broker`.

use mmb_lang::{Broker, Chain, Domain, NfInstance, SourceSpan, Word};

use super::control::Control;
use crate::api::Done;
use crate::error::CommandError;

impl Control {
    /// `domain add`.
    pub(crate) fn add_domain(&self, domain: &Domain) -> Result<Done, CommandError> {
        self.add(|config| config.add_domain(domain))?;
        Ok(Done::new(format!("domain {} added", &*domain.name)))
    }

    /// `domain del`.
    pub(crate) fn delete_domain(&self, name: &Word) -> Result<Done, CommandError> {
        self.change(|config| config.delete_domain(name))?;
        Ok(Done::new(format!("domain {} deleted", &**name)))
    }

    /// `nf add`.
    pub(crate) fn add_function(&self, nf: &NfInstance) -> Result<Done, CommandError> {
        self.add(|config| config.add_function(nf))?;
        Ok(Done::new(format!("function {} added: {}", &*nf.name, &*nf.kind)))
    }

    /// `nf del`.
    pub(crate) fn delete_function(&self, name: &Word) -> Result<Done, CommandError> {
        self.change(|config| config.delete_function(name))?;
        Ok(Done::new(format!("function {} deleted", &**name)))
    }

    /// `nf set`: passes words to a running instance.
    pub(crate) fn set_function(&self, name: &Word, words: &[Box<str>]) -> Result<Done, CommandError> {
        // The lock on changes is held, so that the instance cannot be deleted meanwhile.
        let (_turn, state) = self.begin();
        let words: Vec<&str> = words.iter().map(|word| &**word).collect();
        let result = state.config.instance(name)?.set(&words);
        result.map_err(|sentence| CommandError::invalid(sentence.to_string(), SourceSpan::default()))?;
        Ok(Done::new(format!("function {}: {}", &**name, words.join(" "))))
    }

    /// `chain add`.
    pub(crate) fn add_chain(&self, chain: &Chain) -> Result<Done, CommandError> {
        self.add(|config| config.add_chain(chain))?;
        Ok(Done::new(format!("chain {} added", &*chain.name)))
    }

    /// `chain set`.
    pub(crate) fn set_chain(&self, chain: &Chain) -> Result<Done, CommandError> {
        self.add(|config| config.set_chain(chain))?;
        Ok(Done::new(format!("chain {} replaced", &*chain.name)))
    }

    /// `chain del`.
    pub(crate) fn delete_chain(&self, name: &Word) -> Result<Done, CommandError> {
        self.change(|config| config.delete_chain(name))?;
        Ok(Done::new(format!("chain {} deleted", &**name)))
    }

    /// `broker add`.
    pub(crate) fn add_broker(&self, broker: &Broker) -> Result<Done, CommandError> {
        self.add(|config| config.insert_broker(broker, None))?;
        let name = &*broker.name;
        match self.running_brokers().down().into_iter().find(|(down, _)| down == name) {
            Some((_, reason)) => Err(CommandError::failed(reason, SourceSpan::default())),
            None => Ok(Done::new(format!("broker {name} added: it {}", entrances(broker)))),
        }
    }

    /// `broker del`.
    pub(crate) fn delete_broker(&self, name: &Word) -> Result<Done, CommandError> {
        self.change(|config| config.delete_broker(name))?;
        Ok(Done::new(format!("broker {} deleted", &**name)))
    }
}

/// Where a broker gets its connections, as the end of a sentence.
fn entrances(broker: &Broker) -> String {
    let by_rules = || format!("gets connections by rules: `add … broker {}`", &*broker.name);
    match (broker.listen, broker.is_transparent) {
        (Some(address), false) => format!("listens on {address}"),
        (Some(address), true) => format!("listens on {address}, and {}", by_rules()),
        (None, _) => by_rules(),
    }
}
