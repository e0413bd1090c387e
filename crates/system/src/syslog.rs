//! Lines for the system's log, by its socket (syslog(3)).
//!
//! Theory of operation. Each line is a datagram to a Unix socket, as the C library sends them: priority,
//! name and number of the process, text (RFC 3164, 4.1). It has no time, because the format has neither a
//! year nor a time zone; the receiver adds the time of arrival (RFC 3164, 4.3.2). A line never waits. If
//! there is no receiver, or it does not read fast enough, the line is lost and counted, and a line tells how
//! many when the receiver takes lines again. A receiver that was restarted has a new socket under the same
//! path, which is opened again with the next line.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use crate::log::count_lost;

/// The socket of the system's log.
pub const DEFAULT_SOCKET: &str = "/dev/log";

/// Facility "system daemons", severity "informational" (RFC 3164, 4.1.1).
const INFO: u8 = 3 << 3 | 6;
/// Facility "system daemons", severity "warning".
const WARNING: u8 = 3 << 3 | 4;

/// A sender of lines.
#[derive(Debug)]
pub struct Syslog {
    path: PathBuf,
    socket: Option<UnixDatagram>,
    /// Lines that were lost since the receiver was told.
    lost: u64,
}

impl Syslog {
    /// A sender to the socket with this path. It is opened with the first line.
    pub fn new(path: PathBuf) -> Syslog {
        Syslog { path, socket: None, lost: 0 }
    }

    /// Sends a line without its end. Control characters become question marks.
    pub fn send(&mut self, line: &str) {
        if self.lost > 0 {
            let text = format!("{} lines of this output were lost: the log did not take them", self.lost);
            if self.transmit(WARNING, &text).is_ok() {
                self.lost = 0;
            }
        }
        if self.lost > 0 || self.transmit(INFO, line).is_err() {
            self.lost += 1;
            count_lost(1);
        }
    }

    fn transmit(&mut self, priority: u8, line: &str) -> io::Result<()> {
        let text: String = line.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let datagram = format!("<{priority}>mmb[{}]: {text}", std::process::id());
        match self.attempt(datagram.as_bytes()) {
            // The receiver reads too slowly. A new socket would not help.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            Err(_) => {
                self.socket = None;
                self.attempt(datagram.as_bytes()).inspect_err(|_| self.socket = None)
            }
            Ok(()) => Ok(()),
        }
    }

    fn attempt(&mut self, datagram: &[u8]) -> io::Result<()> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                let socket = UnixDatagram::unbound()?;
                socket.set_nonblocking(true)?;
                socket.connect(&self.path)?;
                socket
            }
        };
        let socket = self.socket.insert(socket);
        socket.send(datagram).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(receiver: &UnixDatagram) -> String {
        let mut datagram = [0; 4096];
        let len = receiver.recv(&mut datagram).unwrap();
        String::from_utf8(datagram[..len].to_vec()).unwrap()
    }

    fn line(priority: u8, text: &str) -> String {
        format!("<{priority}>mmb[{}]: {text}", std::process::id())
    }

    #[test]
    fn a_receiver_that_comes_later_learns_what_was_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut syslog = Syslog::new(path.clone());
        syslog.send("one");
        syslog.send("two");
        let receiver = UnixDatagram::bind(&path).unwrap();
        syslog.send("th\nree\u{9b}");
        assert_eq!(
            received(&receiver),
            line(28, "2 lines of this output were lost: the log did not take them")
        );
        assert_eq!(received(&receiver), line(30, "th?ree?"));
        // A restart: another socket under the same path.
        drop(receiver);
        std::fs::remove_file(&path).unwrap();
        let receiver = UnixDatagram::bind(&path).unwrap();
        syslog.send("four");
        assert_eq!(received(&receiver), line(30, "four"));
    }

    #[test]
    fn a_receiver_that_does_not_read_delays_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let receiver = UnixDatagram::bind(&path).unwrap();
        let mut syslog = Syslog::new(path);
        let before = crate::log::lost();
        let mut sent = 0;
        while syslog.lost == 0 {
            syslog.send(&sent.to_string());
            sent += 1;
        }
        syslog.send("lost");
        assert_eq!(syslog.lost, 2);
        assert!(crate::log::lost() >= before + 2);
        for number in 0..sent - 1 {
            assert_eq!(received(&receiver), line(30, &number.to_string()));
        }
        syslog.send("last");
        assert!(received(&receiver).contains("2 lines"));
        assert_eq!(received(&receiver), line(30, "last"));
    }
}
