//! Runs the program in the kernel (as root) and compares its verdicts with those of a naive parser.
#![allow(clippy::unwrap_used)]

use std::io;
use std::mem::offset_of;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::Command;
use std::sync::MutexGuard;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::error::port_error;
use super::super::maps::call;
use super::*;
use crate::port::NetDev;

const MAC: [u8; 6] = [2, 0x11, 0x22, 0x33, 0x44, 0x55];
const LOOPBACK: u32 = 1;

/// Serializes the tests: they share the process's fast path.
static ALONE: Mutex<()> = Mutex::new(());

/// A network namespace for this thread with a veth pair (`mmb0`, `peer0`), while no other test runs; None,
/// with a message, without root.
pub(crate) fn in_namespace() -> Option<MutexGuard<'static, ()>> {
    // SAFETY: plain system calls.
    if unsafe { libc::geteuid() != 0 || libc::unshare(libc::CLONE_NEWNET) != 0 } {
        println!("skipped: needs root and permission to make network namespaces");
        return None;
    }
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ip = Command::new("ip");
    ip.args(["link", "add", "mmb0", "type", "veth", "peer", "name", "peer0"]);
    assert!(ip.status().unwrap().success());
    Some(alone)
}

/// An unbound_socket AF_XDP socket.
pub(crate) fn unbound_socket() -> OwnedFd {
    // SAFETY: a system call without pointers; the descriptor, if any, is new and owned.
    unsafe {
        let socket = libc::socket(libc::AF_XDP, libc::SOCK_RAW, 0);
        assert!(socket >= 0, "{}", io::Error::last_os_error());
        OwnedFd::from_raw_fd(socket)
    }
}

/// A program with a socket on one end of a veth pair, whose driver has XDP, or on the loopback interface,
/// whose driver has none. None without root.
fn attached(in_driver: bool) -> Option<(XdpProgram, OwnedFd, MutexGuard<'static, ()>)> {
    let alone = in_namespace()?;
    let socket = unbound_socket();
    let index = if in_driver { NetDev::lookup("mmb0").unwrap().unwrap().index } else { LOOPBACK };
    let program = XdpProgram::attach(index, socket.as_raw_fd()).unwrap();
    program.engage();
    assert_eq!((program.is_generic(), program.fast().unwrap().is_ok()), (!in_driver, in_driver));
    Some((program, socket, alone))
}

/// Runs the program on a frame `times` times. Returns the verdict, the resulting frame, and nanoseconds per
/// run.
pub(crate) fn run_on(program: &XdpProgram, frame: &[u8], times: u32) -> (u32, Vec<u8>, u32) {
    let mut out = vec![0; frame.len()];
    let mut options = sys::bpf_test_run_opts {
        sz: offset_of!(sys::bpf_test_run_opts, flags),
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        repeat: times.cast_signed(),
        ..Default::default()
    };
    let fd = program.loaded().program().unwrap();
    // SAFETY: live options, which carry their size and the frames' sizes.
    call(|| unsafe { sys::bpf_prog_test_run_opts(fd, &raw mut options) }).unwrap();
    assert_eq!(options.data_size_out as usize, frame.len());
    (options.retval, out, options.duration)
}

/// Whether an unchanged frame stays with the kernel, and nanoseconds per run.
fn run(program: &XdpProgram, frame: &[u8], times: u32) -> (bool, u32) {
    let (verdict, out, duration) = run_on(program, frame, times);
    assert_eq!(out, frame);
    match verdict {
        sys::XDP_PASS => (true, duration),
        sys::XDP_REDIRECT => (false, duration),
        verdict => panic!("verdict {verdict}"),
    }
}

/// Whether a frame stays with the kernel, by the documentation of [`Steering`].
fn belongs_to_kernel(steering: Option<&Steering>, frame: &[u8]) -> bool {
    let Some(Steering { mac, local }) = steering else { return false };
    if &frame[..6] != mac {
        return true;
    }
    match (&frame[12..14], &frame[14..]) {
        ([0x08, 0x00], ip) if ip.len() >= 20 => {
            let destination = Ipv4Addr::from(<[u8; 4]>::try_from(&ip[16..20]).unwrap());
            local.contains(&destination.into())
        }
        ([0x86, 0xdd], ip) if ip.len() >= 40 => {
            let destination = Ipv6Addr::from(<[u8; 16]>::try_from(&ip[24..40]).unwrap());
            destination.is_unicast_link_local() || local.contains(&destination.into())
        }
        ([0x08, 0x00] | [0x86, 0xdd], _) => false,
        _ => true,
    }
}

fn v4() -> impl Strategy<Value = Ipv4Addr> {
    prop_oneof![(0u8..4).prop_map(|n| Ipv4Addr::new(10, 0, 0, n)), any::<u32>().prop_map(Ipv4Addr::from)]
}

