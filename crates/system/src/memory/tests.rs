use super::*;

fn write(directory: &Path, files: &[(&str, &str)]) {
    fs::create_dir_all(directory).unwrap();
    for (name, text) in files {
        fs::write(directory.join(name), text).unwrap();
    }
}

fn short(text: &str, root: &Path, needed: u64) -> Option<GroupMemory> {
    short_beside(text, root, needed, 0)
}

fn short_beside(text: &str, root: &Path, needed: u64, reserved: u64) -> Option<GroupMemory> {
    groups(text, root).iter().find_map(|group| group.short_of(needed, reserved))
}

#[test]
fn every_group_above_counts_and_pages_of_files_are_free() {
    let root = tempfile::tempdir().unwrap();
    let base = root.path();
    write(&base.join("a/b"), &[("memory.max", "max\n"), ("memory.current", "900\n")]);
    let stat = "anon 500\ninactive_file 100\nactive_file 50\nshmem 200\n";
    write(&base.join("a"), &[("memory.max", "1000\n"), ("memory.current", "900\n"), ("memory.stat", stat)]);
    let text = "0::/a/b\n";
    assert_eq!(short(text, base, 250), None);
    let memory = short(text, base, 251).unwrap();
    assert_eq!((memory.group.clone(), memory.limit, memory.used), (base.join("a"), 1000, 750));
    assert_eq!(memory.left(), 250);
}

#[test]
fn reserved_memory_counts_as_used() {
    let root = tempfile::tempdir().unwrap();
    let stat = "inactive_file 100\n";
    let files = [("memory.max", "1000\n"), ("memory.current", "500\n"), ("memory.stat", stat)];
    write(&root.path().join("a"), &files);
    let short = |needed, reserved| short_beside("0::/a\n", root.path(), needed, reserved);
    assert_eq!((short(600, 0), short(200, 400)), (None, None));
    let memory = short(201, 400).unwrap();
    assert_eq!((memory.used, memory.left()), (800, 200));
    assert_eq!(short(u64::MAX, 400).map(|memory| memory.used), Some(800));
}

#[test]
fn the_first_version_has_a_hierarchy_for_memory() {
    let root = tempfile::tempdir().unwrap();
    let group = root.path().join("memory/box");
    let stat = "inactive_file 1\ntotal_inactive_file 10\ntotal_active_file 20\n";
    write(
        &group,
        &[("memory.limit_in_bytes", "100"), ("memory.usage_in_bytes", "95"), ("memory.stat", stat)],
    );
    write(&root.path().join("cpu/box"), &[("memory.max", "1"), ("memory.current", "1")]);
    let text = "5:cpu:/box\n4:blkio,memory:/box\n0::/box\n";
    assert_eq!(short(text, root.path(), 35), None);
    assert_eq!(short(text, root.path(), 36).unwrap().left(), 35);
}

#[test]
fn without_limits_nothing_is_exhausted() {
    let root = tempfile::tempdir().unwrap();
    for text in ["", "nonsense", "0::", "0::/../..", "3:memory"] {
        assert_eq!(short(text, root.path(), u64::MAX), None, "{text}");
    }
}
