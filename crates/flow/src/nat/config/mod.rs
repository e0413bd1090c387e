//! NAT as the operator configures it: pools of external addresses, and static forwards.

mod error;
mod forward;
mod pool;
mod set;
mod types;

pub use error::NatConfigError;
pub use forward::ForwardConfig;
pub use pool::PoolConfig;
pub use set::NatConfig;
pub use types::{Endpoint, Filtering, MAX_FORWARDS, MAX_POOL_ADDRESSES, MAX_POOLS, PoolId, PortProto};
