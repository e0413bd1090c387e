//! Runs the tc programs in the kernel (as root) and compares them with the XDP program over the same table.

use std::os::fd::FromRawFd;

use proptest::prelude::*;

use super::super::super::fast_flow::FastNumbers;
use super::super::super::maps::call;
use super::super::super::program::Steering;
use super::super::super::tc::TcProgram;
use super::*;
use crate::port::TwinTraffic;

/// Words of a `struct __sk_buff` (linux/bpf.h), and the indexes of some of them.
const WORDS: usize = 48;
const MARK: usize = 2;
const GSO_SEGS: usize = 41;
const GSO_SIZE: usize = 44;
// linux/pkt_cls.h
const REDIRECT: i32 = 7;
const NEXT: i32 = -1;
const SHOT: i32 = 2;

/// Buffer metadata that a run starts with.
#[derive(Clone, Copy, Default)]
struct Meta {
    mark: u32,
    /// Segments and their size; 0: it is a frame.
    segments: (u32, u32),
}

/// The result of a run: the verdict, the mark and the frame.
type Ran = (i32, u32, Vec<u8>);

/// The programs on `mmb0`, over the table of a rig, whose port number they have.
pub(super) struct TcRig {
    pub(super) rig: Rig,
    tc: TcProgram,
    _socket: OwnedFd,
}

pub(super) fn tc_rig() -> Option<TcRig> {
    let rig = rig()?;
    // The programs hand a decision from one to the next on the same CPU.
    // SAFETY: plain system calls with a live set; the descriptor is new and owned.
    let socket = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    };
    let tc = TcProgram::attach(index("mmb0"), socket.as_raw_fd(), rig.port.fast().unwrap().unwrap()).unwrap();
    tc.engage(true);
    let it = TcRig { rig, tc, _socket: socket };
    assert_eq!(it.run(c"accept", &packet(6).build(), Meta::default()).0, 0, "not at first");
    Some(it)
}

impl TcRig {
    fn run(&self, program: &CStr, frame: &[u8], meta: Meta) -> Ran {
        let (mut out, mut context, mut after) = (vec![0; frame.len()], [0u32; WORDS], [0u32; WORDS]);
        context[MARK] = meta.mark;
        (context[GSO_SEGS], context[GSO_SIZE]) = meta.segments;
        let mut options = sys::bpf_test_run_opts {
            sz: std::mem::offset_of!(sys::bpf_test_run_opts, flags),
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            data_out: out.as_mut_ptr().cast(),
            data_size_out: out.len() as u32,
            ctx_in: context.as_ptr().cast(),
            ctx_size_in: size_of_val(&context) as u32,
            ctx_out: after.as_mut_ptr().cast(),
            ctx_size_out: size_of_val(&after) as u32,
            ..Default::default()
        };
        let fd = self.tc.object.program(program).unwrap();
        // SAFETY: live options, which carry their size and those of frames and contexts.
        call(|| unsafe { sys::bpf_prog_test_run_opts(fd, &raw mut options) }).unwrap();
        assert_eq!(options.data_size_out as usize, frame.len());
        (options.retval.cast_signed(), after[MARK], out)
    }

    /// The forwarded frame; None: it went to the engine unchanged.
    pub(super) fn send(&self, frame: &[u8], segments: (u32, u32)) -> Option<Vec<u8>> {
        let (verdict, mark, out) = self.run(c"ingress", frame, Meta { mark: 0, segments });
        assert_eq!(verdict, REDIRECT);
        if mark == 0 {
            return Some(out);
        }
        assert_eq!(mark, sys::STEER_TC_MARK);
        assert_eq!(out, frame, "a frame that is not forwarded is unchanged");
        None
    }
}

/// A packet is accepted by the socket and passes to the stack on its second way, and only then, unless the
/// programs are not engaged.
#[test]
fn the_engine_gets_each_packet_once() {
    let Some(it) = tc_rig() else { return };
    let frame = packet(17).build();
    let both = |mark| {
        let meta = Meta { mark, ..Meta::default() };
        let accepted = it.run(c"accept", &frame, meta).0 != 0;
        let (verdict, mark, _) = it.run(c"ingress", &frame, meta);
        (accepted, verdict, mark)
    };
    let mark = sys::STEER_TC_MARK;
    assert_eq!(both(0), (false, REDIRECT, mark), "first way");
    assert_eq!(both(mark), (true, NEXT, 0), "second way");
    it.tc.engage(false);
    assert_eq!(both(0), (true, NEXT, 0), "as without the programs");
    assert_eq!(both(mark), (true, NEXT, 0), "one that was under way");
    // What the socket has refused is not given to the stack, although the programs are not engaged any more.
    it.tc.engage(true);
    assert_eq!(it.run(c"accept", &frame, Meta::default()).0, 0);
    it.tc.engage(false);
    assert_eq!(it.run(c"ingress", &frame, Meta::default()).0, REDIRECT);
}

