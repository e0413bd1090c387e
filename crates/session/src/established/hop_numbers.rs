//! Numbers that stand for the next hops of IPv6 flows.
//!
//! Theory of operation. The key of an IPv6 flow leaves no room for a note ([`super::next_hops`]), only for a
//! number ([`Flow::next_hop`]). The number stands for a next hop in one generation of routes: each generation
//! gives out numbers above those of all earlier ones. So numbers of earlier generations are not found, and
//! need not be cleared. When numbers run out, flows get none until a walk through all flows has cleared
//! their numbers, some flows at a time. Then the numbers begin again.
//!
//! The input port needs no part in this: the decision of an IPv6 flow is read for each packet, holds for one
//! port, and a flow that gets another decision loses its number.

use mmb_flow::Flow;

/// Numbers for a generation. Flows to further next hops are looked up packet by packet.
const MOST_HOPS: u16 = 4096;
/// Flows whose numbers are cleared at a time.
const SWEEP: usize = 256;

/// The numbers of the current generation.
#[derive(Debug)]
pub(crate) struct HopNumbers {
    /// The first number of the generation. 0 is never a number.
    first: u16,
    /// Next hops by number, from `first` on.
    hops: Vec<u16>,
    /// The next flow whose number is to be cleared; none if numbers are given out.
    sweep: Option<usize>,
}

impl HopNumbers {
    pub fn new() -> HopNumbers {
        HopNumbers { first: 1, hops: Vec::new(), sweep: None }
    }

    /// Returns the next hop of a number; 0 if the number is not of the current generation.
    #[inline(always)]
    pub fn get(&self, number: u16) -> u16 {
        self.hops.get(usize::from(number.wrapping_sub(self.first))).map_or(0, |hop| *hop)
    }

    /// Whether flows can get numbers.
    #[inline(always)]
    pub fn has_room(&self) -> bool {
        self.sweep.is_none() && self.hops.len() < usize::from(MOST_HOPS)
    }

    /// Returns the number of a next hop. `None`: no number is free.
    pub fn number_of(&mut self, hop: u16) -> Option<u16> {
        let known = self.hops.iter().position(|other| *other == hop);
        if known.is_none() {
            if !self.has_room() {
                return None;
            }
            self.hops.push(hop);
        }
        Some(self.first + known.unwrap_or(self.hops.len() - 1) as u16)
    }

    /// Begins a generation: no flow has a number.
    pub fn renew(&mut self) {
        self.first += self.hops.len() as u16;
        self.hops.clear();
        if self.sweep.is_none() && self.first > u16::MAX - MOST_HOPS {
            self.sweep = Some(0);
        }
    }

    /// Clears the numbers of some flows, if numbers have run out. `flows`: all flows of the table.
    #[inline]
    pub fn sweep(&mut self, flows: &mut [Flow]) {
        if let Some(from) = self.sweep {
            self.clear_some(flows, from);
        }
    }

    #[cold]
    fn clear_some(&mut self, flows: &mut [Flow], from: usize) {
        let end = flows.len().min(from + SWEEP);
        for flow in flows.get_mut(from..end).into_iter().flatten().filter(|flow| !flow.is_ip4()) {
            flow.set_next_hop(0);
        }
        self.sweep = (end < flows.len()).then_some(end);
        if self.sweep.is_none() {
            self.first = 1;
        }
    }
}

#[cfg(test)]
mod tests;
