//! Rules of the table `mangle` that lower the maximum segment size (`TCPMSS`).
//!
//! Neither Linux nor the rule of mmb raises the size that a host has announced. The table edits packets and
//! decides nothing about them, so these rules are converted one by one, without their order.

use mmb_lang::FieldId;

use super::error::OptionError;
use super::rule::Rule;
use crate::filter::{Filter, Values};
use crate::matches::matches;
use crate::script::{Kind, Script};

/// Whether packets that mmb forwards pass a built-in chain, with their output interface known.
fn has_forwarded(chain: &str) -> bool {
    matches!(chain, "FORWARD" | "POSTROUTING")
}

/// Writes a rule for a rule with the target `TCPMSS`, or a remark. None: it is not such a rule, or its chain
/// is not one of forwarded packets.
pub(super) fn clamp(
    rule: Rule<'_>,
    chain: &str,
    script: &mut Script,
    place: &str,
    source: &str,
) -> Option<()> {
    let (limit, filters) = match rule.segment_limit()? {
        Ok(limit) if has_forwarded(chain) => (limit, rule.into_filters()),
        Ok(_) => return None,
        Err(error) => {
            script.remark(Kind::NotMapped, place, source, error.to_string());
            return Some(());
        }
    };
    script.comment(format!("{place}: {source}"));
    let longer = Values::range(u128::from(limit) + 1, u128::from(u16::MAX));
    for filter in filters.into_iter().filter_map(|filter: Filter| filter.and(FieldId::TcpOptMss, &longer)) {
        match matches(&filter) {
            Ok(lines) => lines.iter().for_each(|matches| {
                script.rule(&format!("add {matches} mod tcp-opt-mss {limit}"), place, source);
            }),
            Err(error) => script.remark(Kind::NotMapped, place, source, error.to_string()),
        }
    }
    Some(())
}

impl Rule<'_> {
    /// The segment size of the target `TCPMSS`, in bytes. None: the rule has another target.
    fn segment_limit(&self) -> Option<Result<u16, OptionError>> {
        let target = self.target().filter(|target| target.name == "TCPMSS")?;
        let text = target.value("--set-mss");
        let limit = text.and_then(|text| text.parse().ok()).ok_or(OptionError::SegmentSize);
        Some(if self.has_states() { Err(OptionError::StatefulEdit) } else { limit })
    }
}
