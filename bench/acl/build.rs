//! Compiles the C side against the installed DPDK, and links what it needs of it.

fn main() {
    println!("cargo:rerun-if-changed=src/acl.c");
    let dpdk = pkg_config::Config::new().cargo_metadata(false).probe("libdpdk");
    let dpdk = dpdk
        .unwrap_or_else(|error| panic!("DPDK is needed; on Debian: apt-get install libdpdk-dev\n{error}"));
    let mut build = cc::Build::new();
    build.file("src/acl.c").includes(&dpdk.include_paths).opt_level(3).warnings(true);
    build.flag("-include").flag("rte_config.h").flag("-march=corei7");
    build.compile("acl");
    for path in &dpdk.link_paths {
        println!("cargo:rustc-link-search=native={}", path.display());
    }
    for library in ["rte_acl", "rte_eal"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}