fn v6() -> impl Strategy<Value = Ipv6Addr> {
    prop_oneof![
        (0u16..4).prop_map(|n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n)),
        (0xfe70u16..0xfed0).prop_map(|n| Ipv6Addr::new(n, 0, 0, 0, 0, 0, 0, 1)),
        any::<u128>().prop_map(Ipv6Addr::from),
    ]
}

fn mac() -> impl Strategy<Value = [u8; 6]> {
    let other = (0usize..6, 0u8..8).prop_map(|(at, bit)| {
        let mut mac = MAC;
        mac[at] ^= 1 << bit;
        mac
    });
    prop_oneof![4 => Just(MAC), 2 => other, 1 => Just([0xff; 6])]
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let network = prop_oneof![
        4 => v4().prop_map(|to| (0x0800, [&[0x45; 16][..], &to.octets(), &[7; 40]].concat())),
        4 => v6().prop_map(|to| (0x86dd, [&[0x60; 24][..], &to.octets(), &[7; 20]].concat())),
        1 => any::<u16>().prop_map(|word| (word, vec![1; 50])),
        1 => Just((0x8100, vec![0, 5, 8, 0, 0x45, 0, 0, 46])),
    ];
    (mac(), network, 0usize..80).prop_map(|(mac, (word, network), len)| {
        let frame: Vec<u8> = [&mac[..], &[2; 6], &u16::to_be_bytes(word), &network].concat();
        // The kernel runs programs on frames with an Ethernet header only.
        frame[..len.clamp(14, frame.len())].to_vec()
    })
}

fn steering() -> impl Strategy<Value = Option<Steering>> {
    let local =
        (prop::collection::vec(v4(), 0..5), prop::collection::vec(v6(), 0..5)).prop_map(|(v4, v6)| {
            v4.into_iter().map(IpAddr::from).chain(v6.into_iter().map(IpAddr::from)).collect()
        });
    prop::option::weighted(0.9, local.prop_map(|local| Steering { mac: MAC, local }))
}

