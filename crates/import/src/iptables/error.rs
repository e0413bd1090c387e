//! Why rules of iptables cannot be converted.

/// Why a rule cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OptionError {
    /// An option has no value.
    #[error("`{option}` has no value")]
    NoValue {
        /// The option.
        option: String,
    },
    /// The import does not know an option.
    #[error("unknown option `{option}`")]
    UnknownOption {
        /// The option.
        option: String,
    },
    /// Not a list of connection states.
    #[error("`{states}`: connection states are NEW, ESTABLISHED, RELATED, INVALID, UNTRACKED and DNAT")]
    UnknownStates {
        /// The states.
        states: String,
    },
    /// The state of translated destinations is compared with others, or negated.
    #[error("DNAT can be matched alone, and not be negated")]
    MixedDnat,
    /// A limited rule that does not log.
    #[error("`-m limit` is converted for LOG only: `police` in a service chain limits rates")]
    Limited,
    /// The maximum segment size depends on the route of the packet.
    #[error(
        "the size depends on the path: write `add tcp-syn tcp-opt-mss > N mod tcp-opt-mss N`, with N 40 bytes below the \
         smallest MTU of IPv4, 60 of IPv6"
    )]
    SegmentSize,
    /// An edit of packets of connections in some states.
    #[error("edits of packets by the state of their connection are not converted")]
    StatefulEdit,
    /// Not a test of a named set that rules can have.
    #[error(
        "`--match-set` is converted with one of `src` and `dst`, for addresses, or not negated with two, for an \
         address and a port"
    )]
    UnsupportedSet,
    /// The type of an address is not known.
    #[error("only `--dst-type LOCAL` has an equal, with `--local ADDRESS` for each address of the machine")]
    AddressType,
    /// The new address is not one address, or the option has no equal.
    #[error("`{text}` is no translation that mmb has")]
    UnknownTranslation {
        /// The options of the target.
        text: String,
    },
    /// mmb has no equivalent of a match.
    #[error("mmb has no equivalent of `-m {name}`")]
    UnknownMatch {
        /// Name of the match.
        name: String,
    },
    /// mmb has no equivalent of a target.
    #[error("mmb has no equivalent of the target {name}")]
    UnknownTarget {
        /// Name of the target.
        name: String,
    },
    /// Not an address, a subnet or a range of addresses of the IP version.
    #[error("`{text}` is neither a subnet nor a range of {version}")]
    InvalidAddress {
        /// The text.
        text: String,
        /// The IP version of the file.
        version: &'static str,
    },
    /// A pattern for interface names.
    #[error("mmb matches interfaces by their full names, not by `{name}`")]
    InterfacePattern {
        /// The pattern.
        name: String,
    },
    /// Not the name or number of a protocol.
    #[error("unknown protocol `{name}`")]
    UnknownProtocol {
        /// The text.
        name: String,
    },
    /// Ports of a protocol other than TCP and UDP.
    #[error("mmb matches ports of TCP and UDP only")]
    UnsupportedPorts,
    /// Not a list of TCP flags.
    #[error("`{mask} {set}` are not TCP flags")]
    InvalidFlags {
        /// The flags that are compared.
        mask: String,
        /// The flags that are set.
        set: String,
    },
    /// Not an ICMP type.
    #[error("unknown ICMP type `{text}`")]
    UnknownType {
        /// The text.
        text: String,
    },
    /// A negated ICMP type with a code.
    #[error("a negated ICMP type with a code is not supported")]
    NegatedCode,
    /// Not a DSCP code point.
    #[error("`{text}` is not a code point")]
    InvalidCodePoint {
        /// The text.
        text: String,
    },
    /// Not a number of hops.
    #[error("`{text}` is not a number of hops")]
    InvalidHops {
        /// The text.
        text: String,
    },
    /// Not a number or a range of numbers.
    #[error("`{text}` is not a range of numbers")]
    InvalidRange {
        /// The text.
        text: String,
    },
}
