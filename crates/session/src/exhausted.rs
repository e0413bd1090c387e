//! Where no port was left of late: so that packets to there do not make the engine try all ports again each.

/// Remembers so many places.
const PLACES: usize = 64;
/// For how long a place is believed to be exhausted, in milliseconds.
const MEMORY: u32 = 100;

/// Places, by a hash of what a session there would have in common, and when they were found exhausted. A place may drive
/// out another one, which then is tried again too early: no harm.
#[derive(Debug)]
pub(crate) struct Exhausted([(u64, u32); PLACES]);

impl Default for Exhausted {
    fn default() -> Self {
        Exhausted([(0, 0); PLACES])
    }
}

impl Exhausted {
    pub fn is(&self, place: u64, now: u32) -> bool {
        let (other, since) = self.0[(place >> 58) as usize % PLACES];
        place != 0 && other == place && now.wrapping_sub(since) < MEMORY
    }

    pub fn add(&mut self, place: u64, now: u32) {
        self.0[(place >> 58) as usize % PLACES] = (place, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_exhausted_for_a_while() {
        let mut exhausted = Exhausted::default();
        let (place, now) = (0xf000_0000_0000_0001, u32::MAX - 50);
        assert!(!exhausted.is(place, now) && !exhausted.is(0, 0));
        exhausted.add(place, now);
        assert!(
            exhausted.is(place, now.wrapping_add(MEMORY - 1))
                && !exhausted.is(place, now.wrapping_add(MEMORY))
        );
        exhausted.add(place + 1, now);
        assert!(!exhausted.is(place, now) && exhausted.is(place + 1, now), "driven out");
    }
}