fn verdicts(in_driver: bool) {
    let Some((program, _socket, _alone)) = attached(in_driver) else { return };
    // Without entries, the fast path forwards nothing.
    program
        .fast()
        .unwrap()
        .iter()
        .for_each(|member| member.path.set_generation(1, crate::FastGranularity::Flow));
    let mut runner = TestRunner::new(Config { cases: 500, failure_persistence: None, ..Config::default() });
    let steps = prop::collection::vec((steering(), prop::collection::vec(frame(), 1..20)), 1..4);
    runner
        .run(&steps, |steps| {
            for (steering, frames) in steps {
                program.steer(steering.as_ref()).unwrap();
                for frame in frames {
                    let kernels = run(&program, &frame, 1).0;
                    prop_assert_eq!(
                        kernels,
                        belongs_to_kernel(steering.as_ref(), &frame),
                        "{:?} {:?}",
                        steering,
                        frame
                    );
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn verdicts_follow_the_steering() {
    verdicts(true);
}

#[test]
fn verdicts_follow_the_steering_in_generic_mode() {
    verdicts(false);
}

/// A packet to an address.
fn to(address: IpAddr) -> Vec<u8> {
    let (word, network) = match address {
        IpAddr::V4(to) => (0x0800u16, [&[0x45; 16][..], &to.octets(), &[7; 26]].concat()),
        IpAddr::V6(to) => (0x86dd, [&[0x60; 24][..], &to.octets(), &[7; 6]].concat()),
    };
    [&MAC[..], &[2; 6], &word.to_be_bytes(), &network].concat()
}

#[test]
fn a_failed_steering_changes_nothing() {
    let Some((program, _socket, _alone)) = attached(true) else { return };
    let address = |n: u32| IpAddr::from(Ipv4Addr::from(0x0a00_0000 + n));
    let few = Steering { mac: MAC, local: vec![address(0), address(1)] };
    program.steer(Some(&few)).unwrap();
    let most = sys::STEER_LOCAL_MAX;
    let many = |n| Steering { mac: [0xaa; 6], local: (1..=n).map(address).collect() };
    assert_eq!(
        program.steer(Some(&many(most + 1))),
        Err(XdpError { step: "steer its frames", errno: libc::E2BIG })
    );
    assert_eq!(program.loaded().local.to_vec(), few.local);
    for (n, kernels) in [(0, true), (1, true), (2, false), (most, false)] {
        assert_eq!(run(&program, &to(address(n)), 1).0, kernels, "{n}");
    }
    let error =
        port_error("p0", "eth0", XdpError { step: "steer its frames", errno: libc::E2BIG }, None).to_string();
    assert_eq!(error, "port p0: cannot steer its frames: more than 16384 addresses of one family are local");
    program.steer(None).unwrap();
    program.steer(Some(&Steering { mac: MAC, ..many(most) })).unwrap();
    assert!(run(&program, &to(address(most)), 1).0 && !run(&program, &to(address(0)), 1).0);
    program.steer(None).unwrap();
    assert!(program.loaded().local.to_vec().is_empty());
}

#[test]
fn without_a_socket_the_kernel_gets_every_frame() {
    let Some((program, socket, _alone)) = attached(true) else { return };
    let frame = to(Ipv4Addr::new(192, 0, 2, 1).into());
    assert!(!run(&program, &frame, 1).0);
    drop(socket);
    assert!(run(&program, &frame, 1).0);
}

/// The kernel verifies a program for long, so a takeover does it before the ports are closed.
#[test]
fn a_prepared_program_is_attached() {
    let Some(_namespace) = in_namespace() else { return };
    let index = NetDev::lookup("mmb0").unwrap().unwrap().index;
    prepare(index);
    let prepared = PREPARED.lock().unwrap().get(&index).map(|(_, loaded)| loaded.program().unwrap());
    let program = XdpProgram::attach(index, unbound_socket().as_raw_fd()).unwrap();
    program.engage();
    assert_eq!((prepared, program.is_generic()), (program.loaded().program().ok(), false));
    assert!(PREPARED.lock().unwrap().is_empty());
}

/// A port has the program and the maps of the fast path when it is engaged first. Steering and socket stay.
#[test]
fn a_port_gets_the_fast_path_when_it_is_engaged() {
    let Some(_namespace) = in_namespace() else { return };
    let index = NetDev::lookup("mmb0").unwrap().unwrap().index;
    let socket = unbound_socket();
    let program = XdpProgram::attach(index, socket.as_raw_fd()).unwrap();
    let local = IpAddr::from(Ipv4Addr::new(10, 0, 0, 1));
    program.steer(Some(&Steering { mac: MAC, local: vec![local] })).unwrap();
    let check = || {
        assert!(run(&program, &to(local), 1).0, "to the kernel");
        assert!(!run(&program, &to(Ipv4Addr::new(192, 0, 2, 1).into()), 1).0, "to the socket");
    };
    check();
    let small = program.loaded().program().unwrap();
    assert!(program.fast().is_none() && program.loaded().object.map(c"fast_slots").is_err());
    program.engage();
    assert_ne!(program.loaded().program().unwrap(), small);
    let member = program.fast().unwrap().unwrap().port;
    check();
    // Later changes reach the new program, which stays.
    program.steer(None).unwrap();
    assert!(!run(&program, &to(local), 1).0);
    program.engage();
    assert_eq!(program.fast().unwrap().unwrap().port, member);
    drop(program);
    assert!(XdpProgram::attach(index, socket.as_raw_fd()).is_ok(), "the link has ended");
}

#[test]
fn an_interface_has_one_program() {
    let Some((program, socket, _alone)) = attached(false) else { return };
    let error = XdpProgram::attach(LOOPBACK, socket.as_raw_fd()).err().unwrap();
    assert_eq!(
        port_error("p0", "lo", error, None).to_string(),
        "port p0: cannot attach its XDP program: another program uses XDP on lo (see: ip link show lo; or use \
         af-packet)"
    );
    drop(program);
    assert!(XdpProgram::attach(LOOPBACK, socket.as_raw_fd()).is_ok());
    let refusal = XdpProgram::attach(LOOPBACK, -1).err();
    assert_eq!(refusal, Some(XdpError { step: "use its AF_XDP socket", errno: libc::EBADF }));
    assert!(XdpProgram::attach(9999, socket.as_raw_fd()).is_err());
}

/// Prints the program's cost. Run it with `--ignored --nocapture` on a release build.
#[test]
#[ignore = "a measurement"]
fn cost() {
    let Some((program, _socket, _alone)) = attached(true) else { return };
    let local: Vec<IpAddr> = (0..50u32)
        .flat_map(|n| {
            [Ipv4Addr::from(0x0a00_0000 + n).into(), Ipv6Addr::from(0xfd_u128 << 120 | u128::from(n)).into()]
        })
        .collect();
    let far = [Ipv4Addr::new(192, 0, 2, 1).into(), "2001:db8::1".parse::<IpAddr>().unwrap()];
    let least = |frame: &[u8]| (0..10).map(|_| run(&program, frame, 1_000_000).1).min().unwrap();
    println!("wire: {} ns", least(&to(far[0])));
    program.steer(Some(&Steering { mac: MAC, local: local.clone() })).unwrap();
    for address in far.into_iter().chain(local.into_iter().take(2)) {
        println!("steering, to {address}: {} ns", least(&to(address)));
    }
}
