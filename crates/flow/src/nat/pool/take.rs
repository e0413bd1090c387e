//! Allocation of a port that is known beforehand.

use super::{Pool, PortChoice, narrow};
use crate::nat::config::PortProto;
use crate::nat::hosts::PortHolder;

impl Pool {
    /// Allocates this port of the address of a host, and the block that it needs. None if it is not in
    /// the pool, or is in use.
    pub(in crate::nat) fn take(
        &mut self,
        host: &mut PortHolder<'_>,
        proto: PortProto,
        port: u16,
    ) -> Option<PortChoice> {
        let (address, wanted) = (host.external, u32::from(port));
        if !self.space.is_free(address, proto, wanted) {
            return None;
        }
        let is_claimed =
            |array, entry| self.claims.as_ref().is_none_or(|claims| claims.claim(address, array, entry));
        let mut new_block = None;
        match &mut self.blocks {
            None if !is_claimed(proto as u32, wanted) => return None,
            None => {}
            Some(blocks) => {
                let block = blocks.around(wanted)?;
                let whole = blocks.number(address, block);
                if !blocks.has(host.number, whole) {
                    if self.space.is_block_taken(address, block) || !is_claimed(0, block) {
                        return None;
                    }
                    self.space.set_block(address, block, true);
                    blocks.take(host.number, whole, host.blocks);
                    new_block = Some(narrow(blocks.ports(block)));
                }
                blocks.use_port(whole);
            }
        }
        self.space.take(address, proto, wanted);
        if let Some(ports) = self.counters.ports.get_mut(proto as usize) {
            *ports += 1;
        }
        Some(PortChoice { port, block: new_block })
    }
}
