//! DPDK's environment (EAL): one per process, started once.

use std::ffi::{CString, c_char};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use mmb_dpdk_sys as sys;

use crate::error::{Error, last_errno, strerror};
use crate::log::{self, LogLevel};
use crate::memory;

/// EAL's own memory without huge pages (graphs, rings, device structures), in MiB. Untouched pages cost
/// nothing.
const HEAP_MB: u32 = 128;

/// Whether to use huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// If [`EalConfig::memory_mb`] are free in huge pages.
    #[default]
    Auto,
    /// Never.
    Never,
}

/// How to start the environment.
#[derive(Clone, Debug)]
pub struct EalConfig {
    /// Memory that the process needs, in MiB. Huge pages are used if they have that much free. Without them,
    /// this is not a limit: pools use ordinary (transparent huge) pages.
    pub memory_mb: u32,
    /// Whether to use huge pages.
    pub huge: HugePages,
    /// Whether PCI devices may be opened. False for runs without devices and privileges (replay, benchmark).
    pub privileged: bool,
    /// The level of DPDK's log on standard error.
    pub log_level: LogLevel,
}

impl Default for EalConfig {
    fn default() -> Self {
        Self { memory_mb: 256, huge: HugePages::Auto, privileged: true, log_level: LogLevel::Warning }
    }
}

/// Proof that the environment is started. It runs until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Eal {
    huge: bool,
    iova_va: bool,
    pci: bool,
    tsc_hz: u64,
}

static EAL: OnceLock<Eal> = OnceLock::new();
static STARTING: AtomicBool = AtomicBool::new(false);

impl Eal {
    /// Starts the environment. Takes about 0.1 s: EAL measures the time-stamp counter where the processor
    /// does not report its rate. Does not pin the calling thread: EAL's "main core" is a thread that ends
    /// before this returns. So every thread that needs per-thread caches calls [`crate::register_thread`].
    ///
    /// # Errors
    /// [`Error::StartedAlready`] on the second call, even if the first one failed; [`Error::Start`] with
    /// EAL's reason.
    pub fn init(config: &EalConfig) -> Result<Eal, Error> {
        if STARTING.swap(true, Ordering::AcqRel) {
            return Err(Error::StartedAlready);
        }
        log::install(config.log_level);
        let memory_mb = u64::from(config.memory_mb.max(1));
        let huge =
            config.huge == HugePages::Auto && free_huge_mb() >= memory_mb && can_reserve_huge(memory_mb);
        let cpus = allowed_cpus();
        let arguments = arguments(config, huge, &cpus);
        // On a thread of its own, because rte_eal_init pins its caller.
        let outcome = std::thread::spawn(move || start(&arguments)).join();
        match outcome {
            Ok(result) => result?,
            Err(_) => return Err(Error::Start { reason: "the start-up thread panicked".into() }),
        }
        // SAFETY: EAL runs; both functions only read its state.
        let (iova_va, tsc_hz) = unsafe { (sys::mmb_iova_is_va() != 0, sys::rte_get_tsc_hz()) };
        memory::register_fields()?;
        let eal = Eal { huge, iova_va, pci: config.privileged, tsc_hz };
        Ok(*EAL.get_or_init(|| eal))
    }

    /// The environment, if it is started.
    pub fn get() -> Option<Eal> {
        EAL.get().copied()
    }

    /// The environment, or [`Error::NotStarted`].
    pub(crate) fn running() -> Result<Eal, Error> {
        Self::get().ok_or(Error::NotStarted)
    }

    /// Whether memory comes from huge pages.
    pub fn huge_pages(self) -> bool {
        self.huge
    }

    /// Whether devices use the program's virtual addresses, so that any memory is contiguous for them.
    pub(crate) fn iova_va(self) -> bool {
        self.iova_va
    }

    /// Whether PCI devices may be opened.
    pub(crate) fn pci(self) -> bool {
        self.pci
    }

    /// Ticks per second of the time-stamp counter, the unit of [`rdtsc`] and of the graph's statistics.
    pub fn tsc_hz(self) -> u64 {
        self.tsc_hz
    }
}

/// The time-stamp counter.
#[inline]
pub fn rdtsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction exists on every x86-64 processor.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: reads a counter.
    unsafe {
        sys::mmb_rdtsc()
    }
}

/// EAL's command line.
fn arguments(config: &EalConfig, huge: bool, cpus: &str) -> Vec<CString> {
    let mut list = vec![
        "mmb".to_owned(),
        "--no-telemetry".to_owned(),
        format!("--file-prefix=mmb-{}", std::process::id()),
        // One "core" that may run on every processor of the caller.
        format!("--lcores=0@({cpus})"),
        format!("--log-level=*:{}", log::dpdk_level()),
    ];
    if huge {
        // One file for each list of segments, so that a pool's memory lies in one file.
        list.extend(["--in-memory", "--single-file-segments"].map(String::from));
    } else {
        list.extend(["--no-huge", "--no-shconf", "-m"].map(String::from));
        list.push(HEAP_MB.to_string());
    }
    if config.privileged {
        // An allow list without a real device: EAL scans PCI, but opens a device only on request.
        list.extend(["-a", "0000:00:00.0"].map(String::from));
    } else {
        list.push("--no-pci".into());
    }
    // By default, EAL chooses physical addresses on machines without an IOMMU; AF_XDP does not work with
    // them.
    if !(huge && config.privileged && needs_physical_addresses()) {
        list.push("--iova-mode=va".into());
    }
    // None of these strings contains a zero byte.
    list.into_iter().filter_map(|argument| CString::new(argument).ok()).collect()
}

