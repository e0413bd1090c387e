//! A function for tests: the path of a request says what it does. Some of it is hostile.

use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mmb_nf::{ArgError, L7Answer, L7Function, L7Handler, L7Request, L7Verdict, Setup};
use rustix::net::sockopt::socket_acceptconn;

#[derive(Default)]
pub struct Probe {
    requests: AtomicU64,
    /// What the process could do that it must not.
    allowed: Mutex<Vec<&'static str>>,
}

impl L7Handler for Probe {
    type Local = ();

    fn local(&self) {}

    fn request(&self, request: &mut L7Request<'_>, (): &mut ()) -> L7Verdict {
        self.requests.fetch_add(1, Relaxed);
        match request.message.target() {
            b"/panic" => panic!("a request too many"),
            b"/loop" => loop {
                std::hint::spin_loop();
            },
            b"/wait" => loop {
                std::thread::park();
            },
            b"/attack" => self.attack(),
            _ => {}
        }
        L7Verdict::Answer(L7Answer::of_status(410))
    }
}

impl L7Function for Probe {
    const TYPE: &'static str = "probe";
    const USAGE: &'static str = "[WORD]";
    const HELP: &'static str = "does what requests say";

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let is_copy = std::env::args().nth(1).as_deref() == Some(mmb_fabric::FUNCTION);
        match setup.args {
            // The engine makes the function as well, and goes on.
            ["exit"] if is_copy => std::process::exit(7),
            ["panic"] if is_copy => panic!("no more\nwords"),
            _ => Ok(Probe::default()),
        }
    }

    fn set(&self, _: &[&str]) -> Result<(), ArgError> {
        match std::env::args().nth(1).as_deref() == Some(mmb_fabric::FUNCTION) {
            true => Err("no\n\u{1b}]0;title\u{7}more".into()),
            false => Ok(()),
        }
    }

    fn report(&self) -> Vec<(String, String)> {
        vec![
            ("requests".into(), self.requests.load(Relaxed).to_string()),
            ("allowed".into(), self.allowed.lock().unwrap().join(" ")),
        ]
    }
}

impl Probe {
    /// Tries what the process of a broker must not do.
    fn attack(&self) {
        let mut allowed = self.allowed.lock().unwrap();
        let call = |number: i64, arguments: [i64; 5]| {
            let [a, b, c, d, e] = arguments;
            // SAFETY: a call with integers and null addresses, which looks at no memory of this process.
            let result = unsafe { libc::syscall(number, a, b, c, d, e) };
            if result < 0 { std::io::Error::last_os_error().raw_os_error() } else { None }
        };
        let number = i64::from;
        let (internet, stream) = (number(libc::AF_INET), number(libc::SOCK_STREAM));
        let listener = listener();
        // The standard input is the socket to the daemon.
        let tries = [
            ("socket", call(libc::SYS_socket, [internet, stream, 0, 0, 0])),
            ("socketpair", call(libc::SYS_socketpair, [1, stream, 0, 0, 0])),
            ("connect", call(libc::SYS_connect, [0, 0, 0, 0, 0])),
            ("bind", call(libc::SYS_bind, [0, 0, 0, 0, 0])),
            ("listen", call(libc::SYS_listen, [0, 1, 0, 0, 0])),
            ("shut-listener", call(libc::SYS_shutdown, [listener, number(libc::SHUT_RDWR), 0, 0, 0])),
            ("shut-receiving", call(libc::SYS_shutdown, [listener, number(libc::SHUT_RD), 0, 0, 0])),
            ("send-connects", call(libc::SYS_sendto, [0, 0, 0, number(libc::MSG_FASTOPEN), 0])),
            ("message-connects", call(libc::SYS_sendmsg, [0, 0, number(libc::MSG_FASTOPEN), 0, 0])),
            ("mark", call(libc::SYS_setsockopt, [0, number(libc::SOL_SOCKET), number(libc::SO_MARK), 0, 0])),
            (
                "linger",
                call(libc::SYS_setsockopt, [0, number(libc::SOL_SOCKET), number(libc::SO_LINGER), 0, 0]),
            ),
            (
                "transparent",
                call(libc::SYS_setsockopt, [0, number(libc::SOL_IP), number(libc::IP_TRANSPARENT), 0, 0]),
            ),
            ("open", call(libc::SYS_openat, [number(libc::AT_FDCWD), 0, 0, 0, 0])),
            ("execute", call(libc::SYS_execve, [0, 0, 0, 0, 0])),
            ("clone", call(libc::SYS_clone3, [0, 0, 0, 0, 0])),
            ("trace", call(libc::SYS_ptrace, [0, 0, 0, 0, 0])),
            ("kill", call(libc::SYS_kill, [i64::from(std::os::unix::process::parent_id()), 0, 0, 0, 0])),
            ("unshare", call(libc::SYS_unshare, [0, 0, 0, 0, 0])),
        ];
        allowed.push("tried");
        let could = tries.iter().filter(|(_, error)| *error != Some(libc::EPERM));
        allowed.extend(could.map(|(name, _)| *name));
    }
}

/// Returns the number of the listening socket.
fn listener() -> i64 {
    let accepts = |file: &i32| {
        // SAFETY: the call only asks, and fails for a number without a descriptor.
        socket_acceptconn(unsafe { BorrowedFd::borrow_raw(*file) }) == Ok(true)
    };
    (0..64).find(accepts).map_or(-1, i64::from)
}
