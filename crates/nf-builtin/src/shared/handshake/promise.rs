//! What clients are promised before the server is known.

use mmb_nf::ArgError;

/// What clients are promised before the server is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Promise {
    /// Maximum segment size. None: the one of Ethernet.
    pub mss: Option<u16>,
    /// Window scale.
    pub scale: u8,
    pub sack: bool,
    pub timestamps: bool,
}

/// Largest window scale (RFC 7323, 2.3).
pub(crate) const MOST_SCALE: u8 = 14;
/// Least maximum segment size: the one that IPv4 hosts have to accept (RFC 9293, 3.7.1).
const LEAST_MSS: u16 = 536;

impl Default for Promise {
    fn default() -> Promise {
        Promise { mss: None, scale: 7, sack: true, timestamps: true }
    }
}

impl Promise {
    /// The arguments that [`Promise::option`] takes.
    pub const USAGE: &'static str = "[mss N] [window-scale N] [no-sack] [no-timestamps]";

    /// Parses one argument. Returns the words behind it. None: it is another argument.
    ///
    /// # Errors
    /// Its value is not accepted.
    pub fn option<'w, 's>(&mut self, words: &'w [&'s str]) -> Result<Option<&'w [&'s str]>, ArgError> {
        Ok(Some(match words {
            ["mss", number, rest @ ..] => {
                let mss = number.parse().ok().filter(|mss| *mss >= LEAST_MSS);
                let wrong = || format!("`mss {number}` is not a number from {LEAST_MSS} to 65535");
                self.mss = Some(mss.ok_or_else(wrong)?);
                rest
            }
            ["window-scale", number, rest @ ..] => {
                let scale = number.parse().ok().filter(|scale| *scale <= MOST_SCALE);
                let wrong = || format!("`window-scale {number}` is not a number from 0 to {MOST_SCALE}");
                self.scale = scale.ok_or_else(wrong)?;
                rest
            }
            ["no-sack", rest @ ..] => {
                self.sack = false;
                rest
            }
            ["no-timestamps", rest @ ..] => {
                self.timestamps = false;
                rest
            }
            [word @ ("mss" | "window-scale")] => {
                return Err(format!("`{word}` is followed by a number").into());
            }
            _ => return Ok(None),
        }))
    }
}
