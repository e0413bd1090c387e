//! The system calls of a process that has connections of a broker.
//!
//! # Theory of operation
//! No call makes a socket, binds, listens or connects. Calls that send can connect a TCP socket, too, if they
//! are told so (MSG_FASTOPEN), which is not allowed. No option can be set that changes where packets go or
//! where they come from, or for how long close(2) waits (SO_LINGER): the engine closes sockets that it gets
//! from the process. A connection can be shut for sending only: the listening socket, which the next process
//! gets as well, would listen no more if it was shut for receiving.

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

/// Calls on sockets, event queues and files that are open.
#[rustfmt::skip]
const CALLS: &[i64] = &[
    libc::SYS_accept4, libc::SYS_recvfrom, libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_getsockopt,
    libc::SYS_epoll_ctl, libc::SYS_epoll_pwait,
];

/// Older calls, which some processors have and the C library still uses.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[i64] = &[libc::SYS_epoll_wait];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[i64] = &[];

/// Calls that send, and their arguments with flags.
const SENDING: [(i64, u8); 2] = [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2)];
/// The option that can be set, with its level.
const OPTION: [i32; 2] = [libc::IPPROTO_TCP, libc::TCP_NODELAY];

/// Returns the calls, each with its rules.
pub fn rules() -> Result<Vec<(i64, Vec<SeccompRule>)>, BackendError> {
    let condition = |argument, op, value: i32| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value.unsigned_abs().into())
    };
    let mut rules: Vec<_> = CALLS.iter().chain(OLD_CALLS).map(|call| (*call, Vec::new())).collect();
    for (call, flags) in SENDING {
        let connects = SeccompCmpOp::MaskedEq(libc::MSG_FASTOPEN.unsigned_abs().into());
        rules.push((call, vec![SeccompRule::new(vec![condition(flags, connects, 0)?])?]));
    }
    let is = |argument, value| condition(argument, SeccompCmpOp::Eq, value);
    let [level, name] = OPTION;
    rules.push((libc::SYS_shutdown, vec![SeccompRule::new(vec![is(1, libc::SHUT_WR)?])?]));
    rules.push((libc::SYS_setsockopt, vec![SeccompRule::new(vec![is(1, level)?, is(2, name)?])?]));
    Ok(rules)
}
