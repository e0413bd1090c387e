//! Targets without a free port: a short memory, so that not every packet makes the engine try all ports.

/// Targets that are remembered.
const SLOTS: usize = 64;
/// How long a target is remembered, in milliseconds.
const MEMORY: u32 = 100;

/// Hashes of targets, and when they were found exhausted. A target may displace another one, which is then
/// tried again too early.
#[derive(Debug)]
pub(crate) struct ExhaustedTargets([(u64, u32); SLOTS]);

impl Default for ExhaustedTargets {
    fn default() -> Self {
        ExhaustedTargets([(0, 0); SLOTS])
    }
}

impl ExhaustedTargets {
    /// Whether the target was found exhausted a short time ago.
    pub fn contains(&self, target: u64, now: u32) -> bool {
        let (other, since) = self.0[(target >> 58) as usize % SLOTS];
        target != 0 && other == target && now.wrapping_sub(since) < MEMORY
    }

    /// Remembers an exhausted target.
    pub fn insert(&mut self, target: u64, now: u32) {
        self.0[(target >> 58) as usize % SLOTS] = (target, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_remembered_for_a_while() {
        let mut exhausted = ExhaustedTargets::default();
        let (target, now) = (0xf000_0000_0000_0001, u32::MAX - 50);
        assert!(!exhausted.contains(target, now) && !exhausted.contains(0, 0));
        exhausted.insert(target, now);
        assert!(exhausted.contains(target, now.wrapping_add(MEMORY - 1)));
        assert!(!exhausted.contains(target, now.wrapping_add(MEMORY)));
        exhausted.insert(target + 1, now);
        assert!(!exhausted.contains(target, now) && exhausted.contains(target + 1, now), "displaced");
    }
}
