//! Generates the bindings from the installed headers, compiles the C shim and the BPF programs, and selects
//! DPDK's static libraries (the crate's documentation says why static).

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// DPDK's own libraries, those that drivers need, and the drivers: buses and the mempool handler; ports on
/// kernel interfaces, in memory and on files; network cards, physical and virtual. Linked whole: drivers,
/// mempool handlers and tail queues register themselves in constructors that nothing refers to.
const LIBRARIES: &str = "
    rte_kvargs rte_telemetry rte_eal rte_ring rte_rcu rte_mempool rte_mbuf rte_net rte_meter rte_ethdev rte_pci rte_graph
    rte_hash rte_timer rte_cryptodev rte_security
    rte_bus_vdev rte_bus_pci rte_mempool_ring
    rte_net_af_packet rte_net_af_xdp rte_net_memif rte_net_pcap rte_net_null rte_net_ring
    rte_common_iavf rte_net_e1000 rte_net_igc rte_net_ixgbe rte_net_i40e rte_net_ice rte_net_iavf rte_net_virtio
    rte_net_vmxnet3 rte_net_ena";

/// Libraries with patched calls: functions that they call are renamed to those of the shim (shim/packet.c,
/// shim/xsk.c).
const PATCHED: &[(&str, &[&str])] = &[
    (
        "rte_net_af_packet",
        &[
            "socket=mmb_packet_socket",
            "setsockopt=mmb_packet_setsockopt",
            "bind=mmb_packet_bind",
            "poll=mmb_packet_poll",
            "sendto=mmb_packet_sendto",
        ],
    ),
    (
        "rte_net_af_xdp",
        &[
            "bpf_xdp_detach=mmb_xsk_detach",
            "send=mmb_xsk_send",
            "setsockopt=mmb_xsk_setsockopt",
            "poll=mmb_xsk_poll",
        ],
    ),
];

/// System libraries that DPDK needs. On x86-64, they are loaded when DPDK starts (shim/libraries.c).
const SYSTEM: &str = "xdp bpf pcap numa bsd";

/// Sections with the addresses of constructors, by priority, and the names that they get
/// (shim/constructors.c).
const CONSTRUCTORS: &[(&str, &str)] = &[
    (".init_array.00101", "mmb_init_101"),
    (".init_array.00110", "mmb_init_110"),
    (".init_array.00120", "mmb_init_120"),
    (".init_array", "mmb_init"),
];

/// Functions that the bindings cover, as patterns.
const FUNCTIONS: &str = "
    mmb_.* rte_eal_init rte_dev_probe rte_dev_remove
    rte_eth_dev_(get_port_by_name|configure|info_get|start|stop|get_mtu|adjust_nb_rx_tx_desc)
    rte_eth_(rx|tx)_queue_setup rte_eth_promiscuous_enable rte_eth_stats_get rte_eth_link_get_nowait rte_eth_macaddr_get
    rte_pktmbuf_pool_init rte_pktmbuf_init
    rte_mempool_(create_empty|populate_iova|populate_default|free|obj_iter|set_ops_byname)
    rte_malloc rte_free rte_mem_virt2memseg(_list)? rte_memseg_get_fd(_offset)? rte_ring_create rte_ring_free
    rte_mbuf_dynfield_register_offset rte_mbuf_dyn_rx_timestamp_register
    rte_graph_(create|destroy|lookup|node_get) __rte_node_register
    rte_thread_register rte_thread_unregister rte_log_set_global_level rte_strerror rte_get_tsc_hz
    bpf_object__(open_mem|load|close|find_map_by_name|find_program_by_name) bpf_(map|program)__fd
    bpf_map__reuse_fd bpf_map_create bpf_map_(update|delete)_elem bpf_link_(create|update)
    bpf_prog_test_run_opts";
const TYPES: &str = "
    rte_mbuf rte_mempool rte_ring rte_graph rte_node rte_node_register rte_graph_param rte_pktmbuf_pool_private
    rte_eth_conf rte_eth_dev_info rte_eth_stats rte_eth_link rte_ether_addr rte_mbuf_dynfield
    bpf_object bpf_link_create_opts bpf_map_create_opts bpf_map_type bpf_test_run_opts xdp_action
    steer_state tc_state fast_interface fast_key fast_action fast_slot fast_bucket";
const VALUES: &str = "
    RTE_PKTMBUF_HEADROOM RTE_NODE_SOURCE_F RTE_GRAPH_BURST_SIZE RTE_GRAPH_ID_INVALID RTE_NODE_ID_INVALID
    RTE_MEMPOOL_CACHE_MAX_SIZE RTE_MEMPOOL_F_NO_IOVA_CONTIG RING_F_(SC_DEQ|MP_RTS_ENQ) RTE_ETH_MQ_RX_RSS
    RTE_ETH_LINK_UP RTE_ETHER_(MTU|MAX_JUMBO_FRAME_LEN) RTE_LOG_DEBUG RTE_MAX_LCORE
    RTE_MBUF_F_RX_(VLAN|QINQ)(_STRIPPED)? RTE_MBUF_F_RX_(RSS_HASH|FDIR_ID|LRO)
    BPF_XDP BPF_SK_LOOKUP BPF_F_(NO_PREALLOC|MMAPABLE) XDP_FLAGS_(SKB|DRV)_MODE
    STEER_.* MMB_.*";

