//! Features of the kernel.
//!
//! What the kernel was built with is told by the names of its functions in /proc/kallsyms, which everyone may
//! read, and which is there in all kernels of distributions.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};

use super::finding::{Finding, System};

/// Oldest kernel that mmb is tested with: Linux 5.10 (XDP on veth with all of its actions, CAP_BPF).
const OLDEST: (u32, u32) = (5, 10);

/// A feature and a function that the kernel has with it.
struct Feature {
    check: &'static str,
    symbol: &'static str,
    /// Whether kernels that mmb supports may lack it.
    is_optional: bool,
    /// What works without it, and what to do; none: nothing of this release needs it.
    without: Option<(&'static str, &'static str)>,
}

const FEATURES: [Feature; 4] = [
    Feature {
        check: "bpf",
        symbol: "bpf_prog_load",
        is_optional: false,
        without: Some((
            "the kernel has no BPF: `af-xdp` interfaces and the fast path do not work",
            "use `af-packet`, or a kernel with CONFIG_BPF_SYSCALL",
        )),
    },
    Feature {
        check: "tcx",
        symbol: "tcx_prog_attach",
        is_optional: true,
        without: Some((
            "the kernel has no tcx: the fast path does not serve `af-packet` interfaces",
            "use Linux 6.6 or later",
        )),
    },
    Feature { check: "sockmap", symbol: "sock_map_update_elem", is_optional: true, without: None },
    Feature { check: "landlock", symbol: "landlock_add_rule", is_optional: true, without: None },
];

pub(super) fn check(system: &System) -> Vec<Finding> {
    let mut findings = vec![release(system)];
    findings.extend([
        family("af-packet", socket(AddressFamily::PACKET, SocketType::RAW, None).err()),
        family("af-xdp", socket(AddressFamily::XDP, SocketType::RAW, None).err()),
        tun(system),
        jit(system),
        user_namespaces(system),
    ]);
    let symbols = system.read("proc/kallsyms");
    findings.extend(FEATURES.iter().map(|f| feature(f, symbols.as_deref())));
    findings
}

fn release(system: &System) -> Finding {
    let release = system.read("proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < OLDEST {
        let (major, minor) = OLDEST;
        let text = format!("Linux {release} is older than {major}.{minor}");
        return Finding::warning("kernel", text, "use a newer kernel: mmb is not tested with this one");
    }
    Finding::ok("kernel", format!("Linux {release}"))
}

/// A family of sockets, by the error of opening one.
fn family(name: &str, error: Option<Errno>) -> Finding {
    match error {
        None => Finding::ok(name, "sockets can be opened"),
        Some(Errno::PERM | Errno::ACCESS) => {
            Finding::failure(name, "this user may open no sockets", "give CAP_NET_RAW, or run as root")
        }
        Some(Errno::AFNOSUPPORT) => Finding::failure(
            name,
            format!("the kernel has no such sockets: `{name}` interfaces cannot be opened"),
            match name {
                "af-xdp" => "use `af-packet`, or a kernel with CONFIG_XDP_SOCKETS",
                _ => "load the module af_packet",
            },
        ),
        Some(error) => Finding::failure(name, format!("a socket cannot be opened: {error}"), "see dmesg(1)"),
    }
}

fn tun(system: &System) -> Finding {
    if system.path("dev/net/tun").exists() {
        return Finding::ok("tap", "/dev/net/tun exists");
    }
    Finding::warning(
        "tap",
        "there is no /dev/net/tun: no `tap` interfaces, and no routed `pci` interfaces",
        "run `modprobe tun`",
    )
}

fn jit(system: &System) -> Finding {
    match system.number("proc/sys/net/core/bpf_jit_enable") {
        Some(0) => Finding::warning(
            "bpf-jit",
            "BPF programs are interpreted: XDP is slow",
            "run `sysctl net.core.bpf_jit_enable=1`",
        ),
        Some(_) => Finding::ok("bpf-jit", "BPF programs are compiled"),
        // The setting is the machine's: other network namespaces do not have it.
        None => Finding::ok("bpf-jit", "the setting is not visible here"),
    }
}

