//! Settings of sessions, and limits: `set timeout`, `set tcp-pickup`, `set tcp-window-check`,
//! `set held-packets`, `set stream-pickup`, `set stream-overflow`, `set stream-mptcp`,
//! `set stream-hold-time`, `set punt-limit`.

use mmb_dataplane::PuntLimits;
use mmb_flow::{HeldLimits, SessionSettings, SourceLimit, Timeouts};
use mmb_lang::{Command, HeldScope, PuntClass, SessionLimit, Timeout};

/// Milliseconds in a second.
const SECOND: u32 = 1000;

/// The value of a timeout, in milliseconds.
fn timeout_mut(timeouts: &mut Timeouts, timeout: Timeout) -> &mut u32 {
    match timeout {
        Timeout::TcpHandshake => &mut timeouts.tcp_handshake,
        Timeout::TcpEstablished => &mut timeouts.tcp_established,
        Timeout::TcpHalfClosed => &mut timeouts.tcp_half_closed,
        Timeout::TcpClosed => &mut timeouts.tcp_closed,
        Timeout::TcpReset => &mut timeouts.tcp_reset,
        Timeout::UdpUnreplied => &mut timeouts.udp_unreplied,
        Timeout::UdpReplied => &mut timeouts.udp_replied,
        Timeout::Icmp => &mut timeouts.icmp,
        Timeout::Other => &mut timeouts.other,
        Timeout::Fragment => &mut timeouts.fragment,
        Timeout::Held => &mut timeouts.held,
    }
}

/// Sets a timeout.
pub(crate) fn set_timeout(settings: &mut SessionSettings, timeout: Timeout, seconds: u32) {
    *timeout_mut(&mut settings.timeouts, timeout) = seconds.saturating_mul(SECOND);
}

/// The limit of sessions of a source.
pub(crate) fn source_limit(limit: SessionLimit) -> SourceLimit {
    match limit {
        SessionLimit::Default => SourceLimit::Share,
        SessionLimit::Sessions(n) => SourceLimit::Sessions(n),
        SessionLimit::Off => SourceLimit::Off,
    }
}

/// A limit of held packets.
pub(crate) fn held_limit_mut(limits: &mut HeldLimits, scope: HeldScope) -> &mut u32 {
    match scope {
        HeldScope::Session => &mut limits.session,
        HeldScope::Worker => &mut limits.worker,
    }
}

/// The lines of a file with these settings. Defaults have no line.
pub(crate) fn lines(settings: &SessionSettings) -> Vec<String> {
    let (mut now, mut default) = (*settings, SessionSettings::default());
    let mut lines = Vec::new();
    for timeout in Timeout::ALL {
        let milliseconds = *timeout_mut(&mut now.timeouts, timeout);
        if milliseconds != *timeout_mut(&mut default.timeouts, timeout) {
            lines.push(Command::SetTimeout { timeout, seconds: milliseconds / SECOND }.to_string());
        }
    }
    if now.tcp_pickup != default.tcp_pickup {
        lines.push(Command::SetTcpPickup(now.tcp_pickup).to_string());
    }
    if now.tcp_window_check != default.tcp_window_check {
        lines.push(Command::SetTcpWindowCheck(now.tcp_window_check).to_string());
    }
    match now.source_limit {
        SourceLimit::Share => {}
        SourceLimit::Sessions(n) => {
            lines.push(Command::SetSessionLimit(SessionLimit::Sessions(n)).to_string());
        }
        SourceLimit::Off => lines.push(Command::SetSessionLimit(SessionLimit::Off).to_string()),
    }
    if now.streams.pickup != default.streams.pickup {
        lines.push(Command::SetStreamPickup(now.streams.pickup).to_string());
    }
    if now.streams.overflow != default.streams.overflow {
        lines.push(Command::SetStreamOverflow(now.streams.overflow).to_string());
    }
    if now.streams.mptcp != default.streams.mptcp {
        lines.push(Command::SetStreamMptcp(now.streams.mptcp).to_string());
    }
    if now.streams.hold_time != default.streams.hold_time {
        lines.push(Command::SetStreamHoldTime(now.streams.hold_time).to_string());
    }
    for scope in [HeldScope::Session, HeldScope::Worker] {
        let packets = *held_limit_mut(&mut now.held, scope);
        if packets != *held_limit_mut(&mut default.held, scope) {
            lines.push(Command::SetHeldPackets { scope, packets }.to_string());
        }
    }
    lines
}

/// The lines of a file with these limits. Defaults have no line.
pub(crate) fn punt_lines(limits: &PuntLimits) -> impl Iterator<Item = String> {
    let default = PuntLimits::default();
    let changed = PuntClass::ALL.into_iter().filter(move |class| limits.get(*class) != default.get(*class));
    changed.map(|class| Command::SetPuntLimit { class, rate: limits.get(class) }.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_other_than_the_defaults_have_a_line() {
        assert!(lines(&SessionSettings::default()).is_empty());
        let held = HeldLimits { session: 7, worker: 8 };
        let mut settings =
            SessionSettings { tcp_pickup: false, tcp_window_check: true, held, ..SessionSettings::default() };
        settings.streams.pickup = mmb_stream::OnPickup::Reset;
        settings.streams.overflow = mmb_stream::OnOverflow::Pass;
        settings.streams.mptcp = mmb_stream::OnMptcp::Pass;
        settings.streams.hold_time = 0;
        settings.source_limit = source_limit(SessionLimit::Sessions(99));
        for (timeout, seconds) in Timeout::ALL.into_iter().zip(11..) {
            set_timeout(&mut settings, timeout, seconds);
        }
        let text = lines(&settings);
        assert_eq!(text.len(), Timeout::ALL.len() + 9);
        assert_eq!(text[0], "set timeout tcp-handshake 11");
        assert_eq!(text[10..13], ["set timeout held 21", "set tcp-pickup off", "set tcp-window-check on"]);
        assert_eq!(text[13], "set session-limit source 99");
        assert_eq!(text[14..16], ["set stream-pickup reset", "set stream-overflow pass"]);
        assert_eq!(text[16..18], ["set stream-mptcp pass", "set stream-hold-time 0"]);
        assert_eq!(text[18..], ["set held-packets session 7", "set held-packets worker 8"]);
        let mut limits = PuntLimits::default();
        assert_eq!(punt_lines(&limits).count(), 0);
        limits.set(PuntClass::Local, None);
        limits.set(PuntClass::Neighbor, Some(7));
        let limits: Vec<_> = punt_lines(&limits).collect();
        assert_eq!(limits, ["set punt-limit neighbor 7", "set punt-limit local off"]);
        for line in text.iter().chain(&limits) {
            assert!(mmb_lang::parse_line(line).is_ok_and(|c| c.is_some()), "{line}");
        }
    }
}
