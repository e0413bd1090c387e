//! The system calls that the daemon may make (seccomp(2)).
//!
//! Theory of operation. All system calls fail with EPERM except those in [`CALLS`] and those whose first
//! argument is in one of the lists below. The calls are those of the C library, of the runtime, and of DPDK's
//! drivers. None of them executes a program, traces a process, loads a module, mounts, makes a namespace, or
//! changes an identity. `clone3` fails with ENOSYS: its flags cannot be checked, and the C library then uses
//! `clone`.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter_all_threads,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// System calls with any arguments.
#[rustfmt::skip]
const CALLS: &[i64] = &[
    // Files and descriptors.
    libc::SYS_read, libc::SYS_write, libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_readv, libc::SYS_writev,
    libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_close, libc::SYS_close_range, libc::SYS_lseek,
    libc::SYS_dup, libc::SYS_dup3, libc::SYS_openat, libc::SYS_openat2, libc::SYS_fstat, libc::SYS_newfstatat,
    libc::SYS_statx, libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_faccessat, libc::SYS_faccessat2,
    libc::SYS_readlinkat, libc::SYS_getdents64, libc::SYS_getcwd, libc::SYS_unlinkat, libc::SYS_mkdirat,
    libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_ftruncate, libc::SYS_fallocate, libc::SYS_fsync,
    libc::SYS_fdatasync, libc::SYS_flock, libc::SYS_fcntl, libc::SYS_fadvise64, libc::SYS_fchmod,
    libc::SYS_fchmodat, libc::SYS_umask, libc::SYS_memfd_create,
    // Memory.
    libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_brk,
    libc::SYS_mlock, libc::SYS_mlock2, libc::SYS_munlock, libc::SYS_msync, libc::SYS_mincore,
    libc::SYS_membarrier, libc::SYS_get_mempolicy, libc::SYS_set_mempolicy, libc::SYS_mbind,
    libc::SYS_move_pages,
    // Threads, signals and time.
    libc::SYS_clone3, libc::SYS_set_robust_list, libc::SYS_get_robust_list, libc::SYS_rseq, libc::SYS_futex,
    libc::SYS_sched_yield, libc::SYS_sched_getaffinity, libc::SYS_sched_setaffinity,
    libc::SYS_sched_getparam, libc::SYS_sched_getscheduler, libc::SYS_sched_setscheduler,
    libc::SYS_sched_get_priority_min, libc::SYS_sched_get_priority_max, libc::SYS_setpriority,
    libc::SYS_set_tid_address, libc::SYS_gettid, libc::SYS_getpid, libc::SYS_getppid, libc::SYS_getcpu, libc::SYS_exit,
    libc::SYS_exit_group, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait, libc::SYS_rt_sigpending, libc::SYS_sigaltstack, libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep,
    libc::SYS_gettimeofday, libc::SYS_timerfd_create, libc::SYS_timerfd_settime, libc::SYS_timerfd_gettime,
    // Events.
    libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2,
    libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_eventfd2, libc::SYS_pipe2, libc::SYS_signalfd4,
    // Sockets; their families are in a list below. Devices of the kernel; see TIOCSTI below.
    libc::SYS_socketpair, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4,
    libc::SYS_connect, libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_getsockopt,
    libc::SYS_setsockopt, libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_sendmsg, libc::SYS_recvmsg,
    libc::SYS_sendmmsg, libc::SYS_recvmmsg, libc::SYS_shutdown,
    // Questions about the process and the system.
    libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getgroups,
    libc::SYS_getresuid, libc::SYS_getresgid, libc::SYS_capget, libc::SYS_getrusage, libc::SYS_getrlimit,
    libc::SYS_prlimit64, libc::SYS_getrandom, libc::SYS_uname, libc::SYS_sysinfo, libc::SYS_times,
];

/// Older calls, which some processors have and the C library still uses.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OLD_CALLS: &[i64] = &[
    libc::SYS_open, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink, libc::SYS_unlink,
    libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_rename, libc::SYS_dup2, libc::SYS_pipe, libc::SYS_poll,
    libc::SYS_select, libc::SYS_epoll_wait, libc::SYS_epoll_create, libc::SYS_eventfd, libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[i64] = &[];

/// Calls for network cards without an IOMMU: ports of the processor.
#[cfg(target_arch = "x86_64")]
const PHYSICAL_CALLS: &[i64] = &[libc::SYS_iopl, libc::SYS_ioperm];
#[cfg(not(target_arch = "x86_64"))]
const PHYSICAL_CALLS: &[i64] = &[];

/// Families of sockets: HTTP and logs, health checks and export, routes, packets, AF_XDP.
const FAMILIES: [i32; 6] =
    [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_XDP];

/// Operations of `prctl`: names of threads and of memory, timer slack, and questions.
const PRCTL: [i32; 6] = [
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_TIMERSLACK,
    libc::PR_SET_VMA,
    libc::PR_GET_DUMPABLE,
    libc::PR_CAPBSET_READ,
];

