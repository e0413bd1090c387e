//! `show fast-path`: flows that the XDP program forwards in the kernel.

use mmb_dataplane::{FastPortInfo, fast_path_obstacle};

use crate::api::{FastInterfaceEntry, FastPathReply};
use crate::config::Interface;
use crate::transaction::Control;

/// The reason of an interface to which XDP cannot redirect frames.
const NO_REDIRECT: &str =
    "XDP cannot redirect frames to it (the peer of a veth needs GRO: ethtool -K PEER gro on)";

impl Control {
    /// `show fast-path`.
    pub fn fast_path(&self) -> FastPathReply {
        let config = self.state().config;
        let info = self.engine().fast_path();
        let entry = |i: &Interface| {
            let (ingress, egress, reason) = match self.engine().fast_port(i.id) {
                Some(FastPortInfo::Both) => (true, true, None),
                Some(FastPortInfo::InOnly) => (true, false, Some(NO_REDIRECT.to_owned())),
                Some(FastPortInfo::None(reason)) => (false, false, Some(reason)),
                None => (false, false, Some("the interface is down".to_owned())),
            };
            FastInterfaceEntry { name: i.name.clone(), ingress, egress, reason }
        };
        FastPathReply {
            enabled: config.fast_path(),
            active: info.learns,
            obstacle: fast_path_obstacle(config.policy(), config.nat().compiled(), config.settings())
                .map(|obstacle| obstacle.to_string()),
            key: info.key.map(str::to_owned),
            entries: info.entries,
            installed: info.installed,
            packets: info.packets,
            bytes: info.bytes,
            refused: info.refused.into_iter().map(|(reason, n)| (reason.to_owned(), n)).collect(),
            interfaces: config.interfaces().iter().map(entry).collect(),
        }
    }
}
