//! Kernel interfaces that a configuration would use, and network cards that DPDK drives.

use mmb_dataplane::{NetDev, Offloads, is_veth};

use super::finding::{Finding, System};

/// Drivers of network cards for user space that need physical addresses.
const PHYSICAL: [&str; 2] = ["igb_uio", "uio_pci_generic"];

/// The cards that are bound to drivers for user space.
pub(super) fn cards(system: &System) -> Vec<Finding> {
    let mut found = Vec::new();
    for address in system.names("sys/bus/pci/devices") {
        let device = format!("sys/bus/pci/devices/{address}");
        let is_network =
            system.read(&format!("{device}/class")).is_some_and(|class| class.starts_with("0x02"));
        let Some(driver) = system.link(&format!("{device}/driver")).filter(|_| is_network) else { continue };
        let check = format!("pci {address}");
        if driver == "vfio-pci" {
            found.push(Finding::ok(&check, "bound to vfio-pci"));
        } else if PHYSICAL.contains(&driver.as_str()) {
            let text = format!("bound to {driver}: the daemon keeps CAP_SYS_ADMIN and CAP_SYS_RAWIO");
            found.push(Finding::warning(
                &check,
                text,
                "use vfio-pci with an IOMMU: `dpdk-devbind.py -b vfio-pci`",
            ));
        }
    }
    found
}

/// An interface by its name.
pub(super) fn check(system: &System, name: &str) -> Vec<Finding> {
    let check = format!("interface {name}");
    let mut device = match NetDev::lookup(name) {
        Ok(Some(device)) => device,
        Ok(None) => {
            let advice = "see `ip link`; a name may belong to another network namespace";
            return vec![Finding::failure(&check, "there is no such kernel interface here", advice)];
        }
        Err(error) => {
            return vec![Finding::failure(&check, format!("cannot be read: {error}"), "run as root")];
        }
    };
    // The flag of an interface that has just come up may follow a second later.
    device.running |= system.number(&format!("sys/class/net/{name}/carrier")) == Some(1);
    let driver = system.link(&format!("sys/class/net/{name}/device/driver"));
    let driver = driver.unwrap_or_else(|| if is_veth(name) { "veth" } else { "software" }.to_owned());
    let mut findings = vec![link(&check, &device, &driver, name)];
    findings.extend(bridged(system, &check, name));
    findings.extend(offloads(&check, device.offloads, driver == "veth", name));
    findings
}

fn link(check: &str, device: &NetDev, driver: &str, name: &str) -> Finding {
    let queues = device.queues.map(|n| format!(", {n} receive queues")).unwrap_or_default();
    let text = format!("driver {driver}, mtu {}{queues}", device.mtu);
    match (device.up, device.running) {
        (false, _) => {
            Finding::failure(check, format!("{text}, down"), format!("run `ip link set {name} up`"))
        }
        (true, false) => {
            Finding::warning(check, format!("{text}, no carrier"), "check the cable or the peer")
        }
        (true, true) => Finding::ok(check, format!("{text}, up")),
    }
}

/// A bridge or bond takes packets before mmb gets them, or with it.
fn bridged(system: &System, check: &str, name: &str) -> Option<Finding> {
    let master = system.link(&format!("sys/class/net/{name}/master"))?;
    let advice = format!("run `ip link set {name} nomaster`, or use {master} itself");
    Some(Finding::warning(check, format!("a member of {master}, which also gets its packets"), advice))
}

/// Offloads that change frames before mmb sees them. The daemon itself switches off LRO.
fn offloads(check: &str, on: Offloads, veth: bool, name: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    if on.rx_vlan && !veth {
        found.push(Finding::warning(
            check,
            "the card strips VLAN tags, and XDP does not see them",
            format!("with VLANs, run `ethtool -K {name} rxvlan off`"),
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Status, status, system};
    use super::*;

    #[test]
    fn cards_are_found_by_their_driver() {
        let (root, system) = system(&[
            ("sys/bus/pci/devices/0000:00:01.0/class", "0x020000\n"),
            ("sys/bus/pci/devices/0000:00:02.0/class", "0x020000\n"),
            ("sys/bus/pci/devices/0000:00:03.0/class", "0x020000\n"),
            ("sys/bus/pci/devices/0000:00:04.0/class", "0x010000\n"),
        ]);
        for (n, driver) in [(1, "vfio-pci"), (2, "igb_uio"), (3, "e1000e"), (4, "vfio-pci")] {
            let link = root.path().join(format!("sys/bus/pci/devices/0000:00:0{n}.0/driver"));
            std::os::unix::fs::symlink(format!("../../drivers/{driver}"), link).unwrap();
        }
        let found = cards(&system);
        assert_eq!(found.len(), 2);
        assert_eq!(status(&found, "pci 0000:00:01.0"), Status::Ok);
        assert_eq!(status(&found, "pci 0000:00:02.0"), Status::Warning);
    }

    #[test]
    fn loopback_is_up_and_others_do_not_exist() {
        let root = System { root: "/".into() };
        assert_eq!(status(&check(&root, "no-such-if"), "interface no-such-if"), Status::Failure);
        assert_eq!(offloads("x", Offloads { rx_vlan: true, ..Offloads::default() }, false, "x").len(), 1);
        assert!(offloads("x", Offloads::default(), true, "x").is_empty());
    }
}
