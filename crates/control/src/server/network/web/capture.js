// Frames of a capture file (pcap, pcapng), read in the browser, and smaller captures of some of them.

const ETHERNET = 1;
const MOST_BYTES = 64 << 20;
/** Bytes of a smaller capture: readers may not send more. */
const MOST_SENT = 60 << 10;

/**
 * A capture that ends with frame `last` of a capture, with as many frames before it as fit: its bytes, and the number
 * of frames. `null`: the frame alone is too long.
 */
export function part({ heads, frames }, last) {
  let room = MOST_SENT - heads.reduce((sum, head) => sum + head.bytes.length, 0), first = last + 1;
  while (first > 0 && frames[first - 1].block.length <= room) {
    first -= 1;
    room -= frames[first].block.length;
  }
  if (first > last) return null;
  const blocks = [];
  for (let at = first; at <= last; at += 1) {
    blocks.push(...heads.filter((head) => at === first ? head.before <= at : head.before === at).map((head) => head.bytes), frames[at].block);
  }
  return { body: new Blob(blocks), count: last - first + 1 };
}

/**
 * The Ethernet frames of a file, each with its block, and the other blocks, each with the number of frames before it.
 * Throws an Error with a sentence if it is no capture.
 */
export async function readCapture(file) {
  if (file.size > MOST_BYTES) throw new Error(`${file.name} is larger than ${MOST_BYTES >> 20} MiB`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  const view = new DataView(bytes.buffer);
  const magic = bytes.length >= 24 ? view.getUint32(0) : 0;
  const read = { 0xd4c3b2a1: pcap, 0x4d3cb2a1: pcap, 0xa1b2c3d4: pcap, 0xa1b23c4d: pcap, 0x0a0d0d0a: pcapng }[magic];
  if (!read) throw new Error(`${file.name} is no capture: pcap and pcapng are known`);
  // Numbers of pcap are little endian if its magic number is.
  const capture = read(bytes, view, magic === 0xd4c3b2a1 || magic === 0x4d3cb2a1);
  if (capture.frames.length === 0) throw new Error(`${file.name} has no Ethernet frame`);
  return capture;
}

/** draft-ietf-opsawg-pcap, sections 4 and 5. */
function pcap(bytes, view, little) {
  const frames = [], heads = [{ before: 0, bytes: bytes.subarray(0, 24) }];
  if ((view.getUint32(20, little) & 0xffff) !== ETHERNET) return { heads, frames };
  for (let at = 24; at + 16 <= bytes.length; ) {
    const length = view.getUint32(at + 8, little);
    if (at + 16 + length > bytes.length) break;
    frames.push({ data: bytes.subarray(at + 16, at + 16 + length), block: bytes.subarray(at, at + 16 + length) });
    at += 16 + length;
  }
  return { heads, frames };
}

/** draft-ietf-opsawg-pcapng, section 4. */
function pcapng(bytes, view) {
  const frames = [], heads = [];
  let little = true, interfaces = [];
  for (let at = 0; at + 12 <= bytes.length; ) {
    const kind = view.getUint32(at, little);
    if (kind === 0x0a0d0d0a) {
      little = view.getUint32(at + 8, true) === 0x1a2b3c4d;
      interfaces = [];
    }
    const length = view.getUint32(at + 4, little);
    if (length < 12 || at + length > bytes.length) break;
    const add = (link, start, size) => {
      if (link !== ETHERNET || start + size > at + length) return;
      frames.push({ data: bytes.subarray(start, start + size), block: bytes.subarray(at, at + length) });
    };
    if (kind === 0x0a0d0d0a || kind === 1) heads.push({ before: frames.length, bytes: bytes.subarray(at, at + length) });
    if (kind === 1 && length >= 20) interfaces.push([view.getUint16(at + 8, little), view.getUint32(at + 12, little)]);
    if (kind === 6 && length >= 32) add(interfaces[view.getUint32(at + 8, little)]?.[0], at + 28, view.getUint32(at + 20, little));
    if (kind === 3 && length >= 16 && interfaces[0]) {
      const [link, limit] = interfaces[0];
      add(link, at + 12, Math.min(view.getUint32(at + 8, little), limit || length - 16, length - 16));
    }
    at += length;
  }
  return { heads, frames };
}
