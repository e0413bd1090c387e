//! The shared libraries that drivers need are loaded by the first call of one of their functions.
#![cfg(target_arch = "x86_64")]

use mmb_dpdk_sys::{STEER, bpf_object__close, bpf_object__find_map_by_name, bpf_object__open_mem};

const LIBRARIES: [&str; 5] = ["libxdp", "libbpf", "libpcap", "libnuma", "libbsd"];

fn loaded() -> Vec<&'static str> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    LIBRARIES.into_iter().filter(|name| maps.contains(&format!("/{name}.so"))).collect()
}

#[test]
fn the_first_call_loads_the_libraries_and_keeps_its_arguments() {
    assert!(loaded().is_empty(), "{:?}", loaded());
    // SAFETY: the object is in memory for as long as it is read, the names end with a zero byte, and the
    // object is closed once.
    let found = unsafe {
        let object = bpf_object__open_mem(STEER.as_ptr().cast(), STEER.len(), std::ptr::null());
        assert!(!object.is_null());
        let found =
            [c"xsks", c"none"].map(|name| bpf_object__find_map_by_name(object, name.as_ptr()).is_null());
        bpf_object__close(object);
        found
    };
    assert_eq!(found, [false, true]);
    assert_eq!(loaded(), LIBRARIES);
}