/// What both programs did to a frame and counted for it.
type Treated = (Option<Vec<u8>>, u64, u64, u8, Option<u32>);

/// The tc program forwards the same packets as the XDP program, and writes the same bytes. Transport
/// checksums are complete: an unfinished one is known as such at tc, and stays unfinished.
#[test]
fn tc_and_xdp_treat_frames_alike() {
    let Some(it) = tc_rig() else { return };
    let flip = prop_oneof![3 => 0usize..80, 1 => prop_oneof![Just(47usize), Just(67)]];
    let changes = prop_oneof![
        3 => prop::collection::vec((flip, any::<u8>()), 0..3).prop_map(|flips| (flips, usize::MAX)),
        // At tc, the kernel runs programs on frames with a whole network header only.
        1 => (54usize..120).prop_map(|len| (Vec::new(), len)),
    ];
    let shapes = vec![FastGranularity::Flow, FastGranularity::Pair, FastGranularity::Destination];
    let options = any::<[bool; 6]>();
    let numbers = (any::<u32>(), any::<u32>(), any::<u32>());
    let cases = (sent(), changes, options, numbers, prop::sample::select(shapes));
    let hits = std::cell::Cell::new(0);
    let result = runner(20_000).run(&cases, |((sent, ends), (flips, len), options, numbers, shape)| {
        let [fix, control, translate, hop, track, add] = options;
        let sent = Sent { partial: false, ..sent };
        let flow = it.rig.key(sent.proto, sent.ends[0], sent.ends[1]);
        let (key, is_flow) = match shape {
            FastGranularity::Flow => (flow, true),
            FastGranularity::Pair => (flow.without_ports(), false),
            FastGranularity::Destination => (FastKey::for_destination(flow.port, flow.destination), false),
        };
        let tracks = is_flow && track && !control;
        let action = FastAction {
            decrement_ttl: hop,
            pass_control: control,
            track_tcp: tracks,
            awaited_ack: (tracks && numbers.2 % 4 == 0).then_some(!numbers.2),
            numbers: (tracks && add).then_some(FastNumbers {
                sequence: numbers.0,
                acknowledgment: numbers.1,
                echo: if numbers.0 % 2 == 0 { numbers.2 } else { 0 },
                window_shift: (numbers.0 % 29) as i8 - 14,
                ..FastNumbers::default()
            }),
            ..if is_flow && translate { it.rig.nat(ends[0], ends[1]) } else { it.rig.wire() }
        };
        let mut frame = sent.build();
        // By chance a checksum looks unfinished to the XDP program.
        let has_checksum =
            sent.proto == 6 || sent.proto == 17 && (sent.ends[0].0.is_ipv6() || sent.noise & 6 != 0);
        prop_assume!(!has_checksum || frame != Sent { partial: true, ..sent.clone() }.build());
        damage(&mut frame, &flips, len, fix);
        it.rig.path.set_generation(NOW, shape);
        let treat = |send: &dyn Fn() -> Option<Vec<u8>>| -> Treated {
            it.rig.path.install(1, NOW, &key, &action).unwrap();
            let sent = send();
            let stats = it.rig.path.flow_stats(1);
            (sent, stats.packets, stats.bytes, stats.ended, stats.ack)
        };
        let at_xdp = treat(&|| it.rig.send(&frame));
        let at_tc = treat(&|| it.send(&frame, (0, 0)));
        hits.set(hits.get() + u32::from(at_tc.0.is_some()));
        prop_assert_eq!(at_xdp, at_tc);
        it.rig.path.remove(&key, 1);
        Ok(())
    });
    result.unwrap();
    assert!(hits.get() > 2000, "{hits:?}");
}

