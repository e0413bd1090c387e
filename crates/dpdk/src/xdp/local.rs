//! The machine's addresses in the maps of a program (bpf/local.h).

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::net::IpAddr;

use super::error::XdpError;
use super::maps::{delete, put};
use super::object::Object;

const STEER: &str = "steer its frames";

/// The addresses that the maps `local4` and `local6` of a program have.
#[derive(Debug, Default)]
pub(super) struct LocalAddresses(BTreeSet<IpAddr>);

impl LocalAddresses {
    /// Replaces the addresses. `switch` is called when all new ones are there, and those that end are there
    /// still.
    ///
    /// # Errors
    /// An address cannot be added. Then the addresses are as before, and `switch` was not called.
    pub(super) fn replace(
        &mut self,
        object: &Object,
        wanted: &[IpAddr],
        switch: impl FnOnce(),
    ) -> Result<(), XdpError> {
        let wanted: BTreeSet<IpAddr> = wanted.iter().copied().collect();
        let before = self.0.clone();
        let added = wanted.difference(&before).try_for_each(|address| {
            let (map, key) = entry(object, *address)?;
            // SAFETY: key and value have the sizes of this map.
            unsafe { put(map, &key, &[1]) }.map_err(XdpError::at(STEER))?;
            self.0.insert(*address);
            Ok(())
        });
        if added.is_ok() {
            switch();
        }
        // An address that cannot be removed stays in the set and is removed the next time.
        let kept = if added.is_ok() { &wanted } else { &before };
        self.0.retain(|address| kept.contains(address) || remove(object, *address).is_err());
        added
    }

    #[cfg(test)]
    pub(super) fn to_vec(&self) -> Vec<IpAddr> {
        self.0.iter().copied().collect()
    }
}

fn remove(object: &Object, address: IpAddr) -> Result<(), XdpError> {
    let (map, key) = entry(object, address)?;
    // SAFETY: the key has the size of this map's keys.
    unsafe { delete(map, &key) }.map_err(XdpError::at(STEER))
}

/// The map of an address's family, and the address's key in it.
fn entry(object: &Object, address: IpAddr) -> Result<(c_int, Vec<u8>), XdpError> {
    Ok(match address {
        IpAddr::V4(address) => (object.map(c"local4")?, address.octets().to_vec()),
        IpAddr::V6(address) => (object.map(c"local6")?, address.octets().to_vec()),
    })
}
