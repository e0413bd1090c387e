//! The environment with huge pages and devices. Needs root and 256 MiB of free huge pages; otherwise it is
//! skipped with a message.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering::Relaxed;

use mmb_dpdk::{Burst, Device, Eal, EalConfig, HugePages, Mempool, Port, PortSpec, SharedMemory};

#[test]
fn huge_pages_carry_packets() {
    let config =
        EalConfig { memory_mb: 256, huge: HugePages::Auto, privileged: true, ..EalConfig::default() };
    let eal = Eal::init(&config).unwrap();
    if !eal.huge_pages() {
        println!("skipped: fewer than 256 MiB of huge pages are free (sysctl vm.nr_hugepages)");
        return;
    }
    let pool = Mempool::create("huge", 8192, 2048, 256).unwrap();
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc_from(&[7; 2048])).collect();
    assert_eq!(all.len(), 8192);
    drop(all);
    let (file, packet) = (pool.file().unwrap(), pool.alloc_from(&[9; 2048]).unwrap());
    let view = SharedMemory::map(file.fd(), file.offset(), file.bytes()).unwrap();
    let at = (file.offset_of(packet.data()).unwrap() - file.offset()) as usize;
    assert!(view[at..at + 2048].iter().all(|byte| byte.load(Relaxed) == 9));
    drop(packet);
    let too_large = Mempool::create("too large", 1 << 20, 60_000, 0).err().unwrap().to_string();
    assert!(too_large.starts_with("cannot make the packet pool 'too large': "), "{too_large}");
    let open = |device| {
        Port::open(&PortSpec { name: "p0", device, pool: &pool, rx_queues: 1, tx_queues: 1, mtu: None })
    };
    let mut port = open(Device::Null { receive: Some(64) }).unwrap();
    let mut burst = Burst::new();
    assert_eq!(burst.fill(|slots| port.take_rx(0).unwrap().receive(slots)), 256);
    burst.clear();
    assert_eq!(pool.in_use(), 0);
    let missing = open(Device::Pci { address: "0000:99:00.0".into() }).err().unwrap().to_string();
    assert!(missing.starts_with("port p0: cannot open the device: "), "{missing}");
    let loopback = open(Device::AfXdp { interface: "lo".into() }).err().unwrap().to_string();
    assert!(loopback.starts_with("port p0: frames of MTU 65536 do not fit"), "got past the pool: {loopback}");
}
