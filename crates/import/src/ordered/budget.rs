//! A bound on the work of a conversion.

/// Units for one step: some milliseconds.
const STEP: usize = 200_000;
/// Units for all steps: less than a second.
const TOTAL: usize = 20_000_000;

/// The work that is left. A unit is an operation on one term, interval or name.
#[derive(Debug)]
pub(super) struct Budget {
    step: usize,
    total: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { step: STEP, total: TOTAL }
    }
}

impl Budget {
    /// Begins the work for the next step.
    pub(super) fn next_step(&mut self) {
        self.step = STEP.min(self.total);
    }

    /// A budget of so many units for all steps.
    #[cfg(test)]
    pub(super) fn of(total: usize) -> Budget {
        Budget { step: STEP, total }
    }

    /// Units that are left for all steps.
    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.total
    }

    /// Takes units. None if the step or all steps have used theirs.
    pub(super) fn spend(&mut self, units: usize) -> Option<()> {
        self.step = self.step.checked_sub(units)?;
        self.total = self.total.checked_sub(units)?;
        Some(())
    }
}
