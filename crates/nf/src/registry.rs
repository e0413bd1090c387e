//! Which functions there are.

use crate::function::{Function, Setup};
use crate::instance::{Erased, Holder};

/// A type of function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeInfo {
    /// [`Function::TYPE`].
    pub name: &'static str,
    /// [`Function::USAGE`].
    pub usage: &'static str,
    /// [`Function::HELP`].
    pub help: &'static str,
    /// Bytes of its scratchpad.
    pub bytes: usize,
}

struct Entry {
    info: TypeInfo,
    make: fn(&Setup<'_>) -> Result<Box<dyn Erased>, String>,
}

/// The function types that `nf add` knows.
///
/// The default registry knows the type `flow` alone.
pub struct Registry {
    entries: Vec<Entry>,
}

impl Default for Registry {
    fn default() -> Registry {
        let mut registry = Registry { entries: Vec::new() };
        registry.add::<crate::flow_type::Flow>();
        registry
    }
}

impl Registry {
    /// Adds one, in place of an earlier one of the same name.
    pub fn add<F: Function>(&mut self) -> &mut Self {
        const { assert!(align_of::<F::Pad>() <= 8, "scratchpads are aligned to 8 bytes") };
        let info = TypeInfo { name: F::TYPE, usage: F::USAGE, help: F::HELP, bytes: size_of::<F::Pad>() };
        let make =
            |setup: &Setup<'_>| F::new(setup).map(|function| Box::new(Holder(function)) as Box<dyn Erased>);
        self.entries.retain(|entry| entry.info.name != F::TYPE);
        self.entries.push(Entry { info, make });
        self
    }

    /// All of them, by name.
    pub fn types(&self) -> Vec<TypeInfo> {
        let mut types: Vec<_> = self.entries.iter().map(|entry| entry.info).collect();
        types.sort_by_key(|info| info.name);
        types
    }

    /// One of them.
    pub fn info(&self, name: &str) -> Option<TypeInfo> {
        self.entries.iter().map(|entry| entry.info).find(|info| info.name == name)
    }

    pub(crate) fn make(&self, name: &str, setup: &Setup<'_>) -> Option<Result<Box<dyn Erased>, String>> {
        let entry = self.entries.iter().find(|entry| entry.info.name == name)?;
        Some((entry.make)(setup))
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.types().iter().map(|info| info.name)).finish()
    }
}
