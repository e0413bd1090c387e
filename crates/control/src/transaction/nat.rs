//! `nat pool` and `nat forward`.

use mmb_lang::{Endpoint4, NatForward, NatPool, NatProto, Word};

use super::control::Control;
use crate::api::Done;
use crate::error::CommandError;

impl Control {
    /// `nat pool add`.
    pub(crate) fn add_pool(&self, pool: &NatPool) -> Result<Done, CommandError> {
        self.add(|config| config.nat_mut().add_pool(pool))?;
        Ok(Done::new(format!("NAT pool {} added", &*pool.name)))
    }

    /// `nat pool del`.
    pub(crate) fn delete_pool(&self, name: &Word) -> Result<Done, CommandError> {
        self.change(|config| config.delete_pool(name))?;
        Ok(Done::new(format!("NAT pool {} deleted", &**name)))
    }

    /// `nat forward add`.
    pub(crate) fn add_forward(&self, forward: &NatForward) -> Result<Done, CommandError> {
        self.add(|config| config.nat_mut().add_forward(forward))?;
        let NatForward { proto, outside, inside } = forward;
        Ok(Done::new(format!("{proto} {outside} is forwarded to {inside}")))
    }

    /// `nat forward del`.
    pub(crate) fn delete_forward(&self, proto: NatProto, outside: Endpoint4) -> Result<Done, CommandError> {
        self.change(|config| config.nat_mut().delete_forward(proto, outside))?;
        Ok(Done::new(format!("{proto} {outside} is no longer forwarded")))
    }
}