/// A buffer of many segments is forwarded as one if each segment fits, and counted as its segments.
#[test]
fn large_buffers_are_counted_as_their_segments() {
    let Some(it) = tc_rig() else { return };
    let large = Sent { payload: vec![7; 3000], noise: 0, ..packet(6) };
    let key = it.rig.key(6, large.ends[0], large.ends[1]);
    let frame = large.build();
    // Ethernet, IPv4 and TCP headers without options.
    assert_eq!(frame.len(), 54 + 3000);
    for (segments, max_len, is_forwarded) in [(3, 1040, true), (0, 1040, true), (3, 1039, false)] {
        let action = FastAction { max_len, ..it.rig.wire() };
        it.rig.path.install(1, NOW, &key, &action).unwrap();
        assert_eq!(it.send(&frame, (segments, 1000)).is_some(), is_forwarded);
        let stats = it.rig.path.flow_stats(1);
        let expected = if is_forwarded { (3, 3000 + 3 * 54) } else { (0, 0) };
        assert_eq!((stats.packets, stats.bytes), expected);
        assert_eq!(it.send(&frame, (0, 0)), None, "as one frame it is too long");
        it.rig.path.remove(&key, 1);
    }
    // The FIN of a buffer is behind all its segments.
    let action = FastAction { track_tcp: true, pass_fin: true, ..it.rig.wire() };
    it.rig.path.install(1, NOW, &key, &action).unwrap();
    let segment = |flags| {
        let ends =
            (Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp { flags, seq: 9, ack: 5, ..Tcp::new(1000, 80) });
        Frame::new(ends.0, ends.1).payload(vec![7; 3000]).build()
    };
    assert!(it.send(&segment(0x10), (3, 1000)).is_some() && it.send(&segment(0x11), (3, 1000)).is_some());
    assert_eq!(it.rig.path.flow_stats(1).fin_end, 9 + 3000 + 1);
}

/// A routed port forwards frames to its own Ethernet address only.
#[test]
fn frames_to_other_addresses_go_to_the_engine() {
    let Some(mut it) = tc_rig() else { return };
    let sent = packet(17);
    let key = it.rig.key(17, sent.ends[0], sent.ends[1]);
    it.rig.path.install(1, NOW, &key, &it.rig.wire()).unwrap();
    let frame = sent.build();
    let own: [u8; 6] = frame[..6].try_into().unwrap();
    for (steering, is_forwarded) in [(None, true), (Some([9; 6]), false), (Some(own), true)] {
        let steering = steering.map(|mac| Steering { mac, local: Vec::new() });
        it.tc.steer(steering.as_ref());
        assert_eq!(it.send(&frame, (0, 0)).is_some(), is_forwarded, "{steering:?}");
    }
}

/// A routed port that is connected to its twin gives it packets to the machine's addresses, and sends what it
/// sends. Both are counted.
#[test]
fn packets_for_the_machine_go_to_the_twin() {
    let Some(mut it) = tc_rig() else { return };
    let frame = packet(6).build();
    let (own, local): ([u8; 6], IpAddr) = (frame[..6].try_into().unwrap(), packet(6).ends[1].0);
    let tagged = [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
    let steering = |mac, local: &[IpAddr]| Some(Steering { mac, local: local.to_vec() });
    let twin = Some(index("peer0"));
    for (steering, twin, frame, to_twin) in [
        (None, twin, &frame, false),
        (steering(own, &[local]), None, &frame, false),
        (steering(own, &[local]), twin, &frame, true),
        (steering(own, &[local]), twin, &tagged, false),
        (steering(own, &[]), twin, &frame, false),
        (steering([9; 6], &[local]), twin, &frame, false),
    ] {
        it.tc.steer(steering.as_ref());
        it.tc.connect_twin(twin).unwrap();
        let case = format!("{steering:?} {twin:?} {to_twin}");
        assert_eq!(it.send(frame, (0, 0)), to_twin.then(|| frame.clone()), "{case}");
    }
    let bytes = frame.len() as u64;
    let expected = TwinTraffic { packets_to_twin: 1, bytes_to_twin: bytes, ..TwinTraffic::default() };
    assert_eq!(it.tc.twin_traffic(), expected);
    let of_three = Meta { mark: 0, segments: (3, 20) };
    assert_eq!(it.run(c"from_twin", &frame, of_three).0, REDIRECT);
    let expected = TwinTraffic { packets_from_twin: 3, bytes_from_twin: bytes, ..expected };
    assert_eq!(it.tc.twin_traffic(), expected);
}

/// A routed port keeps IP packets to itself from the stack, on their second way. The kernel runs programs as
/// if frames came by the loopback interface, whose Ethernet address is zero.
#[test]
fn the_stack_gets_no_ip_packets_of_a_routed_port() {
    let Some(mut it) = tc_rig() else { return };
    let mut own = packet(17).build();
    own[..6].fill(0);
    let other = packet(17).build();
    let mut arp = own.clone();
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let second = |it: &TcRig, frame: &[u8]| {
        let meta = Meta { mark: sys::STEER_TC_MARK, ..Meta::default() };
        assert_ne!(it.run(c"accept", frame, meta).0, 0, "the engine gets it");
        it.run(c"ingress", frame, meta).0
    };
    assert_eq!(second(&it, &own), NEXT, "a port that is not routed");
    it.tc.steer(Some(&Steering { mac: [0; 6], local: Vec::new() }));
    assert_eq!([&own, &other, &arp].map(|frame| second(&it, frame)), [SHOT, NEXT, NEXT]);
}
