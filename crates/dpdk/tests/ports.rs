//! Ports that need no privilege: null, captures and DPDK's ring device; and errors.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::PathBuf;

use mmb_dpdk::{
    Burst, Device, Emit, Error, Graph, Mempool, NodeDef, NodeKind, Port, PortSpec, RxQueue, TxCount, TxQueue,
};
use mmb_packet::build::{Frame, Ip4, Tcp};

fn pool() -> Mempool {
    Mempool::create("ports", 4000, 2048, 0).unwrap()
}

fn open(device: Device, pool: &Mempool) -> Result<Port, Error> {
    Port::open(&PortSpec { name: "p0", device, pool, rx_queues: 1, tx_queues: 1, mtu: None })
}

fn queues(port: &mut Port) -> (RxQueue, TxQueue) {
    (port.take_rx(0).unwrap(), port.take_tx(0).unwrap())
}

fn message(device: Device) -> String {
    open(device, &pool()).err().unwrap().to_string()
}

/// A temporary file, which is deleted with the value.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> TempFile {
        TempFile(std::env::temp_dir().join(format!("mmb-dpdk-{}-{name}", std::process::id())))
    }

    fn text(&self) -> String {
        self.0.to_str().unwrap().to_owned()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn null_ports_send_and_receive() {
    let _alone = common::alone();
    let pool = pool();
    let mut port = open(Device::Null { receive: Some(100) }, &pool).unwrap();
    let info = port.info().clone();
    assert_eq!((info.name.as_str(), info.driver.as_str(), info.if_index), ("p0", "net_null", None));
    assert_eq!((info.rx_queues, info.tx_queues, port.rx_fd(0).is_some()), (1, 1, false));
    let (mut rx, mut tx) = queues(&mut port);
    assert!(port.take_rx(0).is_none() && port.take_tx(1).is_none() && port.is_in_use());
    let mut burst = Burst::new();
    assert_eq!(burst.fill(|slots| rx.receive(slots)), 256);
    assert!(burst.iter().all(|packet| packet.pkt_len() == 100));
    burst.push(pool.alloc().unwrap()).unwrap_err();
    assert_eq!(tx.send(&mut burst), TxCount { sent: 256, ..TxCount::default() });
    assert_eq!((burst.len(), pool.in_use()), (0, 0));
    let stats = port.stats().unwrap();
    assert_eq!((stats.rx_packets, stats.tx_packets), (256, 256));
    assert!(port.is_link_up());
    drop((rx, tx));
    assert!(!port.is_in_use());

    let mut silent = open(Device::Null { receive: None }, &pool).unwrap();
    assert_eq!(burst.fill(|slots| silent.take_rx(0).unwrap().receive(slots)), 0);
}

#[test]
fn several_queues_where_the_device_has_them() {
    let _alone = common::alone();
    let pool = pool();
    let device = Device::Null { receive: Some(64) };
    let spec = PortSpec { name: "wide", device, pool: &pool, rx_queues: 3, tx_queues: 1000, mtu: None };
    let mut port = Port::open(&spec).unwrap();
    assert_eq!(port.info().rx_queues, 3);
    let most = port.info().tx_queues;
    assert!(most >= 16 && port.take_tx(most - 1).is_some() && port.take_tx(most).is_none());
    let mut burst = Burst::new();
    assert_eq!(burst.fill(|slots| port.take_rx(2).unwrap().receive(slots)), 256);
}

#[test]
fn queues_keep_a_port_open() {
    let _alone = common::alone();
    let pool = pool();
    let mut port = open(Device::Null { receive: Some(64) }, &pool).unwrap();
    let (mut rx, _) = queues(&mut port);
    drop(port);
    let mut burst = Burst::new();
    assert_eq!(burst.fill(|slots| rx.receive(slots)), 256);
}

#[test]
fn ports_reopen_many_times() {
    let _alone = common::alone();
    let (pool, capture) = (pool(), TempFile::new("again.pcap"));
    for _ in 0..100 {
        let _null = open(Device::Null { receive: None }, &pool).unwrap();
        let _pcap = open(Device::Pcap { rx: None, tx: Some(capture.text()) }, &pool).unwrap();
        let _ring = open(Device::Loop, &pool).unwrap();
    }
    assert_eq!(pool.in_use(), 0);
    let many: Vec<_> = (0..40).map(|_| open(Device::Null { receive: None }, &pool)).collect();
    assert_eq!(many.iter().filter(|port| port.is_ok()).count(), 32);
    let error = many.into_iter().find_map(Result::err).unwrap().to_string();
    assert!(error.starts_with("port p0: cannot open the device: "), "{error}");
    open(Device::Null { receive: None }, &pool).unwrap();
}

#[test]
fn captures_are_read_and_written() {
    let _alone = common::alone();
    let (pool, capture) = (pool(), TempFile::new("written.pcap"));
    let frames: Vec<Vec<u8>> =
        [60usize, 1500, 2048, 5000, 9000].map(|len| (0..len).map(|at| at as u8).collect()).into();
    let mut port = open(Device::Pcap { rx: None, tx: Some(capture.text()) }, &pool).unwrap();
    let mut burst = Burst::new();
    for frame in &frames {
        burst.push(pool.alloc_from(frame).unwrap()).unwrap();
    }
    burst.push(pool.alloc_from(&[0; 17_000]).unwrap()).unwrap();
    let count = port.take_tx(0).unwrap().send_all(&mut burst);
    assert_eq!(count, TxCount { sent: 5, too_big: 1, ..TxCount::default() });
    assert_eq!((burst.fill(|slots| port.take_rx(0).unwrap().receive(slots)), pool.in_use()), (0, 0));
    drop(port);

    let mut port = open(Device::Pcap { rx: Some(capture.text()), tx: None }, &pool).unwrap();
    let (mut rx, mut tx) = queues(&mut port);
    assert_eq!(burst.fill(|slots| rx.receive(slots)), 5);
    let read: Vec<Vec<u8>> = burst.iter().map(|packet| packet.to_vec()).collect();
    assert_eq!(read, frames);
    assert!(
        burst.iter().all(|packet| packet.timestamp().is_some()) && burst.iter().last().unwrap().nb_segs() > 1
    );
    assert_eq!(tx.send_all(&mut burst).sent, 5);
    assert_eq!(burst.fill(|slots| rx.receive(slots)), 0, "the end of the capture is silence");
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn full_ports_keep_or_free_the_rest() {
    let _alone = common::alone();
    let pool = pool();
    let mut port = open(Device::Loop, &pool).unwrap();
    let (mut rx, mut tx) = queues(&mut port);
    let mut burst = Burst::new();
    let fill = |burst: &mut Burst, len: usize| {
        while !burst.is_full() {
            let number = burst.len() as u8;
            burst.push(pool.alloc_from(&vec![number; len]).unwrap()).unwrap();
        }
    };
    // The ring holds 1,023 packets.
    for _ in 0..3 {
        fill(&mut burst, 60);
        assert_eq!(tx.send(&mut burst).sent, 256);
    }
    fill(&mut burst, 60);
    burst.iter_mut().nth(10).unwrap().append(1900).unwrap().fill(0);
    assert_eq!(tx.send(&mut burst), TxCount { sent: 255, too_big: 1, ..TxCount::default() });
    fill(&mut burst, 60);
    assert_eq!((tx.send(&mut burst), burst.len()), (TxCount::default(), 256));
    burst.clear();
    assert_eq!(burst.fill(|slots| rx.receive(slots)), 256);
    burst.clear();
    fill(&mut burst, 60);
    burst.push(pool.alloc().unwrap()).unwrap_err();
    assert_eq!(tx.send(&mut burst).sent, 256);
    fill(&mut burst, 60);
    assert_eq!(tx.send_all(&mut burst), TxCount { no_room: 256, ..TxCount::default() });
    while burst.fill(|slots| rx.receive(slots)) > 0 {
        burst.clear();
    }
    assert_eq!(pool.in_use(), 0);
}

/// A graph's queues, the result of its last transmission, and the packets without room.
struct Wire(RxQueue, TxQueue, TxCount, Burst);

const WIRE: [NodeDef<Wire>; 2] = [
    NodeDef {
        name: "rx",
        kind: NodeKind::Source(|wire, emit: &mut Emit<'_>| {
            emit.emit(0, 256, |slots| {
                wire.0.receive(slots);
            })
        }),
        next: &["tx"],
    },
    NodeDef {
        name: "tx",
        kind: NodeKind::Inner(|wire, vector| wire.2 = vector.transmit(&mut wire.1, &mut wire.3)),
        next: &[],
    },
];

#[test]
fn a_graph_receives_and_sends() {
    let _alone = common::alone();
    let pool = pool();
    let mut port = open(Device::Null { receive: Some(64) }, &pool).unwrap();
    let (rx, tx) = queues(&mut port);
    let wire = Wire(rx, tx, TxCount::default(), Burst::new());
    let mut graph = Graph::build("wire", &WIRE, Box::new(wire)).unwrap();
    for _ in 0..10 {
        graph.walk();
        assert_eq!((graph.state().2.sent, graph.state().3.len()), (256, 0));
    }
    assert_eq!((port.stats().unwrap().tx_packets, pool.in_use()), (2560, 0));
}

#[test]
fn a_graph_keeps_packets_that_a_full_port_refuses() {
    let _alone = common::alone();
    let pool = pool();
    let mut from = open(Device::Null { receive: Some(64) }, &pool).unwrap();
    let mut to = open(Device::Loop, &pool).unwrap();
    let ((rx, _), (mut sent, tx)) = (queues(&mut from), queues(&mut to));
    let wire = Wire(rx, tx, TxCount::default(), Burst::new());
    let mut graph = Graph::build("wire", &WIRE, Box::new(wire)).unwrap();
    // The ring holds 1,023 packets. The second walk that finds it full also exceeds the room for kept
    // packets.
    for (n, kept) in [(256, 0), (256, 0), (256, 0), (255, 1), (0, 256)] {
        graph.walk();
        assert_eq!(
            (graph.state().2, graph.state().3.len()),
            (TxCount { sent: n, ..TxCount::default() }, kept)
        );
    }
    assert_eq!(pool.in_use(), 1023 + 256);
    graph.state_mut().3.clear();
    let mut burst = Burst::new();
    while burst.fill(|slots| sent.receive(slots)) > 0 {
        burst.clear();
    }
    assert_eq!(pool.in_use(), 0);
}

/// A port that takes no large frames sends the segments, between the packets around the frame.
#[test]
fn large_frames_are_segmented() {
    let _alone = common::alone();
    let pool = Mempool::create("segments", 2000, 256, 0).unwrap();
    let mut port = open(Device::Loop, &pool).unwrap();
    let (mut rx, mut tx) = queues(&mut port);
    let payload: Vec<u8> = (0..4000u32).map(|at| (at * 7) as u8).collect();
    let frame = |id, seq, flags, payload: &[u8]| {
        let ip = Ip4 { id, flags: 2, ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]) };
        Frame::new(ip, Tcp { seq, flags, ..Tcp::new(1, 2) }).payload(payload).build()
    };
    // PSH and ACK; segments before the last one lack PSH.
    let segments = [
        frame(5, 100, 0x10, &payload[..1400]),
        frame(6, 1500, 0x10, &payload[1400..2800]),
        frame(7, 2900, 0x18, &payload[2800..]),
    ];
    let (before, behind) = (frame(1, 1, 0x10, b"before"), frame(2, 2, 0x10, b"behind"));
    let mut burst = Burst::new();
    for bytes in [&before, &frame(5, 100, 0x18, &payload), &behind] {
        burst.push(pool.alloc_from(bytes).unwrap()).unwrap();
    }
    let large = burst.iter_mut().nth(1).unwrap();
    large.set_large(1400);
    assert_eq!((large.is_large(), large.longest_frame(), large.nb_segs()), (true, 1454, 16));
    assert_eq!(tx.send(&mut burst), TxCount { sent: 3, ..TxCount::default() });
    burst.fill(|slots| rx.receive(slots));
    let mut received = Vec::new();
    burst.drain(|packet| received.push(packet.to_vec()));
    let [first, second, third] = segments;
    assert!(received == [before, first, second, third, behind], "{} frames", received.len());
    // One segment: an ordinary frame with a complete checksum.
    let single = frame(9, 9, 0x18, &payload[..500]);
    let mut unfinished = single.clone();
    unfinished[50..52].fill(0);
    let mut packet = pool.alloc_from(&unfinished).unwrap();
    packet.set_large(1400);
    burst.push(packet).unwrap();
    assert_eq!(tx.send(&mut burst).sent, 1);
    burst.fill(|slots| rx.receive(slots));
    assert!(burst.iter().all(|packet| packet.to_vec() == single && !packet.is_large()));
    // Nothing can segment a frame whose headers are not known.
    burst.clear();
    let mut packet = pool.alloc_from(&frame(1, 1, 0x10, &payload)).unwrap();
    packet.set_large(0);
    burst.push(packet).unwrap();
    assert_eq!(tx.send(&mut burst), TxCount { too_big: 1, ..TxCount::default() });
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn open_errors_name_the_cause() {
    let _alone = common::alone();
    let xdp = |interface: &str| Device::AfXdp { interface: interface.into() };
    assert_eq!(
        message(xdp("no-such-if")),
        "port p0: there is no network interface 'no-such-if' (see: ip link)"
    );
    assert_eq!(message(xdp("a,b=c")), "port p0: 'a,b=c' cannot stand in a device argument");
    assert_eq!(
        message(Device::Pci { address: "0000:99:00.0".into() }),
        "port p0: a PCI device needs huge pages, and the engine runs without (try: sysctl vm.nr_hugepages=512, then \
         start again)"
    );
    let missing = message(Device::Pcap { rx: Some("/no/such.pcap".into()), tx: None });
    assert_eq!(
        missing,
        "port p0: cannot open its capture: /no/such.pcap: No such file or directory (os error 2)"
    );
    let (broken, text) = (TempFile::new("broken.pcap"), "this is no capture, whatever its name says");
    std::fs::write(&broken.0, text).unwrap();
    let garbage = message(Device::Pcap { rx: Some(broken.text()), tx: None });
    assert!(garbage.contains("unknown file format"), "{garbage}");
    let unwritable = message(Device::Pcap { rx: None, tx: Some("/no/such/dir.pcap".into()) });
    assert!(unwritable.contains("/no/such/dir.pcap"), "{unwritable}");
    let small = Mempool::create("small", 100, 64, 0).unwrap();
    let error = open(Device::Null { receive: Some(65) }, &small).err().unwrap().to_string();
    assert_eq!(error, "port p0: frames of MTU 65 do not fit, 64 is the maximum with these packet buffers");
}
