"""Raw frames on an interface, without the kernel's protocols."""

import socket
import struct
import time

from . import wait

ETH_P_ALL = 0x0003
SOL_PACKET = 263
PACKET_AUXDATA = 8
PACKET_VNET_HDR = 15
PACKET_IGNORE_OUTGOING = 23
TP_STATUS_VLAN_VALID = 1 << 4
TP_STATUS_VLAN_TPID_VALID = 1 << 6
SO_RCVBUFFORCE = 33
BUFFER = 64 << 20

# struct tpacket_auxdata: status, length, captured length, mac offset, net offset, VLAN tag, VLAN type
AUXDATA = struct.Struct("=IIIHHHH")


# Bytes of struct virtio_net_hdr, with which a large frame comes and goes.
VNET_HEADER = 10


class LargeFrame(bytes):
    """A frame with its virtio-net header: it may have the payload of several segments, and no checksum."""

    header: bytes


class PacketPort:
    """An AF_PACKET socket on one interface that sees arriving frames only. `option`: of SOL_PACKET, switched on."""

    def __init__(self, namespace, interface, option):
        with namespace.entered():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self.socket.setsockopt(SOL_PACKET, option, 1)
            self.socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
            self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
            self.socket.bind((interface, ETH_P_ALL))
        self.socket.setblocking(False)

    def fileno(self):
        return self.socket.fileno()

    def close(self):
        self.socket.close()


class LargePort(PacketPort):
    """A port that receives and sends frames as segmentation offload leaves them."""

    def __init__(self, namespace, interface):
        super().__init__(namespace, interface, PACKET_VNET_HDR)

    def send(self, frame):
        wait.until(lambda: self._try_to_send(frame), "room in the socket's buffer")

    def _try_to_send(self, frame):
        try:
            return self.socket.send(frame.header + frame)
        except BlockingIOError:
            return 0

    def receive_one(self):
        try:
            received = self.socket.recv(VNET_HEADER + 70_000)
        except BlockingIOError:
            return None
        frame = LargeFrame(received[VNET_HEADER:])
        frame.header = received[:VNET_HEADER]
        return frame


class RawPort(PacketPort):
    """A port for frames as they cross the wire.

    The kernel takes the outer VLAN tag out of a received frame and hands it over beside it; `receive` puts
    it back, so that what is compared is what crossed the wire.
    """

    def __init__(self, namespace, interface):
        super().__init__(namespace, interface, PACKET_AUXDATA)

    def send(self, frame):
        """Sends a frame (bytes or a scapy packet), waiting for room in the socket's buffer."""
        frame = bytes(frame)
        while True:
            try:
                self.socket.send(frame)
                return
            except BlockingIOError:
                time.sleep(0)

    def receive_one(self):
        """The next received frame as bytes, or None."""
        try:
            frame, ancillary, _, _ = self.socket.recvmsg(70_000, socket.CMSG_SPACE(AUXDATA.size))
        except BlockingIOError:
            return None
        for level, kind, data in ancillary:
            if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                status, _, _, _, _, tag, tag_type = AUXDATA.unpack(data[: AUXDATA.size])
                if status & TP_STATUS_VLAN_VALID:
                    if not status & TP_STATUS_VLAN_TPID_VALID:
                        tag_type = 0x8100
                    frame = frame[:12] + struct.pack("!HH", tag_type, tag) + frame[12:]
        return frame

    def drain(self):
        """Discards all received frames."""
        while self.receive_one() is not None:
            pass

    def receive_until(self, last, patience=wait.PATIENCE):
        """Collects frames up to, and without, the first one for which `last(frame)` holds."""
        frames = []
        deadline = time.monotonic() + patience
        while True:
            frame = self.receive_one()
            if frame is not None:
                if last(frame):
                    return frames
                frames.append(frame)
            elif not wait.readable([self], deadline - time.monotonic()):
                shown = "".join(f"\n  {frame.hex()}" for frame in frames[:10])
                raise wait.Late(f"waited {patience:g} s for a frame; {len(frames)} others came{shown}")
