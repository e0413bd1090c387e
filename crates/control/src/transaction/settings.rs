//! `set …`.

use mmb_dataplane::AddressChecks;
use mmb_flow::SessionSettings;
use mmb_lang::{
    ErrorPolicy, FastPathMode, HeldScope, LogFormat, LogSink, ProcessMode, PuntClass, ReversePathMode,
    SessionLimit, Timeout, Word,
};

use super::control::Control;
use super::interfaces::list;
use crate::api::Done;
use crate::config::{Config, settings};
use crate::error::CommandError;
use crate::text::count;
use mmb_stream::{OnMptcp, OnOverflow, OnPickup};

impl Control {
    /// `set on-error`.
    pub(crate) fn set_on_error(&self, on_error: ErrorPolicy) -> Result<Done, CommandError> {
        self.edit(|config| config.set_on_error(on_error))?;
        let what = match on_error {
            ErrorPolicy::Forward => "are forwarded unedited",
            ErrorPolicy::Drop => "are dropped",
        };
        Ok(Done::new(format!("packets that cannot be edited {what}")))
    }

    /// `set fast-path`.
    pub(crate) fn set_fast_path(&self, mode: FastPathMode) -> Result<Done, CommandError> {
        self.edit(|config| config.set_fast_path(mode))?;
        let what = match mode {
            FastPathMode::Off => "flows are not offloaded",
            FastPathMode::Auto => {
                "flows may be offloaded, to XDP on af-xdp interfaces and to tc on af-packet interfaces"
            }
            FastPathMode::Xdp => "flows of af-xdp interfaces may be offloaded to XDP",
            FastPathMode::Tc => "flows of af-packet interfaces may be offloaded to tc",
        };
        Ok(Done::new(what.to_owned()))
    }

    /// `set log-format`.
    pub(crate) fn set_log_format(&self, format: LogFormat) -> Result<Done, CommandError> {
        self.edit(|config| config.packet_log_mut().format = format)?;
        let what = match format {
            LogFormat::Text => "lines of text",
            LogFormat::Json => "lines with JSON",
        };
        Ok(Done::new(format!("packets that rules log are {what}")))
    }

    /// `set log-to`.
    pub(crate) fn set_log_sink(&self, sink: LogSink) -> Result<Done, CommandError> {
        self.edit(|config| config.packet_log_mut().sink = sink)?;
        let to = match sink {
            LogSink::Stderr => "standard error".to_owned(),
            LogSink::Syslog => format!("the system's log at {}", self.syslog_socket().display()),
        };
        Ok(Done::new(format!("packets that rules log go to {to}")))
    }

    /// `set worker-mode`.
    pub(crate) fn set_worker_mode(&self, mode: ProcessMode) -> Result<Done, CommandError> {
        self.edit(|config| config.set_worker_mode(mode))?;
        let what = match mode {
            ProcessMode::Poll => "look for packets all the time",
            ProcessMode::Event => "sleep until packets come",
            ProcessMode::Adaptive => "sleep when no packet has come for a while",
        };
        Ok(Done::new(format!("workers {what}")))
    }

    /// `set gro`.
    pub(crate) fn set_gro(&self, on: bool) -> Result<Done, CommandError> {
        self.edit(|config| config.set_gro(on))?;
        let what =
            if on { "leave as large frames by interfaces that take them" } else { "leave as they are" };
        Ok(Done::new(format!("TCP segments {what}")))
    }

    /// `set timeout`.
    pub(crate) fn set_timeout(&self, timeout: Timeout, seconds: u32) -> Result<Done, CommandError> {
        self.change_settings(|settings| settings::set_timeout(settings, timeout, seconds))?;
        Ok(Done::new(format!("{} is {}", timeout.word(), count(u64::from(seconds), "second"))))
    }

    /// `set punt-limit`.
    pub(crate) fn set_punt_limit(&self, class: PuntClass, rate: Option<u32>) -> Result<Done, CommandError> {
        self.edit(|config| config.punt_limits_mut().set(class, rate))?;
        let limit = rate.map_or("all packets".to_owned(), |rate| count(u64::from(rate), "packet"));
        let each = if rate.is_some() { " per second" } else { "" };
        Ok(Done::new(format!("the kernel gets {limit}{each} of class {}", class.word())))
    }

    /// `set session-limit`.
    pub(crate) fn set_session_limit(&self, limit: SessionLimit) -> Result<Done, CommandError> {
        self.change_settings(|settings| settings.source_limit = settings::source_limit(limit))?;
        let sessions = match limit {
            SessionLimit::Default => "an eighth of all sessions".to_owned(),
            SessionLimit::Sessions(n) => count(u64::from(n), "session"),
            SessionLimit::Off => "any number of sessions".to_owned(),
        };
        Ok(Done::new(format!("a source may have {sessions}")))
    }

