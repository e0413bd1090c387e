//! Errors of imports.

pub use crate::classbench::ClassbenchError;
pub use crate::iptables::IptablesError;
pub use crate::nft::NftError;

/// Why the input as a whole cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The input is not the output of `iptables-save` that is expected.
    #[error(transparent)]
    Iptables(#[from] IptablesError),
    /// The input is not the output of `nft -j list ruleset` that is expected.
    #[error(transparent)]
    Nft(#[from] NftError),
}
