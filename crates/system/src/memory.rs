//! Memory that the control group of the process leaves.
//!
//! Theory of operation. When the processes of a control group use more memory than its limit, the kernel
//! kills one of them. No allocation fails before. So a process that wants to go on asks first how much is
//! left, and refuses what does not fit. Each group has a limit, and so has each group above it. Pages of
//! files that the kernel can drop count as free. Memory that a part of the process will take later is
//! reserved, so that the others leave it ([`reserve_memory`]).

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Where the system keeps control groups.
const ROOT: &str = "/sys/fs/cgroup";

/// Memory of a control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMemory {
    /// The group's directory.
    pub group: PathBuf,
    /// The limit in bytes.
    pub limit: u64,
    /// Bytes in use that the kernel cannot take back.
    pub used: u64,
}

impl GroupMemory {
    /// Bytes that are left.
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

/// The memory that is left, as a part of a sentence.
impl fmt::Display for GroupMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (left, limit) = (self.left() >> 20, self.limit >> 20);
        write!(f, "the control group {} leaves {left} of {limit} MiB", self.group.display())
    }
}

/// Bytes that the process does not use yet and counts as used.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// Reserves this many bytes, in place of those that were reserved before.
pub fn reserve_memory(bytes: u64) {
    RESERVED.store(bytes, Relaxed);
}

/// The control group that leaves this process less than `needed` bytes beside those that are reserved, if
/// there is one.
pub fn exhausted_group(needed: u64) -> Option<GroupMemory> {
    short_group(needed, RESERVED.load(Relaxed))
}

/// The control group that leaves this process less than `needed` of the bytes that are reserved, if there is
/// one.
pub fn exhausted_group_of_reserved(needed: u64) -> Option<GroupMemory> {
    short_group(needed, 0)
}

fn short_group(needed: u64, reserved: u64) -> Option<GroupMemory> {
    static GROUPS: LazyLock<Vec<Group>> = LazyLock::new(|| {
        let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        groups(&text, Path::new(ROOT))
    });
    GROUPS.iter().find_map(|group| group.short_of(needed, reserved))
}

/// A control group with a memory controller.
struct Group {
    directory: PathBuf,
    version: Version,
}

/// The two interfaces of control groups have different files.
#[derive(Clone, Copy)]
enum Version {
    One,
    Two,
}

/// The groups of /proc/self/cgroup that limit memory, from the process's own to the root.
fn groups(text: &str, root: &Path) -> Vec<Group> {
    let lines = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let mut found = Vec::new();
    for (controllers, path) in lines {
        let (base, version) = match controllers {
            "" => (root.to_owned(), Version::Two),
            list if list.split(',').any(|name| name == "memory") => (root.join("memory"), Version::One),
            _ => continue,
        };
        let own = base.join(path.trim_start_matches('/'));
        let ancestors = own.ancestors().take_while(|directory| directory.starts_with(&base));
        found.extend(ancestors.map(|directory| Group { directory: directory.to_owned(), version }));
    }
    found
}

impl Group {
    /// The group's memory, if it leaves less than `needed` bytes beside those that are `reserved`.
    fn short_of(&self, needed: u64, reserved: u64) -> Option<GroupMemory> {
        let (limit, usage) = match self.version {
            Version::One => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            Version::Two => ("memory.max", "memory.current"),
        };
        // Without a limit, the file has the word `max`, or a number beyond all memory.
        let (limit, usage) = (self.figure(limit)?, self.figure(usage)?);
        if limit.saturating_sub(usage) >= needed.saturating_add(reserved) {
            return None;
        }
        // The kernel computes these on request, which takes longer.
        let used = usage.saturating_sub(self.file_pages()) + reserved;
        let memory = GroupMemory { group: self.directory.clone(), limit, used };
        (memory.left() < needed).then_some(memory)
    }

    fn figure(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.directory.join(file)).ok()?.trim().parse().ok()
    }

    /// Bytes of pages of files, those of groups below included.
    fn file_pages(&self) -> u64 {
        let text = fs::read_to_string(self.directory.join("memory.stat")).unwrap_or_default();
        let prefix = match self.version {
            Version::One => "total_",
            Version::Two => "",
        };
        let bytes = |line: &str| {
            let (name, bytes) = line.split_once(' ')?;
            let is_file = matches!(name.strip_prefix(prefix)?, "inactive_file" | "active_file");
            is_file.then(|| bytes.parse::<u64>().ok()).flatten()
        };
        text.lines().filter_map(bytes).sum()
    }
}

#[cfg(test)]
mod tests;
