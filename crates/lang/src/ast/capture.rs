//! What `capture` selects.

use std::fmt::{self, Display, Formatter};
use std::num::ParseIntError;
use std::str::FromStr;

use super::RuleRef;

/// The name of a session, `WORKER.NUMBER.UID`, as `show connections verbose` prints it. It is valid until the
/// session ends: a later session with the same number has another uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionName {
    /// The worker that owns the session.
    pub worker: u16,
    /// Number of the session at that worker.
    pub number: u32,
    /// Distinguishes it from other sessions with that number.
    pub uid: u32,
}

impl Display for SessionName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.worker, self.number, self.uid)
    }
}

impl FromStr for SessionName {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<SessionName, ParseIntError> {
        let mut parts = text.splitn(3, '.');
        let mut part = || parts.next().unwrap_or_default();
        Ok(SessionName { worker: part().parse()?, number: part().parse()?, uid: part().parse()? })
    }
}

/// What `capture` selects beside matches, and when it ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CaptureSelection {
    /// Only packets that are dropped.
    pub drops: bool,
    /// Only packets to which this rule applies.
    pub rule: Option<RuleRef>,
    /// Only packets of this session.
    pub session: Option<SessionName>,
    /// How many, from 1 to [`CaptureSelection::MAX_COUNT`].
    pub count: u32,
    /// For how long, from 1 to [`CaptureSelection::MAX_SECONDS`]. None: until there are enough.
    pub seconds: Option<u32>,
}

impl CaptureSelection {
    /// The largest number of packets.
    pub const MAX_COUNT: u32 = 1_000_000;
    /// The longest time.
    pub const MAX_SECONDS: u32 = 86_400;
}

impl Default for CaptureSelection {
    fn default() -> Self {
        CaptureSelection { drops: false, rule: None, session: None, count: 1000, seconds: None }
    }
}
