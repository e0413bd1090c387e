//! `show sets` and `show set NAME`.

use mmb_lang::{NamedSet, Word};
use mmb_policy::PolicySet;

use crate::api::{ElementEntry, SetElementList, SetEntry, SetList};
use crate::config::sets::now;
use crate::error::CommandError;
use crate::transaction::Control;

impl Control {
    /// `show sets`.
    pub fn sets(&self) -> SetList {
        let config = self.state().config;
        let policy = config.policy();
        let packets =
            |index: u32| policy.rule(index).map_or(0, |view| self.engine().rule_counters(view.slot).packets);
        let entry = |set: &NamedSet| {
            let elements = policy.sets().get(&*set.name.text);
            let rules: Vec<u32> = policy.rules_with_set(&set.name).collect();
            SetEntry {
                name: set.name.to_string(),
                kind: set.kind.word().to_owned(),
                elements: elements.map_or(0, |elements| elements.len() as u64),
                expiring: elements.map_or(0, |elements| elements.expiring() as u64),
                timeout: set.timeout,
                file: set.file.as_deref().map(str::to_owned),
                comment: set.comment.as_deref().map(str::to_owned),
                packets: rules.iter().map(|index| packets(*index)).sum(),
                rules,
            }
        };
        SetList { sets: config.sets().iter().map(entry).collect() }
    }

    /// `show set NAME`.
    ///
    /// # Errors
    /// There is no such set.
    pub fn set_elements(&self, name: &Word) -> Result<SetElementList, CommandError> {
        let config = self.state().config;
        config.known_set(name)?;
        let now = now();
        let elements = config.policy().sets().get(&*name.text).into_iter().flat_map(PolicySet::elements);
        let entries = elements.map(|(element, info)| ElementEntry {
            element: element.to_string(),
            expires: info.deadline.map(|deadline| deadline.saturating_sub(now).div_ceil(1000)),
            comment: info.comment.as_deref().map(str::to_owned),
            from_file: info.from_file,
        });
        Ok(SetElementList { set: name.to_string(), elements: entries.collect() })
    }
}
