//! Names of interfaces by port.

use mmb_dataplane::{MAX_PORTS, PortId};

use crate::config::Config;

/// The operator's names of the ports of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct PortNames(Vec<String>);

impl PortNames {
    /// The names of a configuration's interfaces.
    pub fn of(config: &Config) -> PortNames {
        let mut names = vec![String::new(); MAX_PORTS];
        for i in config.interfaces() {
            if let Some(name) = i.id.index().and_then(|at| names.get_mut(at)) {
                name.clone_from(&i.name);
            }
        }
        PortNames(names)
    }

    /// The name of a port; none for ports that are not an interface's.
    pub fn get(&self, port: PortId) -> Option<String> {
        self.0.get(port.index()?).filter(|name| !name.is_empty()).cloned()
    }
}