const SHIM: &[&str] = &[
    "shim/shim.c",
    "shim/constructors.c",
    "shim/libraries.c",
    "shim/log.c",
    "shim/xsk.c",
    "shim/packet.c",
    "shim/flow.c",
    "shim/tx.c",
];

/// The sources of the programs for the kernel.
const BPF: &str = "../../bpf";

fn main() {
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-changed={BPF}");
    println!("cargo:rerun-if-changed=build.rs");
    let dpdk = pkg_config::Config::new()
        .range_version("22.11".."22.12")
        .cargo_metadata(false)
        .probe("libdpdk")
        .unwrap_or_else(|error| {
            panic!("DPDK 22.11 is needed; on Debian 12: apt-get install libdpdk-dev\n{error}")
        });
    let mut flags: Vec<String> =
        dpdk.include_paths.iter().map(|path| format!("-I{}", path.display())).collect();
    // pkg-config's "-include rte_config.h -march=corei7" are not include paths and so not in the list.
    flags.extend(["-include", "rte_config.h", "-DALLOW_EXPERIMENTAL_API", "-march=corei7"].map(String::from));
    flags.push(format!("-I{BPF}"));
    flags.push(prefix_map());
    compile_shim(&flags);
    compile_bpf("steer.c", "steer.o", &[]);
    compile_bpf("steer.c", "steer_fast.o", &["-DSTEER_FAST"]);
    compile_bpf("tc.c", "tc.o", &[]);
    compile_bpf("discard.c", "discard.o", &[]);
    compile_bpf("broker.c", "broker.o", &[]);
    generate(&flags);
    link();
}

fn compile_shim(flags: &[String]) {
    let mut build = cc::Build::new();
    build.files(SHIM).warnings(true).opt_level(3);
    for flag in flags {
        build.flag(flag);
    }
    // Linked whole, because DPDK's drivers, which follow on the linker's command line, call it.
    build.link_lib_modifier("-bundle").link_lib_modifier("+whole-archive");
    build.compile("mmb_shim");
}

/// Compiles a program for the kernel to an object that the crate embeds.
fn compile_bpf(source: &str, object: &str, options: &[&str]) {
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    // The debug information holds the types of the maps. BPF has no directory of its own for <asm/types.h>.
    let status = Command::new("clang")
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf"])
        .arg(format!("-idirafter/usr/include/{architecture}-linux-gnu"))
        .arg(prefix_map())
        .args(options)
        .args(["-c", &format!("{BPF}/{source}"), "-o"])
        .arg(out_dir().join(object))
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "clang cannot compile {BPF}/{source} (apt-get install clang libbpf-dev)"
    );
}

/// The option that keeps the directory of the sources out of debug information and types of maps, so that the
/// binary does not depend on it.
fn prefix_map() -> String {
    let directory = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let root = directory.ancestors().nth(2).unwrap_or(&directory);
    format!("-ffile-prefix-map={}=/mmb", root.display())
}

fn out_dir() -> PathBuf {
    PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default())
}

fn generate(flags: &[String]) {
    let mut builder = bindgen::Builder::default()
        .header("shim/shim.h")
        .clang_args(flags)
        .derive_default(true)
        .derive_debug(false)
        .layout_tests(true)
        .generate_comments(false)
        .prepend_enum_name(false)
        // Packed with alignments that Rust cannot express; not used.
        .opaque_type("rte_arp_.*|rte_ipv4_.*|rte_ipv6_.*|rte_l2tpv2_.*");
    for name in FUNCTIONS.split_whitespace() {
        builder = builder.allowlist_function(name);
    }
    for name in TYPES.split_whitespace() {
        builder = builder.allowlist_type(name);
    }
    for name in VALUES.split_whitespace() {
        builder = builder.allowlist_var(name);
    }
    let out = out_dir().join("bindings.rs");
    let bindings = builder.generate().unwrap_or_else(|error| {
        panic!("the bindings cannot be generated (apt-get install clang libclang-dev): {error}")
    });
    bindings.write_to_file(&out).unwrap_or_else(|error| panic!("{}: {error}", out.display()));
}

fn link() {
    let dir =
        pkg_config::get_variable("libdpdk", "libdir").unwrap_or_else(|error| panic!("libdpdk: {error}"));
    let out = out_dir();
    for name in LIBRARIES.split_whitespace() {
        let from = format!("{dir}/lib{name}.a");
        let patched = PATCHED.iter().find(|(patched, _)| *patched == name);
        let redefined = patched.map_or(&[][..], |(_, redefined)| redefined);
        let sections = CONSTRUCTORS.iter().map(|(section, new)| format!("{section}={new}"));
        let status = Command::new("objcopy")
            .args(redefined.iter().flat_map(|names| ["--redefine-sym", *names]))
            .args(sections.flat_map(|names| ["--rename-section".to_owned(), names]))
            .arg(&from)
            .arg(out.join(format!("libmmb_{name}.a")))
            .status();
        assert!(status.is_ok_and(|s| s.success()), "objcopy cannot copy {from} (apt-get install binutils)");
    }
    println!("cargo:rustc-link-search=native={dir}");
    println!("cargo:rustc-link-search=native={}", out.display());
    for name in LIBRARIES.split_whitespace() {
        println!("cargo:rustc-link-lib=static:+whole-archive,-bundle=mmb_{name}");
    }
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        for name in SYSTEM.split_whitespace() {
            println!("cargo:rustc-link-lib=dylib={name}");
        }
    }
}
