//! Words of messages, times, and Ethernet addresses.

use std::time::{SystemTime, UNIX_EPOCH};

/// A number with its noun: `1 rule`, `2 rules`.
pub fn count(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

const DAY: u64 = 86_400;

/// A time in UTC with milliseconds, in the format of RFC 3339.
pub(crate) fn utc(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, milliseconds) = (since.as_secs(), since.subsec_millis());
    let (year, month, day) = civil(seconds / DAY);
    let (hour, minute, second) = (seconds % DAY / 3600, seconds % 3600 / 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar. Years begin in March
/// here, so that the leap day is the last day of a year. Every five months from March on have 153 days.
fn civil(days: u64) -> (u64, u64, u64) {
    /// From 0000-03-01 to 1970-01-01.
    const TO_1970: u64 = 719_468;
    const IN_400_YEARS: u64 = 146_097;
    let days = days + TO_1970;
    let (era, in_era) = (days / IN_400_YEARS, days % IN_400_YEARS);
    let year_of_era = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * in_year + 2) / 153;
    let day = in_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}

/// An Ethernet address.
pub(crate) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_agree_with_date() {
        // `date -u -d @N +%FT%T`.
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (1_792_638_857, "2026-10-22T03:14:17.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
        assert!(utc(UNIX_EPOCH + Duration::from_millis(1_234)).ends_with(":01.234Z"));
    }
}
