//! The canonical text of commands on named sets.

use std::fmt::{self, Display, Formatter};

use super::Unbroken;
use crate::ast::{NamedSet, SetElement, SetElements, Subnet};
use crate::lex::quote_text;

impl Display for SetElement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SetElement::Prefix(subnet) => prefix(f, subnet),
            SetElement::Ports(first, last) => ports(f, *first, *last),
            SetElement::Pair(subnet, first, last) => {
                let (open, close) = if subnet.address.is_ipv6() { ("[", "]:") } else { ("", ":") };
                f.write_str(open)?;
                prefix(f, subnet)?;
                f.write_str(close)?;
                ports(f, *first, *last)
            }
        }
    }
}

fn prefix(f: &mut Formatter<'_>, subnet: &Subnet) -> fmt::Result {
    match subnet {
        Subnet { address, .. } if subnet.is_address() => address.fmt(f),
        Subnet { address, len } => write!(f, "{address}/{len}"),
    }
}

fn ports(f: &mut Formatter<'_>, first: u16, last: u16) -> fmt::Result {
    if first == last { first.fmt(f) } else { write!(f, "{first}-{last}") }
}

/// A time in seconds with the largest unit that divides it.
struct Time(u32);

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let units = [("d", 86_400), ("h", 3600), ("m", 60)];
        let (unit, seconds) =
            units.into_iter().find(|(_, seconds)| self.0.is_multiple_of(*seconds)).unwrap_or(("s", 1));
        write!(f, "{}{unit}", self.0 / seconds)
    }
}

fn format_options(
    f: &mut Formatter<'_>,
    timeout: Option<u32>,
    file: Option<&str>,
    comment: Option<&str>,
) -> fmt::Result {
    if let Some(timeout) = timeout {
        write!(f, " timeout {}", Time(timeout))?;
    }
    if let Some(file) = file {
        write!(f, " file {}", Unbroken(file))?;
    }
    comment.map_or(Ok(()), |comment| write!(f, " comment {}", quote_text(comment)))
}

impl Display for NamedSet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "set add {} {}", self.name, self.kind.word())?;
        format_options(f, self.timeout, self.file.as_deref(), self.comment.as_deref())
    }
}

impl Display for SetElements {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "set {} add", self.name)?;
        self.elements.iter().try_for_each(|element| write!(f, " {element}"))?;
        format_options(f, self.timeout, None, self.comment.as_deref())
    }
}
