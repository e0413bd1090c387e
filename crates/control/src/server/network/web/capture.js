// Frames of a capture file (pcap, pcapng), read in the browser.

const ETHERNET = 1;
const MOST_BYTES = 64 << 20;

/** The Ethernet frames of a file. Throws an Error with a sentence if it is no capture. */
export async function readCapture(file) {
  if (file.size > MOST_BYTES) throw new Error(`${file.name} is larger than ${MOST_BYTES >> 20} MiB`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  const view = new DataView(bytes.buffer);
  const magic = bytes.length >= 24 ? view.getUint32(0) : 0;
  const read = { 0xd4c3b2a1: pcap, 0x4d3cb2a1: pcap, 0xa1b2c3d4: pcap, 0xa1b23c4d: pcap, 0x0a0d0d0a: pcapng }[magic];
  if (!read) throw new Error(`${file.name} is no capture: pcap and pcapng are known`);
  // Numbers of pcap are little endian if its magic number is.
  const frames = read(bytes, view, magic === 0xd4c3b2a1 || magic === 0x4d3cb2a1);
  if (frames.length === 0) throw new Error(`${file.name} has no Ethernet frame`);
  return frames;
}

/** draft-ietf-opsawg-pcap, sections 4 and 5. */
function pcap(bytes, view, little) {
  const frames = [];
  if ((view.getUint32(20, little) & 0xffff) !== ETHERNET) return frames;
  for (let at = 24; at + 16 <= bytes.length; ) {
    const length = view.getUint32(at + 8, little);
    if (at + 16 + length > bytes.length) break;
    frames.push(bytes.subarray(at + 16, at + 16 + length));
    at += 16 + length;
  }
  return frames;
}

/** draft-ietf-opsawg-pcapng, section 4. */
function pcapng(bytes, view) {
  const frames = [];
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
      if (link === ETHERNET && start + size <= at + length) frames.push(bytes.subarray(start, start + size));
    };
    if (kind === 1 && length >= 20) interfaces.push([view.getUint16(at + 8, little), view.getUint32(at + 12, little)]);
    if (kind === 6 && length >= 32) add(interfaces[view.getUint32(at + 8, little)]?.[0], at + 28, view.getUint32(at + 20, little));
    if (kind === 3 && length >= 16 && interfaces[0]) {
      const [link, limit] = interfaces[0];
      add(link, at + 12, Math.min(view.getUint32(at + 8, little), limit || length - 16, length - 16));
    }
    at += length;
  }
  return frames;
}
