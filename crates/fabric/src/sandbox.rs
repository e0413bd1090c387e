//! What the process of a function gives up before it makes the function.
//!
//! # Theory of operation
//! The process has its memory and its socket. Standard output and error output are /dev/null before the
//! function is made: it could write to the engine's log otherwise. The supervisor has moved to name spaces of
//! its own, which its processes share: a user without rights, a network without interfaces. A network for
//! each process would cost most of the time of a start, and seconds while the kernel removes the networks of
//! others; no process can make a socket in it anyway. The process gives up capabilities and new privileges,
//! sets limits, and limits its system calls to those that a thread needs that computes, waits and writes to
//! open descriptors. No call opens a file, makes a socket, a thread or a process, or looks into another
//! process. So it needs no rules about files. A call that is not allowed fails with EPERM.
//!
//! The process of a broker gets sockets from the daemon. It accepts, reads, writes and ends connections
//! ([`sockets`]), and makes none.

mod processors;
mod sockets;

use std::collections::BTreeMap;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::dup2_stderr;
use rustix::process::{
    Resource, Rlimit, Signal, getpriority_process, getrlimit, set_parent_process_death_signal,
    setpriority_process, setrlimit,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

pub use processors::{Processors, pin};

/// Memory that a function may use besides what it shares: its code and tables.
const MEMORY: u64 = 4 << 30;

/// The system calls of a function.
#[rustfmt::skip]
const CALLS: &[i64] = &[
    // Descriptors that are open.
    libc::SYS_read, libc::SYS_pread64, libc::SYS_write, libc::SYS_writev, libc::SYS_close, libc::SYS_fstat,
    libc::SYS_dup, libc::SYS_recvmsg, libc::SYS_ppoll,
    // Memory.
    libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_brk,
    // This thread, and time.
    libc::SYS_futex, libc::SYS_sched_yield, libc::SYS_sched_getaffinity, libc::SYS_gettid, libc::SYS_getpid,
    libc::SYS_exit, libc::SYS_exit_group, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn, libc::SYS_sigaltstack, libc::SYS_restart_syscall, libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep, libc::SYS_nanosleep, libc::SYS_getrandom,
];

/// Older calls, which some processors have and the C library still uses.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[i64] = &[libc::SYS_poll, libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[i64] = &[];

/// Ends the process with its parent.
pub fn end_with_parent() {
    // If the parent has ended before, the socket tells it.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

/// Moves the supervisor to name spaces without a network.
pub fn leave_name_spaces() {
    // Where the kernel allows no user name spaces, the other limits remain: no call makes a socket.
    let user = CloneFlags::CLONE_NEWUSER;
    let others = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    let _ = unshare(user | others).or_else(|_| unshare(others));
}

/// Gives up capabilities and new privileges, for good.
///
/// # Errors
/// The kernel refuses to give up new privileges.
pub fn isolate() -> Result<(), String> {
    give_up_capabilities();
    set_no_new_privs(true).map_err(|error| format!("cannot give up new privileges: {error}"))
}

/// What a process needs besides processor time.
#[derive(Clone, Copy, Debug)]
pub enum Rights {
    /// Memory, and the engine's socket.
    Memory {
        /// Bytes that are mapped.
        mapped: u64,
        /// Files that the function reads.
        inputs: u64,
    },
    /// Connections besides, which the engine gives it.
    Connections,
}

/// Closes the engine's log, and limits memory, descriptors and system calls, for good. To be called behind
/// [`isolate`], once the memory is mapped and before the function is made.
///
/// # Errors
/// The log stays open, or the kernel refuses to limit system calls.
pub fn limit(rights: Rights) -> Result<(), String> {
    // The standard output is /dev/null.
    dup2_stderr(std::io::stdout()).map_err(|error| format!("cannot close the engine's log: {error}"))?;
    let files = match rights {
        // New ones come before old ones are closed, and one is being read.
        Rights::Memory { inputs, .. } => 16 + 2 * inputs,
        // As many as the engine may have.
        Rights::Connections => getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
    };
    let mapped = match rights {
        Rights::Memory { mapped, .. } => mapped,
        Rights::Connections => 0,
    };
    let limits = [
        (Resource::As, MEMORY + mapped),
        (Resource::Core, 0),
        (Resource::Nofile, files),
        (Resource::Nproc, 0),
        (Resource::Memlock, 0),
    ];
    for (resource, most) in limits {
        // A limit that is lower already stays.
        let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
    filter(rights)
        .and_then(|program| apply_filter(&program))
        .map_err(|error| format!("cannot limit system calls: {error}"))
}

/// How many steps of nice(2) the threads that replace processes are ahead of the engine. They run for a short
/// time only, while packets wait.
const AHEAD: i32 = 10;

/// Returns the priority of this thread.
pub fn priority() -> i32 {
    getpriority_process(None).unwrap_or(0)
}

/// Allows threads of this process to raise their priority later, without capabilities. `engine`: the priority
/// of the engine.
pub fn allow_raised_priority(engine: i32) {
    // The limit counts from 20 downwards. Who may not change it stays with the priority of the engine.
    let limit = (20 - (engine - AHEAD)).clamp(0, 40).unsigned_abs().into();
    let _ = setrlimit(Resource::Nice, Rlimit { current: Some(limit), maximum: Some(limit) });
}

/// Raises the priority of this thread above that of the engine, where that is allowed.
pub fn raise_priority(engine: i32) {
    let _ = setpriority_process(None, engine - AHEAD);
}

/// Gives this thread the priority of the engine.
pub fn restore_priority(engine: i32) {
    let _ = setpriority_process(None, engine);
}

/// Keeps descriptors that this process was started with from the processes that it starts.
pub fn keep_descriptors() {
    let (first, last, flags): (u32, u32, u32) = (3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: a call with integers, which closes nothing: it marks descriptors as closed by execve(2). A
    // kernel without the call or the flag (before 5.11) changes nothing.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
}

/// Gives up all capabilities of the process.
pub fn give_up_capabilities() {
    for capability in CapabilitySet::all().iter() {
        // Who may not do this has nothing to give up, and the kernel may not know the newest ones.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    let none = CapabilitySet::empty();
    let _ = set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none });
}

fn filter(rights: Rights) -> Result<BpfProgram, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<_>> =
        CALLS.iter().chain(OLD_CALLS).map(|call| (*call, Vec::new())).collect();
    match rights {
        Rights::Memory { .. } => drop(rules.insert(libc::SYS_sendmsg, Vec::new())),
        Rights::Connections => rules.extend(sockets::rules()?),
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(seccompiler::Error::Backend)?;
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, denied, SeccompAction::Allow, arch);
    filter.map_err(seccompiler::Error::Backend)?.try_into().map_err(seccompiler::Error::Backend)
}