/// Runs rte_eal_init on this thread.
fn start(arguments: &[CString]) -> Result<(), Error> {
    let (status, reason) = log::capture(|| {
        let mut pointers: Vec<*mut c_char> =
            arguments.iter().map(|argument| argument.as_ptr().cast_mut()).collect();
        // SAFETY: `pointers` holds argc zero-terminated strings that outlive the call. EAL permutes the
        // pointers but does not write to the strings.
        unsafe { sys::rte_eal_init(i32::try_from(pointers.len()).unwrap_or(i32::MAX), pointers.as_mut_ptr()) }
    });
    if status < 0 {
        return Err(Error::Start { reason: reason.unwrap_or_else(|| strerror(last_errno())) });
    }
    remove_runtime_directory();
    Ok(())
}

/// Removes the runtime directory that EAL makes and, without shared configuration, leaves empty. It stays if
/// it has contents.
fn remove_runtime_directory() {
    let name = format!("mmb-{}", std::process::id());
    let user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    for base in [Some(PathBuf::from("/var/run")), user, Some(PathBuf::from("/tmp"))].into_iter().flatten() {
        // On failure, the directory is elsewhere or in use.
        let _ = std::fs::remove_dir(base.join("dpdk").join(&name));
    }
}

/// A value of /proc/meminfo: kibibytes, or a number of pages.
pub(crate) fn meminfo(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Memory in free huge pages of the default size, in MiB.
fn free_huge_mb() -> u64 {
    let figure = |name| meminfo(name).unwrap_or(0);
    figure("HugePages_Free").saturating_sub(figure("HugePages_Rsvd")) * figure("Hugepagesize") / 1024
}

/// Whether the process gets this many MiB in huge pages of the default size. Others may have taken those
/// that were free a moment ago, or a limit of the process's control group keeps them from it.
fn can_reserve_huge(mb: u64) -> bool {
    let page = meminfo("Hugepagesize").map_or(2 << 20, |kib| kib << 10).max(4096);
    let Ok(bytes) = usize::try_from((mb << 20).next_multiple_of(page)) else { return false };
    let (protection, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB);
    // SAFETY: maps fresh memory at an address of the kernel's choice. The kernel reserves its pages.
    unsafe {
        let memory = libc::mmap(std::ptr::null_mut(), bytes, protection, kind, -1, 0);
        memory != libc::MAP_FAILED && libc::munmap(memory, bytes) == 0
    }
}

/// Whether a network card is bound to a driver without address translation for user space, so that EAL must
/// use physical addresses.
pub fn needs_physical_addresses() -> bool {
    let no_iommu = std::fs::read_to_string("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode");
    if no_iommu.is_ok_and(|text| text.starts_with('Y')) {
        return true;
    }
    let bound = |driver: &str| {
        let devices =
            std::fs::read_dir(format!("/sys/bus/pci/drivers/{driver}")).into_iter().flatten().flatten();
        devices.into_iter().any(|entry| entry.file_name().to_string_lossy().contains(':'))
    };
    ["igb_uio", "uio_pci_generic"].into_iter().any(bound)
}

/// The processors of this thread's affinity, in EAL's notation: "0,1,5".
fn allowed_cpus() -> String {
    // SAFETY: a cpu_set_t of zeros is an empty set; sched_getaffinity fills it for the calling thread.
    let list: Vec<String> = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return "0".into();
        }
        let bits = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
        (0..bits).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).map(|cpu| cpu.to_string()).collect()
    };
    list.join(",")
}

/// The registration of a thread. While it lives, pools have caches for the thread. It cannot move to another
/// thread.
#[derive(Debug)]
pub struct ThreadGuard {
    not_send: std::marker::PhantomData<*const ()>,
}

/// Registers the calling thread with DPDK, so that pools have a cache for it. Without it, each allocation and
/// release uses the shared ring.
///
/// # Errors
/// [`Error::NotStarted`]; [`Error::Thread`]: the thread is registered already, or too many are.
pub fn register_thread() -> Result<ThreadGuard, Error> {
    Eal::running()?;
    // SAFETY: EAL runs; mmb_lcore_id reads a thread-local variable.
    if unsafe { sys::mmb_lcore_id() } < sys::RTE_MAX_LCORE {
        return Err(Error::Thread { reason: "it is registered already".into() });
    }
    // SAFETY: EAL runs.
    let (status, reason) = log::capture(|| unsafe { sys::rte_thread_register() });
    if status != 0 {
        return Err(Error::Thread { reason: reason.unwrap_or_else(|| strerror(last_errno())) });
    }
    Ok(ThreadGuard { not_send: std::marker::PhantomData })
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        // SAFETY: register_thread registered this thread, since the guard is not Send. Buffers in its caches
        // stay there for the next thread with its number.
        unsafe { sys::rte_thread_unregister() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed() {
        let cpus = allowed_cpus();
        assert!(!cpus.is_empty() && cpus.split(',').all(|cpu| cpu.parse::<usize>().is_ok()), "{cpus}");
    }

    #[test]
    fn meminfo_is_read() {
        assert!(meminfo("MemTotal").is_some_and(|kib| kib > 1024) && meminfo("Mem").is_none());
    }

    #[test]
    fn threads_cannot_register_before_the_start() {
        // Other unit tests of this crate never start EAL; the integration tests do.
        assert_eq!(register_thread().err(), Some(Error::NotStarted));
    }
}