/// Commands of bpf(2): maps, programs, links of programs to interfaces, and questions about own objects. No
/// command attaches a program to a trace point or finds objects of other processes.
const BPF: [u64; 18] = [
    0,  // BPF_MAP_CREATE
    1,  // BPF_MAP_LOOKUP_ELEM
    2,  // BPF_MAP_UPDATE_ELEM
    3,  // BPF_MAP_DELETE_ELEM
    4,  // BPF_MAP_GET_NEXT_KEY
    5,  // BPF_PROG_LOAD
    10, // BPF_PROG_TEST_RUN
    15, // BPF_OBJ_GET_INFO_BY_FD
    18, // BPF_BTF_LOAD
    21, // BPF_MAP_LOOKUP_AND_DELETE_ELEM
    22, // BPF_MAP_FREEZE
    24, // BPF_MAP_LOOKUP_BATCH
    25, // BPF_MAP_LOOKUP_AND_DELETE_BATCH
    26, // BPF_MAP_UPDATE_BATCH
    27, // BPF_MAP_DELETE_BATCH
    28, // BPF_LINK_CREATE
    29, // BPF_LINK_UPDATE
    35, // BPF_PROG_BIND_MAP
];

/// Limits the system calls of the whole process, for good. `physical`: network cards need ports of the
/// processor.
///
/// # Errors
/// The kernel refuses the filter.
pub fn limit_process(physical: bool) -> Result<(), seccompiler::Error> {
    for program in filters(physical)? {
        apply_filter_all_threads(&program)?;
    }
    Ok(())
}

/// The two filters. The kernel applies the stricter answer of both.
fn filters(physical: bool) -> Result<[BpfProgram; 2], seccompiler::Error> {
    let new_clone = Rules::from([(libc::SYS_clone3, Vec::new())]);
    let (denied, unknown) =
        (SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Errno(libc::ENOSYS as u32));
    Ok([
        compile(new_clone, SeccompAction::Allow, unknown)?,
        compile(permitted(physical)?, denied, SeccompAction::Allow)?,
    ])
}

fn compile(
    rules: Rules,
    other: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, seccompiler::Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(seccompiler::Error::Backend)?;
    let filter = SeccompFilter::new(rules, other, matched, arch).map_err(seccompiler::Error::Backend)?;
    filter.try_into().map_err(seccompiler::Error::Backend)
}

fn permitted(physical: bool) -> Result<Rules, seccompiler::Error> {
    let mut rules: Rules = CALLS.iter().chain(OLD_CALLS).map(|call| (*call, Vec::new())).collect();
    let equal = |argument, value| rule(argument, SeccompCmpOp::Eq, value);
    let any_of = |values: &[u64]| values.iter().map(|value| equal(0, *value)).collect::<Result<Vec<_>, _>>();
    let words =
        |values: &[i32]| values.iter().map(|value| u64::from(value.unsigned_abs())).collect::<Vec<_>>();
    rules.insert(libc::SYS_socket, any_of(&words(&FAMILIES))?);
    rules.insert(libc::SYS_prctl, any_of(&words(&PRCTL))?);
    rules.insert(libc::SYS_bpf, any_of(&BPF)?);
    // Signals to this process only.
    let own = [u64::from(std::process::id())];
    rules.insert(libc::SYS_kill, any_of(&own)?);
    rules.insert(libc::SYS_tgkill, any_of(&own)?);
    // Threads, but no namespaces.
    let namespaces = libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET;
    let mask = u64::from(namespaces.cast_unsigned());
    rules.insert(libc::SYS_clone, vec![rule(0, SeccompCmpOp::MaskedEq(mask), 0)?]);
    // Nothing is typed into a terminal on behalf of its user.
    rules.insert(libc::SYS_ioctl, vec![rule(1, SeccompCmpOp::Ne, libc::TIOCSTI)?]);
    if physical {
        rules.extend(PHYSICAL_CALLS.iter().map(|call| (*call, Vec::new())));
    }
    Ok(rules)
}

/// The rule that an argument of 32 bits compares with a value.
fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::Error> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
        .and_then(|condition| SeccompRule::new(vec![condition]))
        .map_err(seccompiler::Error::Backend)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::process::Command;

    use super::*;

    /// Runs `f` on a thread that may make the system calls of the daemon only.
    fn limited<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(|| {
            for program in filters(false).unwrap() {
                seccompiler::apply_filter(&program).unwrap();
            }
            f()
        });
        thread.join().unwrap()
    }

    #[test]
    fn no_program_is_executed() {
        let error = limited(|| Command::new("/bin/true").status().unwrap_err());
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    }

    #[test]
    fn only_sockets_of_the_families_are_made() {
        use rustix::net::{AddressFamily, SocketType, socket};
        let made = |family| move || socket(family, SocketType::DGRAM, None).map(drop);
        assert_eq!(limited(made(AddressFamily::INET)), Ok(()));
        assert_eq!(limited(made(AddressFamily::BLUETOOTH)), Err(rustix::io::Errno::PERM));
    }

    #[test]
    fn the_daemon_can_do_its_work() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let text = limited(move || {
            std::fs::write(&path, "text").unwrap();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            std::thread::spawn(move || std::fs::read_to_string(path).unwrap()).join().unwrap()
        });
        assert_eq!(text, "text");
    }
}
