//! Compiles the C side against the installed DPDK, and links what it needs of it.

/// Taken whole and static: drivers, mempool handlers and nodes register themselves in constructors that
/// nothing refers to.
const LIBRARIES: &str = "
    rte_kvargs rte_telemetry rte_eal rte_ring rte_rcu rte_mempool rte_mbuf rte_net rte_meter rte_ethdev rte_pci rte_graph
    rte_hash rte_lpm rte_rib rte_fib rte_ip_frag rte_node rte_cryptodev rte_security
    rte_bus_vdev rte_mempool_ring rte_net_null";

fn main() {
    println!("cargo:rerun-if-changed=src");
    let dpdk = pkg_config::Config::new().cargo_metadata(false).probe("libdpdk");
    let dpdk = dpdk
        .unwrap_or_else(|error| panic!("DPDK is needed; on Debian: apt-get install libdpdk-dev\n{error}"));
    let mut build = cc::Build::new();
    build.files(["src/nodes.c", "src/tables.c"]).includes(&dpdk.include_paths).opt_level(3).warnings(true);
    // The lookups of rte_lpm are inline: they may use what this machine has.
    build.flag("-include").flag("rte_config.h").flag("-DALLOW_EXPERIMENTAL_API").flag("-march=native");
    build.compile("route");
    for path in &dpdk.link_paths {
        println!("cargo:rustc-link-search=native={}", path.display());
    }
    for library in LIBRARIES.split_whitespace() {
        println!("cargo:rustc-link-lib=static:+whole-archive,-bundle={library}");
    }
    for library in ["numa", "bsd"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}
