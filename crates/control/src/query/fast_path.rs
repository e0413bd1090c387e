//! `show fast-path`: flows that the kernel forwards.

use mmb_dataplane::{FastHook, FastPortRole, fast_path_admits, fast_path_obstacle};
use mmb_lang::FastPathMode;

use crate::api::{FastInterfaceEntry, FastPathReply};
use crate::config::Interface;
use crate::transaction::Control;

/// The reason of an interface that the setting leaves out.
const NOT_SET: &str = "`set fast-path` leaves it out";

/// The reason of an interface to which XDP cannot redirect frames.
const NO_REDIRECT: &str =
    "XDP cannot redirect frames to it (the peer of a veth needs GRO: ethtool -K PEER gro on)";

impl Control {
    /// `show fast-path`.
    pub fn fast_path(&self) -> FastPathReply {
        let config = self.state().config;
        let info = self.engine().fast_path();
        let mode = config.fast_path();
        let entry = |i: &Interface| {
            let port = self.engine().fast_port(i.id);
            let hook = port.as_ref().and_then(|port| port.hook);
            let program = hook.map(|hook| if hook == FastHook::Xdp { "xdp" } else { "tc" }.to_owned());
            // A setting that admits nothing leaves out nothing in particular: what it could admit is shown.
            let admits = |hook| mode == FastPathMode::Off || fast_path_admits(mode, hook);
            let (ingress, egress, reason) = match port.map(|port| port.role) {
                _ if !hook.is_none_or(admits) => (false, false, Some(NOT_SET.to_owned())),
                Some(FastPortRole::Both | FastPortRole::Unused) => (true, true, None),
                Some(FastPortRole::InOnly) => (true, false, Some(NO_REDIRECT.to_owned())),
                Some(FastPortRole::None(reason)) => (false, false, Some(reason)),
                None => (false, false, Some("the interface is down".to_owned())),
            };
            FastInterfaceEntry { name: i.name.clone(), program, ingress, egress, reason }
        };
        FastPathReply {
            enabled: mode != FastPathMode::Off,
            mode: mode.word().to_owned(),
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
