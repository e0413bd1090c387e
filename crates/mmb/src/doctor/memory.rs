//! Memory: huge pages, free memory, and how much of it may be locked.

use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;

use super::finding::{Finding, System};
use super::rights::held;

/// Memory for packets by default, in KiB: `mmb run --memory`.
const PACKETS: u64 = 256 << 10;
/// Memory that the daemon takes by default: packets, sessions, and itself, in KiB.
const NEEDED: u64 = 768 << 10;

pub(super) fn check(system: &System) -> Vec<Finding> {
    let meminfo = system.read("proc/meminfo").unwrap_or_default();
    vec![huge_pages(&meminfo), free(&meminfo), locked()]
}

/// A figure of /proc/meminfo: KiB, or a number of pages.
fn figure(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

fn huge_pages(meminfo: &str) -> Finding {
    let of = |name| figure(meminfo, name).unwrap_or(0);
    let (size, free) = (of("Hugepagesize").max(1), of("HugePages_Free").saturating_sub(of("HugePages_Rsvd")));
    let needed = PACKETS.div_ceil(size);
    let advice = format!("for network cards by `pci`, run `sysctl vm.nr_hugepages={}`", 2 * needed);
    match (of("HugePages_Total"), free * size) {
        (0, _) => Finding::warning("huge-pages", "there are none: packets use ordinary pages", advice),
        (_, kib) if kib < PACKETS => Finding::warning(
            "huge-pages",
            format!("{} MiB are free: packets use ordinary pages", kib >> 10),
            advice,
        ),
        (_, kib) => Finding::ok("huge-pages", format!("{} MiB are free in pages of {size} KiB", kib >> 10)),
    }
}

fn free(meminfo: &str) -> Finding {
    match figure(meminfo, "MemAvailable") {
        Some(kib) if kib < NEEDED => Finding::warning(
            "memory",
            format!("{} MiB are available", kib >> 10),
            "start the daemon with a smaller `--memory` and fewer `--sessions`",
        ),
        Some(kib) => Finding::ok("memory", format!("{} MiB are available", kib >> 10)),
        None => Finding::warning("memory", "/proc/meminfo cannot be read", "mount /proc"),
    }
}

/// Memory of AF_XDP sockets is locked.
fn locked() -> Finding {
    let most = getrlimit(Resource::Memlock).current;
    if held().contains(CapabilitySet::IPC_LOCK) {
        return Finding::ok("locked-memory", "not limited (CAP_IPC_LOCK)");
    }
    match most {
        None => Finding::ok("locked-memory", "not limited"),
        Some(bytes) if bytes >> 10 >= PACKETS => {
            Finding::ok("locked-memory", format!("up to {} MiB", bytes >> 20))
        }
        Some(bytes) => Finding::failure(
            "locked-memory",
            format!("{} KiB may be locked: `af-xdp` interfaces cannot be opened", bytes >> 10),
            "give CAP_IPC_LOCK, or raise the limit (ulimit -l, LimitMEMLOCK=)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn huge_pages_are_counted_without_reserved_ones() {
        let info = |total, free, reserved| {
            format!(
                "MemAvailable:  900000 kB\nHugePages_Total: {total}\nHugePages_Free:  {free}\n\
                 HugePages_Rsvd: {reserved}\nHugepagesize:    2048 kB\n"
            )
        };
        for (text, status) in [
            (info(0, 0, 0), Status::Warning),
            (info(128, 128, 1), Status::Warning),
            (info(128, 128, 0), Status::Ok),
            (String::new(), Status::Warning),
        ] {
            assert_eq!(huge_pages(&text).status, status, "{text}");
        }
        assert!(huge_pages(&info(0, 0, 0)).advice.unwrap().contains("vm.nr_hugepages=256"));
    }

    #[test]
    fn little_memory_is_a_warning() {
        assert_eq!(free("MemAvailable: 100000 kB\n").status, Status::Warning);
        assert_eq!(free("MemAvailable: 1000000 kB\n").status, Status::Ok);
        assert_eq!(free("").status, Status::Warning);
    }
}
