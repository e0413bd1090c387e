//! Why rules of nftables cannot be converted.

/// Why a rule cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExpressionError {
    /// The family of the table is not supported.
    #[error("tables of the family {family} are not converted")]
    UnsupportedFamily {
        /// Name of the family.
        family: String,
    },
    /// A statement is not a JSON object.
    #[error("a statement is not an object")]
    InvalidStatement,
    /// mmb has no equivalent of a statement.
    #[error("mmb has no equivalent of the statement `{name}`")]
    UnknownStatement {
        /// Name of the statement.
        name: String,
    },
    /// An edit of the maximum segment size.
    #[error(
        "write it as `add tcp-syn tcp-opt-mss > N mod tcp-opt-mss N`, with the size of the rule, or for the MTU of the \
         path 40 bytes below the smallest one, 60 for IPv6"
    )]
    SegmentSize,
    /// A verdict map is not a list of pairs.
    #[error("a verdict map is not a list of pairs")]
    InvalidMap,
    /// A DSCP is not a number.
    #[error("a code point is not a number")]
    InvalidCodePoint,
    /// A concatenation is compared with an operator other than `==`.
    #[error("a concatenation can be compared with == only")]
    ConcatenationOperator,
    /// An element of a concatenation does not have its parts.
    #[error("an element of a concatenation has the wrong number of parts")]
    ConcatenationElement,
    /// There is no such set.
    #[error("there is no set `{name}`")]
    UnknownSet {
        /// Name of the set.
        name: String,
    },
    /// mmb has no field for an expression.
    #[error("mmb has no field for {expression}")]
    UnknownField {
        /// The expression as JSON.
        expression: String,
    },
    /// mmb has no equivalent of a property of connections.
    #[error("of connections, rules can match `ct state` and `ct status dnat`, not {expression}")]
    UnknownConnection {
        /// The expression as JSON.
        expression: String,
    },
    /// Not connection states.
    #[error("{value}: connection states are new, established, related, invalid and untracked")]
    UnknownStates {
        /// The value as JSON.
        value: String,
    },
    /// The addresses of the machine are not known.
    #[error("`fib daddr type local` needs `--local ADDRESS` for each address of the machine")]
    AddressType,
    /// A limited rule that does not log.
    #[error("`limit` is converted for `log` only: `police` in a service chain limits rates")]
    Limited,
    /// mmb has no equal translation.
    #[error("{statement} is no translation that mmb has")]
    UnknownTranslation {
        /// The statement as JSON.
        statement: String,
    },
    /// An inequality compares with something other than one number.
    #[error("`{op}` needs one number")]
    NotOneNumber {
        /// The operator.
        op: String,
    },
    /// The operator is unknown.
    #[error("unknown comparison `{op}`")]
    UnknownOperator {
        /// The operator.
        op: String,
    },
    /// The operator does not apply to flags.
    #[error("flags cannot be compared with `{op}`")]
    FlagOperator {
        /// The operator.
        op: String,
    },
    /// Not a set of TCP flags.
    #[error("{value} are not TCP flags")]
    InvalidFlags {
        /// The value as JSON.
        value: String,
    },
    /// A pattern for interface names.
    #[error("mmb matches interfaces by their full names, not by {pattern}")]
    InterfacePattern {
        /// The pattern as JSON.
        pattern: String,
    },
    /// Not a value of the field.
    #[error("{value} is not a value of {field}")]
    InvalidValue {
        /// The value as JSON.
        value: String,
        /// Name of the field.
        field: &'static str,
    },
}