    /// `set tcp-pickup`.
    pub(crate) fn set_tcp_pickup(&self, on: bool) -> Result<Done, CommandError> {
        self.change_settings(|settings| settings.tcp_pickup = on)?;
        let what = if on { "may" } else { "may not" };
        Ok(Done::new(format!("TCP segments other than SYNs {what} open sessions")))
    }

    /// `set tcp-window-check`.
    pub(crate) fn set_tcp_window_check(&self, on: bool) -> Result<Done, CommandError> {
        self.change_settings(|settings| settings.tcp_window_check = on)?;
        let what = if on { "are dropped" } else { "pass" };
        Ok(Done::new(format!("TCP segments outside the window of their connection {what}")))
    }

    /// `set held-packets`.
    pub(crate) fn set_held_packets(&self, scope: HeldScope, packets: u32) -> Result<Done, CommandError> {
        self.change_settings(|settings| *settings::held_limit_mut(&mut settings.held, scope) = packets)?;
        let of = match scope {
            HeldScope::Session => "of a session",
            HeldScope::Worker => "of each worker",
        };
        let packets = count(u64::from(packets), "packet");
        Ok(Done::new(format!("functions hold at most {packets} {of}")))
    }

    /// `set stream-pickup`.
    pub(crate) fn set_stream_pickup(&self, pickup: OnPickup) -> Result<Done, CommandError> {
        self.change_settings(|settings| settings.streams.pickup = pickup)?;
        let what = match pickup {
            OnPickup::Pass => "pass, and are not read",
            OnPickup::Inspect => "are read from their next byte on",
            OnPickup::Reset => "are reset",
        };
        Ok(Done::new(format!("connections whose SYN no stream function has seen {what}")))
    }

    /// `set stream-overflow`.
    pub(crate) fn set_stream_overflow(&self, overflow: OnOverflow) -> Result<Done, CommandError> {
        self.change_settings(|settings| settings.streams.overflow = overflow)?;
        let what = match overflow {
            OnOverflow::Drop => "are dropped",
            OnOverflow::Pass => "pass, and their connections are not read any more",
            OnOverflow::Reset => "reset their connections",
        };
        Ok(Done::new(format!("segments that stream functions cannot put in order {what}")))
    }

    /// `set stream-mptcp`.
    pub(crate) fn set_stream_mptcp(&self, mptcp: OnMptcp) -> Result<Done, CommandError> {
        self.change_settings(|settings| settings.streams.mptcp = mptcp)?;
        let what = match mptcp {
            OnMptcp::Strip => "get one path where functions edit",
            OnMptcp::Pass => "keep them, and are not edited",
        };
        Ok(Done::new(format!("new connections that ask for several paths {what}")))
    }

    /// `set stream-hold-time`.
    pub(crate) fn set_stream_hold_time(&self, time: u32) -> Result<Done, CommandError> {
        self.change_settings(|settings| settings.streams.hold_time = time)?;
        Ok(Done::new(format!("bytes that their sender repeats wait for stream functions for {time} ms")))
    }

    /// `set martian-check`.
    pub(crate) fn set_martian_check(&self, on: bool) -> Result<Done, CommandError> {
        self.change_address_checks(|checks| checks.martians = on)?;
        let what = if on { "are dropped" } else { "meet rules like others" };
        Ok(Done::new(format!("packets with impossible addresses {what}")))
    }

    /// `set rpf`.
    pub(crate) fn set_reverse_path(&self, mode: ReversePathMode) -> Result<Done, CommandError> {
        self.change_address_checks(|checks| checks.reverse_path = mode)?;
        Ok(Done::new(format!("sources of routed packets {}", reverse_path_text(mode))))
    }

    /// `set rpf` for interfaces.
    pub(crate) fn set_interface_reverse_path(
        &self,
        names: &[Word],
        mode: Option<ReversePathMode>,
    ) -> Result<Done, CommandError> {
        self.change(|config| config.set_reverse_path(names, mode))?;
        let what = mode.map_or("are checked as on other interfaces", reverse_path_text);
        Ok(Done::new(format!("sources of routed packets received on {} {what}", list(names))))
    }

    fn change_address_checks(&self, set: impl FnOnce(&mut AddressChecks)) -> Result<(), CommandError> {
        self.edit(|config| set(config.address_checks_mut()))
    }

    /// A change of the configuration that cannot fail by itself.
    fn edit(&self, edit: impl FnOnce(&mut Config)) -> Result<(), CommandError> {
        self.change(|config| {
            edit(config);
            Ok(())
        })
    }

    fn change_settings(&self, set: impl FnOnce(&mut SessionSettings)) -> Result<(), CommandError> {
        self.edit(|config| set(config.settings_mut()))
    }
}

/// What a reverse path filter does with sources.
fn reverse_path_text(mode: ReversePathMode) -> &'static str {
    match mode {
        ReversePathMode::Off => "are not checked against routes",
        ReversePathMode::Loose => "need a route",
        ReversePathMode::Strict => "need a route by the interface that their packets come in by",
    }
}
