//! The registry of function types.

use mmb_packet::DropReason;

use crate::ArgError;
use crate::function::{Function, Setup};
use crate::instance::{DynFunction, TypedFunction};
use crate::l7::{L7Function, TypedL7};
use crate::stream::{StreamFunction, TypedStream};

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
    make: Make,
}

type Make = Box<dyn Fn(&Setup<'_>) -> Result<Box<dyn DynFunction>, ArgError> + Send + Sync>;

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
    /// Adds a type. It replaces an earlier one with the same name. Its drop reasons become known to the
    /// process.
    pub fn add<F: Function>(&mut self) -> &mut Self {
        const { assert!(align_of::<F::Pad>() <= 8, "scratchpads are aligned to 8 bytes") };
        let info = TypeInfo { name: F::TYPE, usage: F::USAGE, help: F::HELP, bytes: size_of::<F::Pad>() };
        self.insert(info, F::DROP_REASONS, |setup| {
            F::new(setup).map(|function| Box::new(TypedFunction(function)) as Box<dyn DynFunction>)
        })
    }

    /// Adds a type of stream function: see [`Registry::add`].
    pub fn add_stream<F: StreamFunction>(&mut self) -> &mut Self {
        const { assert!(align_of::<F::State>() <= 8, "see `Registry::add`") };
        let bytes = size_of::<F::State>();
        let info = TypeInfo { name: F::TYPE, usage: F::USAGE, help: F::HELP, bytes };
        self.insert(info, F::DROP_REASONS, make_stream::<F>)
    }

    /// Adds a type of function that only brokers can use: see [`Registry::add`].
    pub fn add_l7<F: L7Function>(&mut self) -> &mut Self {
        let info = TypeInfo { name: F::TYPE, usage: F::USAGE, help: F::HELP, bytes: 0 };
        self.insert(info, &[], |setup| {
            F::new(setup).map(|function| Box::new(TypedL7(function)) as Box<dyn DynFunction>)
        })
    }

    /// Adds another implementation of a type of stream function that is there. Usage, help and drop reasons
    /// are those of the first one. `applies` decides by the arguments behind the type.
    pub fn add_stream_variant<F: StreamFunction>(&mut self, applies: fn(&[&str]) -> bool) -> &mut Self {
        const { assert!(align_of::<F::State>() <= 8, "see `Registry::add`") };
        if let Some(at) = self.entries.iter().position(|entry| entry.info.name == F::TYPE) {
            let Entry { info, make } = self.entries.remove(at);
            let info = TypeInfo { bytes: info.bytes.max(size_of::<F::State>()), ..info };
            let make = Box::new(move |setup: &Setup<'_>| {
                if applies(setup.args) {
                    return make_stream::<F>(setup);
                }
                make(setup)
            });
            self.entries.push(Entry { info, make });
        }
        self
    }

    /// Adds another implementation of a type that is there, for brokers only. Usage and help are those of the
    /// first one. `applies` decides by the arguments behind the type.
    pub fn add_l7_variant<F: L7Function>(&mut self, applies: fn(&[&str]) -> bool) -> &mut Self {
        if let Some(at) = self.entries.iter().position(|entry| entry.info.name == F::TYPE) {
            let Entry { info, make } = self.entries.remove(at);
            let make = Box::new(move |setup: &Setup<'_>| {
                if applies(setup.args) {
                    return F::new(setup).map(|function| Box::new(TypedL7(function)) as Box<dyn DynFunction>);
                }
                make(setup)
            });
            self.entries.push(Entry { info, make });
        }
        self
    }

    fn insert(
        &mut self,
        info: TypeInfo,
        reasons: &[(&'static str, &'static str)],
        make: impl Fn(&Setup<'_>) -> Result<Box<dyn DynFunction>, ArgError> + Send + Sync + 'static,
    ) -> &mut Self {
        for (name, help) in reasons {
            // Without room for another reason, `Setup::drop_reason` returns the general one.
            let _ = DropReason::register(name, help);
        }
        self.entries.retain(|entry| entry.info.name != info.name);
        self.entries.push(Entry { info, make: Box::new(make) });
        self
    }

    /// Returns all types, ordered by name.
    pub fn types(&self) -> Vec<TypeInfo> {
        let mut types: Vec<_> = self.entries.iter().map(|entry| entry.info).collect();
        types.sort_by_key(|info| info.name);
        types
    }

    /// Returns the type with a name.
    pub fn info(&self, name: &str) -> Option<TypeInfo> {
        self.entries.iter().map(|entry| entry.info).find(|info| info.name == name)
    }

    pub(crate) fn make(
        &self,
        name: &str,
        setup: &Setup<'_>,
    ) -> Option<Result<Box<dyn DynFunction>, ArgError>> {
        let entry = self.entries.iter().find(|entry| entry.info.name == name)?;
        Some((entry.make)(setup))
    }
}

/// Makes a stream function. Brokers are one more worker.
fn make_stream<F: StreamFunction>(setup: &Setup<'_>) -> Result<Box<dyn DynFunction>, ArgError> {
    let setup = Setup { workers: setup.workers.saturating_add(1), ..*setup };
    F::new(&setup).map(|function| Box::new(TypedStream(function)) as Box<dyn DynFunction>)
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.types().iter().map(|info| info.name)).finish()
    }
}
