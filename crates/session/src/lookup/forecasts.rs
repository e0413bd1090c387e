//! What the new sessions of a vector will look up.
//!
//! Theory of operation. [`crate::Sessions::lookup`] computes for each packet without session what its opening
//! reads: hashes of the keys of both directions, of its source and of its NAT mapping. It prefetches all of
//! this. The slow path meets these packets in the same order, and takes the hashes from the forecast. A
//! forecast serves only a packet with its key. Any other packet, as one that another worker has handed over,
//! has its hashes computed.

use mmb_flow::{FlowForecast, MappingForecast};
use mmb_policy::VECTOR;

use crate::shared::SourceHash;

/// What the opening of a session will look up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpeningForecast {
    pub flow: FlowForecast,
    /// The hash of the source, if sources are limited.
    pub source: Option<SourceHash>,
    /// For the pool that translated last.
    pub mapping: Option<MappingForecast>,
}

/// The forecasts for the packets of a vector without session, in packet order.
#[derive(Debug)]
pub(crate) struct OpeningForecasts {
    all: Box<[OpeningForecast; VECTOR]>,
    len: usize,
    next: usize,
}

impl Default for OpeningForecasts {
    fn default() -> Self {
        OpeningForecasts { all: Box::new([OpeningForecast::default(); VECTOR]), len: 0, next: 0 }
    }
}

impl OpeningForecasts {
    /// Begins a vector.
    pub fn clear(&mut self) {
        (self.len, self.next) = (0, 0);
    }

    /// Adds the forecast of the next packet.
    #[inline]
    pub fn push(&mut self, forecast: OpeningForecast) {
        if let Some(place) = self.all.get_mut(self.len) {
            *place = forecast;
            self.len += 1;
        }
    }

    /// Returns the forecast of the packet that is probably next on the slow path.
    #[inline]
    pub fn next(&self) -> Option<&OpeningForecast> {
        self.all.get(self.next..self.len)?.first()
    }

    /// Removes the forecast that [`OpeningForecasts::next`] has returned, since its packet has come.
    #[inline]
    pub fn advance(&mut self) {
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forecasts_are_taken_in_order() {
        let mut forecasts = OpeningForecasts::default();
        assert!(forecasts.next().is_none());
        for _ in 0..VECTOR + 1 {
            forecasts.push(OpeningForecast::default());
        }
        for _ in 0..VECTOR {
            assert!(forecasts.next().is_some());
            forecasts.advance();
        }
        assert!(forecasts.next().is_none(), "a vector has no more");
        forecasts.clear();
        forecasts.push(OpeningForecast::default());
        assert!(forecasts.next().is_some());
    }
}
