//! What can be set about sessions, in the words of the language.

use mmb_flow::{SessionSettings, Timeouts};
use mmb_lang::{Command, Timeout};

/// Milliseconds in a second.
const SECOND: u32 = 1000;

/// Where a timeout is kept, in milliseconds.
fn place(timeouts: &mut Timeouts, timeout: Timeout) -> &mut u32 {
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
    }
}

/// Sets a timeout.
pub(crate) fn set_timeout(settings: &mut SessionSettings, timeout: Timeout, seconds: u32) {
    *place(&mut settings.timeouts, timeout) = seconds.saturating_mul(SECOND);
}

/// The lines of a file that give these settings; what is as it is without a line has none.
pub(crate) fn lines(settings: &SessionSettings) -> Vec<String> {
    let (mut now, mut usual) = (*settings, SessionSettings::default());
    let mut lines = Vec::new();
    for timeout in Timeout::ALL {
        let milliseconds = *place(&mut now.timeouts, timeout);
        if milliseconds != *place(&mut usual.timeouts, timeout) {
            lines.push(Command::SetTimeout { timeout, seconds: milliseconds / SECOND }.to_string());
        }
    }
    if now.tcp_pickup != usual.tcp_pickup {
        lines.push(Command::SetTcpPickup(now.tcp_pickup).to_string());
    }
    if now.tcp_window_check != usual.tcp_window_check {
        lines.push(Command::SetTcpWindowCheck(now.tcp_window_check).to_string());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_line_unless_it_is_as_usual() {
        assert!(lines(&SessionSettings::default()).is_empty());
        let mut settings =
            SessionSettings { tcp_pickup: false, tcp_window_check: true, ..SessionSettings::default() };
        for (timeout, seconds) in Timeout::ALL.into_iter().zip(11..) {
            set_timeout(&mut settings, timeout, seconds);
        }
        let text = lines(&settings);
        assert_eq!(text.len(), Timeout::ALL.len() + 2);
        assert_eq!(text[0], "set timeout tcp-handshake 11");
        assert_eq!(text[9..], ["set timeout fragment 20", "set tcp-pickup off", "set tcp-window-check on"]);
        for line in &text {
            assert!(mmb_lang::parse_line(line).is_ok_and(|c| c.is_some()), "{line}");
        }
    }
}