/// Functions in processes have name spaces of their own.
fn user_namespaces(system: &System) -> Finding {
    let most = system.number("proc/sys/user/max_user_namespaces");
    let permitted = system.number("proc/sys/kernel/unprivileged_userns_clone");
    let (text, advice) = match (most, permitted) {
        (Some(0) | None, _) => ("there are none", "run `sysctl user.max_user_namespaces=10000`"),
        (_, Some(0)) => ("users may make none", "run `sysctl kernel.unprivileged_userns_clone=1`"),
        _ => return Finding::ok("user-namespaces", "users may make them"),
    };
    let text = format!("{text}: functions in processes are confined by seccomp and limits only");
    Finding::warning("user-namespaces", text, advice)
}

fn feature(feature: &Feature, symbols: Option<&str>) -> Finding {
    let Some(symbols) = symbols.filter(|text| !text.is_empty()) else {
        return Finding::ok(feature.check, "unknown: /proc/kallsyms cannot be read");
    };
    let found = symbols.lines().any(|line| line.split_whitespace().nth(2) == Some(feature.symbol));
    match (found, feature.without) {
        (true, _) => Finding::ok(feature.check, "the kernel has it"),
        (false, None) => Finding::ok(feature.check, "the kernel does not have it; mmb does not use it"),
        (false, Some((text, advice))) if feature.is_optional => Finding::warning(feature.check, text, advice),
        (false, Some((text, advice))) => Finding::failure(feature.check, text, advice),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Status, status, system};
    use super::*;

    #[test]
    fn a_good_kernel_is_good() {
        let (_root, system) = system(&[
            ("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
            ("dev/net/tun", ""),
            ("proc/sys/net/core/bpf_jit_enable", "1\n"),
            ("proc/sys/user/max_user_namespaces", "1000\n"),
            ("proc/kallsyms", "0000000000000000 T bpf_prog_load\n0000000000000000 t tcx_prog_attach\t[x]\n"),
        ]);
        let findings = check(&system);
        for name in ["kernel", "tap", "bpf-jit", "user-namespaces", "bpf", "tcx", "sockmap"] {
            assert_eq!(status(&findings, name), Status::Ok, "{name}");
        }
        let text = |name: &str| &findings.iter().find(|f| f.check == name).unwrap().text;
        assert!(text("tcx").contains("has it") && text("sockmap").contains("does not have it"));
    }

    #[test]
    fn what_is_missing_is_found() {
        let (_root, system) = system(&[
            ("proc/sys/kernel/osrelease", "4.19.0\n"),
            ("proc/sys/net/core/bpf_jit_enable", "0\n"),
            ("proc/sys/user/max_user_namespaces", "1000\n"),
            ("proc/sys/kernel/unprivileged_userns_clone", "0\n"),
            ("proc/kallsyms", "0000000000000000 T bpf_prog_load_old\n"),
        ]);
        let findings = check(&system);
        for name in ["kernel", "tap", "bpf-jit", "user-namespaces", "tcx"] {
            assert_eq!(status(&findings, name), Status::Warning, "{name}");
        }
        assert_eq!(status(&findings, "bpf"), Status::Failure);
        assert_eq!(user_namespaces(&tests_without()).status, Status::Warning);
    }

    /// A system without files.
    fn tests_without() -> System {
        System { root: "/nonexistent".into() }
    }

    #[test]
    fn sockets_tell_why_they_cannot_be_opened() {
        assert_eq!(family("af-xdp", None).status, Status::Ok);
        assert!(family("af-xdp", Some(Errno::AFNOSUPPORT)).advice.unwrap().contains("CONFIG_XDP_SOCKETS"));
        assert!(family("af-packet", Some(Errno::PERM)).advice.unwrap().contains("CAP_NET_RAW"));
        assert_eq!(family("af-packet", Some(Errno::MFILE)).status, Status::Failure);
    }
}
