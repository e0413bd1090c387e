//! A function for tests: the first byte of a packet's payload says what it does. Some of it is hostile.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bytemuck::{Pod, Zeroable};
use mmb_nf::{ArgError, Context, DropReason, Function, Packet, Properties, SessionInfo, Setup, Verdict};

use super::hostile;

/// Offset of the payload behind the headers of Ethernet, IPv4 and UDP.
const PAYLOAD: usize = 42;

#[derive(Default)]
pub struct Probe {
    opened: AtomicU64,
    released: AtomicU64,
    /// It says that it changes no packet.
    is_read_only: bool,
    /// The process has found what it must not see.
    found: AtomicBool,
    setting: Mutex<String>,
    /// What the process could do that it must not.
    allowed: Mutex<Vec<&'static str>>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Pad {
    packets: u64,
}

impl Function for Probe {
    const TYPE: &'static str = "probe";
    const USAGE: &'static str = "[WORD]";
    const HELP: &'static str = "does what packets say";
    type Pad = Pad;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        match setup.args {
            // The engine makes the function as well, and goes on.
            ["exit"] if std::env::args().nth(1).as_deref() == Some(mmb_fabric::FUNCTION) => {
                std::process::exit(7)
            }
            ["reads"] => Ok(Probe { is_read_only: true, ..Probe::default() }),
            ["panic"] if std::env::args().nth(1).as_deref() == Some(mmb_fabric::FUNCTION) => {
                panic!("no more\nwords")
            }
            ["refuse"] => Err("`refuse` is refused".into()),
            _ => Ok(Probe::default()),
        }
    }

    fn properties(&self) -> Properties {
        Properties { is_read_only: self.is_read_only, ..Properties::default() }
    }

    fn open(&self, _: &mut Pad, _: &SessionInfo, _: &mut Context<'_, ()>) {
        self.opened.fetch_add(1, Relaxed);
    }

    fn release(&self, _: &mut Pad, _: &SessionInfo, _: &mut Context<'_, ()>) {
        self.released.fetch_add(1, Relaxed);
    }

    fn packet(&self, packet: &mut Packet<'_>, pad: &mut Pad, _: &mut Context<'_, ()>) -> Verdict {
        pad.packets += 1;
        match packet.head.get(PAYLOAD) {
            Some(b'D') => return Verdict::Drop(DropReason::Acl),
            Some(b'R') => return Verdict::Refuse(DropReason::Acl),
            // The number of the packet in its session.
            Some(b'N') => {
                let digit = b'0' + (pad.packets % 10) as u8;
                packet.write_l4(9, &[digit]);
            }
            Some(b'L') => {
                let sum: usize = packet.segments().map(<[u8]>::len).sum();
                packet.write_l4(9, &[(sum % 251) as u8]);
            }
            // Headers that later functions could not read.
            Some(b'B') => packet.head[14] = 0x6f,
            Some(b'C') => std::process::abort(),
            Some(b'X') => panic!("a packet too many"),
            Some(b'H') => loop {
                std::hint::spin_loop();
            },
            // A letter that depends on the buffer in which the packet is.
            Some(b'O') => {
                let letter = b'a' + (packet.head.as_ptr() as usize >> 8 & 15) as u8;
                let at = if packet.head.get(PAYLOAD + 1) == Some(&b'.') { 9 } else { 10 };
                packet.write_l4(at, &[letter]);
            }
            Some(b'S') => self.attack(),
            Some(b'F') => hostile::forge(),
            Some(b'P') => hostile::replay(),
            Some(b'K') => hostile::swallow(),
            Some(b'W') => hostile::flood(),
            Some(b'V') => hostile::change(),
            Some(b'M') => hostile::shout(),
            Some(b'Q') => {
                let found = hostile::finds(u64::from_ne_bytes([b's'; 8]));
                self.found.store(found, Relaxed);
            }
            _ => {}
        }
        Verdict::Pass
    }

    fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        if args == ["wrong"] {
            return Err("`wrong` is wrong".into());
        }
        if args == ["escape"] {
            return Err("no\n\u{1b}]0;title\u{7}more".into());
        }
        *self.setting.lock().unwrap() = args.join(" ");
        Ok(())
    }

    fn report(&self) -> Vec<(String, String)> {
        vec![
            ("opened".into(), self.opened.load(Relaxed).to_string()),
            ("released".into(), self.released.load(Relaxed).to_string()),
            ("setting".into(), self.setting.lock().unwrap().clone()),
            ("allowed".into(), self.allowed.lock().unwrap().join(" ")),
            ("found".into(), if self.found.load(Relaxed) { "yes" } else { "no" }.into()),
            ("pid".into(), std::process::id().to_string()),
        ]
    }
}

impl Probe {
    /// Tries what a function in a process must not do.
    fn attack(&self) {
        let mut allowed = self.allowed.lock().unwrap();
        // SAFETY: calls with integers, which look at no memory of this process.
        let call = |number: i64, argument: u64| unsafe { libc::syscall(number, argument, 1, 0, 0, 0) } >= 0;
        let parent = u64::from(std::os::unix::process::parent_id());
        let tries: [(&'static str, bool); 19] = [
            ("ptrace", call(libc::SYS_ptrace, libc::PTRACE_SEIZE.into())),
            ("read-process", call(libc::SYS_process_vm_readv, parent)),
            ("write-process", call(libc::SYS_process_vm_writev, parent)),
            ("pidfd", call(libc::SYS_pidfd_open, parent)),
            ("protect-memory", call(libc::SYS_mprotect, self as *const Probe as u64 & !0xfff)),
            ("bpf", call(libc::SYS_bpf, 0)),
            ("io-uring", call(libc::SYS_io_uring_setup, 8)),
            ("name-space", call(libc::SYS_unshare, libc::CLONE_NEWUSER as u64)),
            ("read-file", std::fs::File::open("/proc/self/status").is_ok()),
            ("write-file", std::fs::write("/tmp/mmb-probe", "x").is_ok()),
            ("list-directory", std::fs::read_dir("/").is_ok()),
            ("udp-socket", std::net::UdpSocket::bind("127.0.0.1:0").is_ok()),
            ("tcp-socket", std::net::TcpListener::bind("127.0.0.1:0").is_ok()),
            ("unix-socket", std::os::unix::net::UnixDatagram::unbound().is_ok()),
            ("thread", std::thread::Builder::new().spawn(|| ()).is_ok()),
            ("program", std::process::Command::new("/bin/true").spawn().is_ok()),
            ("signal", rustix::process::test_kill_process(rustix::process::Pid::INIT).is_ok()),
            // More than a function may have.
            ("memory", Vec::<u8>::new().try_reserve_exact(4 << 30).is_ok()),
            ("memory-file", rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).is_ok()),
        ];
        *allowed = tries.into_iter().filter(|(_, is_allowed)| *is_allowed).map(|(name, _)| name).collect();
        allowed.insert(0, "tried");
    }
}
