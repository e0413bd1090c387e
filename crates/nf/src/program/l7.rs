//! Chains of functions of layer 7, which brokers run.

use std::sync::Arc;

use mmb_lang as ast;

use super::builder::Builder;
use super::errors::{ChainError, Located, fail};
use super::{ChainId, Program};
use crate::Instance;

impl Builder<'_> {
    /// Returns the numbers of the functions, in their order, if a function is one that only brokers can use.
    ///
    /// # Errors
    /// Another function cannot be used by brokers, there are brackets, two functions choose servers, one that
    /// reads bytes is behind one that gets messages, or functions run in different places.
    pub(super) fn l7_functions(&self, body: &ast::Body) -> Result<Vec<u16>, Located> {
        let mut names = Vec::new();
        collect(body, &mut names);
        let find = |word: &str| self.names.get(word).copied();
        let instance = |number: u16| self.instances.get(usize::from(number));
        let is_only =
            |word: &&&ast::Word| find(word).and_then(instance).is_some_and(|instance| instance.is_l7_only());
        let Some(only) = names.iter().find(is_only) else { return Ok(Vec::new()) };
        let only = only.text.to_string();
        if let Some(step) = body.0.iter().find(|step| !step.arms.is_empty() || step.function.is_none()) {
            let word = step.function.as_deref().unwrap_or("[");
            return fail(word, ChainError::L7Brackets(only));
        }
        let (mut numbers, mut servers, mut first_l7) = (Vec::new(), None, None::<String>);
        for name in names {
            let number = self.find(name)?;
            let function = instance(number).and_then(|instance| instance.l7());
            let reads_bytes = instance(number).is_some_and(|instance| instance.reads_bytes());
            if function.is_none() && !reads_bytes {
                return fail(name, ChainError::L7Mixed { name: name.text.to_string(), only });
            }
            if numbers.contains(&number) {
                return fail(name, ChainError::L7Twice(name.text.to_string()));
            }
            match (function.is_some(), &first_l7) {
                (true, _) => drop(first_l7.get_or_insert_with(|| name.text.to_string())),
                (false, Some(first)) => {
                    let (name_text, first) = (name.text.to_string(), first.clone());
                    return fail(name, ChainError::L7Order { name: name_text, first });
                }
                (false, None) => {}
            }
            if function.is_some_and(|function| function.servers().is_some())
                && let Some(first) = servers.replace(name)
            {
                let (first, second) = (first.text.to_string(), name.text.to_string());
                return fail(name, ChainError::L7Servers { first, second });
            }
            numbers.push(number);
        }
        self.check_places(&numbers)?;
        Ok(numbers)
    }
}

impl Builder<'_> {
    /// Checks that functions run all in the daemon, or in one process.
    fn check_places(&self, numbers: &[u16]) -> Result<(), Located> {
        let mut all = numbers.iter().filter_map(|&number| self.instances.get(usize::from(number)));
        let Some(first) = all.next() else { return Ok(()) };
        match all.find(|other| place(other) != place(first)) {
            None => Ok(()),
            Some(other) => {
                let (first, second) = (first, other.name().to_owned());
                let (place, other) = (place(first), place(other));
                let first = first.name().to_owned();
                fail(&second.clone(), ChainError::L7Places { first, place, second, other })
            }
        }
    }
}

/// Returns where an instance runs, in words.
fn place(instance: &Instance) -> String {
    let cpu = instance.process_cpu().map_or(String::new(), |cpu| format!(" on processor {cpu}"));
    let in_domain = |domain: &ast::Domain| format!("in domain `{}`{cpu}", &*domain.name.text);
    instance.domain().map_or_else(|| "in the daemon".to_owned(), in_domain)
}

/// Appends the names of all functions of a body.
fn collect<'a>(body: &'a ast::Body, names: &mut Vec<&'a ast::Word>) {
    for step in &body.0 {
        names.extend(&step.function);
        step.arms.iter().for_each(|arm| collect(&arm.body, names));
    }
}

impl Program {
    /// Returns the functions of a chain that only brokers can use, in their order. Empty: it is another kind
    /// of chain.
    pub fn l7_functions(&self, chain: ChainId) -> Vec<Arc<Instance>> {
        let numbers = self.chains.get(usize::from(chain.0)).map_or(&[][..], |chain| &chain.l7);
        numbers.iter().filter_map(|&number| self.instances.get(usize::from(number)).cloned()).collect()
    }
}
