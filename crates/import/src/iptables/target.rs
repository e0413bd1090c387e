//! The target of a rule of iptables, with its options.

use std::net::Ipv4Addr;

use super::error::OptionError;
use crate::nat::Translation;
use crate::ordered::{Chains, OTHER_ANSWER, Verdict, log_prefix};
use crate::script::Kind;

/// A target.
pub(super) struct Target<'a> {
    /// Its name, or that of a chain.
    pub name: &'a str,
    /// Whether packets do not come back from the chain (`-g`).
    pub goes: bool,
    /// The words behind it.
    pub options: std::slice::Iter<'a, String>,
}

impl<'a> Target<'a> {
    /// Whether it writes log lines.
    pub(super) fn logs(&self) -> bool {
        matches!(self.name, "LOG" | "NFLOG" | "ULOG")
    }

    /// The word behind an option.
    pub(super) fn value(&self, option: &str) -> Option<&'a str> {
        let mut options = self.options.clone();
        options.find(|word| *word == option).and(options.next()).map(String::as_str)
    }

    /// The verdicts, in order. `key`: the name of a chain among all chains.
    pub(super) fn verdicts(
        &self,
        chains: &Chains,
        key: impl Fn(&str) -> String,
    ) -> Result<Vec<Verdict>, OptionError> {
        Ok(vec![match self.name {
            _ if self.logs() => {
                let prefix = self.value("--log-prefix").or_else(|| self.value("--nflog-prefix"));
                Verdict::Log(prefix.and_then(log_prefix))
            }
            "ACCEPT" => Verdict::Accept,
            "DROP" => Verdict::Drop,
            "REJECT" => {
                let note = Verdict::Remark(Kind::Note, OTHER_ANSWER.to_owned());
                let remark = (self.value("--reject-with") != Some("tcp-reset")).then_some(note);
                return Ok(remark.into_iter().chain([Verdict::Reject]).collect());
            }
            "RETURN" => Verdict::Return,
            "MASQUERADE" | "SNAT" | "DNAT" => {
                let text = || self.options.clone().map(String::as_str).collect::<Vec<_>>().join(" ");
                let translation = self.translation();
                let unknown =
                    || OptionError::UnknownTranslation { text: format!("{} {}", self.name, text()) };
                Verdict::Translate(translation.ok_or_else(unknown)?)
            }
            chain if chains.contains_key(&key(chain)) => {
                let jump = Verdict::Jump(key(chain));
                let behind = self.goes.then_some(Verdict::Return);
                return Ok([jump].into_iter().chain(behind).collect());
            }
            name => return Err(OptionError::UnknownTarget { name: name.to_owned() }),
        }])
    }

    /// The translation of the target. None: mmb has no equal one.
    fn translation(&self) -> Option<Translation> {
        let known =
            ["--to-source", "--to-destination", "--to-ports", "--random", "--random-fully", "--persistent"];
        let is_known = |word: &String| !word.starts_with("--") || known.contains(&word.as_str());
        if !self.options.clone().all(is_known) {
            return None;
        }
        match self.name {
            "MASQUERADE" => {
                let ports = self.value("--to-ports").map(|text| ports(text).ok_or(())).transpose().ok()?;
                Some(Translation::Masquerade { ports })
            }
            "SNAT" => {
                let (addresses, ports) = endpoint(self.value("--to-source")?)?;
                Some(Translation::Source { addresses, ports })
            }
            _ => {
                let (addresses, ports) = endpoint(self.value("--to-destination")?)?;
                let is_single = addresses.0 == addresses.1 && ports.is_none_or(|(low, high)| low == high);
                let port = ports.map(|(low, _)| low);
                is_single.then_some(Translation::Destination { address: addresses.0, port })
            }
        }
    }
}

/// Addresses, and ports if there are some.
type Endpoint = ((Ipv4Addr, Ipv4Addr), Option<(u16, u16)>);

/// Parses `ADDRESS[-ADDRESS][:PORT[-PORT]]`.
fn endpoint(text: &str) -> Option<Endpoint> {
    let (addresses, behind) =
        text.split_once(':').map_or((text, None), |(before, behind)| (before, Some(behind)));
    let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
    let addresses = (first.parse().ok()?, last.parse().ok()?);
    match behind {
        None => Some((addresses, None)),
        Some(behind) => Some((addresses, Some(ports(behind)?))),
    }
}

/// Parses `PORT[-PORT]`.
fn ports(text: &str) -> Option<(u16, u16)> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    Some((low.parse().ok().filter(|low| *low > 0)?, high.parse().ok()?))
}
