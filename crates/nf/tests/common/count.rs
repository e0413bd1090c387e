//! A stream function that does not look at bytes.

use mmb_nf::{ArgError, Setup, StreamFunction};

/// Counts packets, and does not look at bytes.
pub struct Count;

impl StreamFunction for Count {
    const TYPE: &'static str = "count-packets";
    const USAGE: &'static str = "";
    const HELP: &'static str = "counts packets";
    const READS_CONTENT: bool = false;
    type State = u32;
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Count)
    }
}
