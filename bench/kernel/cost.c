// What the kernel takes for a packet: runs an XDP program over frames in memory by the kernel's own test-run
// facility and prints nanoseconds a packet.
//
//   cost PROGRAM.o [interface=NAME] [mac=AA:…] [flows=N] [rules=N] [tracked=1] [live=1]
//   cost PROGRAM.wire.o attach=NAME,NAME [rules=N] [track=ADDRESS:PORT[,ADDRESS:PORT]]
//
// Without `live`, the program runs over one buffer again and again, and the kernel says how long that took:
// the cost of the program alone. With `live`, frames become real packets of the interface and go where the
// program says: into the network stack (XDP_PASS) or out of another interface (a redirect); the time is that
// of the whole run, on one core, which does everything up to the last interface's driver. `rules` random
// five-tuples that match none of the frames are put into the map `rules`, `tracked` has the sources of all
// flows put into the map of that name.
//
// With `attach`, the program is put onto these interfaces, "ready" is printed, and it stays until the
// standard input ends. `track` are sources and destination ports of TCP for the map `tracked`.
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef BPF_F_TEST_XDP_LIVE_FRAMES
#define BPF_F_TEST_XDP_LIVE_FRAMES (1U << 1)
#endif

enum { FRAME = 64, BATCH = 64, DEVICES = 64, RUNS = 9, TRY = 4096, MOST = 1 << 22 };
// Nanoseconds of a run that is long enough.
static const double LONG = 2e7;

struct five {
  uint32_t saddr, daddr;
  uint16_t sport, dport;
  uint8_t proto, zero[3];
};

struct three {
  uint32_t saddr;
  uint16_t dport;
  uint8_t proto, zero;
};

// The datagram that the programs in this directory write their flows into.
static const unsigned char DATAGRAM[] = {
    2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0,                                 // Ethernet
    0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 1, 0, 10, 2, 0, 2,    // IPv4
    0x10, 0, 0x20, 0, 0, 30, 0, 0,                                            // UDP, to port 8192
};

static const char *option(int argc, char **argv, const char *name) {
  size_t length = strlen(name);
  for (int i = 2; i < argc; i++)
    if (!strncmp(argv[i], name, length) && argv[i][length] == '=')
      return argv[i] + length + 1;
  return NULL;
}

static long number(int argc, char **argv, const char *name, long otherwise) {
  const char *text = option(argc, argv, name);
  return text ? atol(text) : otherwise;
}

static void fail(const char *what, int error) {
  fprintf(stderr, "cost: %s: %s\n", what, strerror(error < 0 ? -error : error));
  exit(1);
}

static uint64_t state = 88172645463325252u;
static uint32_t draw(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state >> 16;
}

// What frame.h calls settings.
static void set(struct bpf_object *object, uint32_t flows_mask, const unsigned char mac[6]) {
  struct bpf_map *map = bpf_object__find_map_by_name(object, ".data.settings");
  size_t size = 0;
  unsigned char *settings = map ? (unsigned char *)bpf_map__initial_value(map, &size) : NULL;
  if (size < 10)
    return;
  memcpy(settings, &flows_mask, 4);
  memcpy(settings + 4, mac, 6);
}

static int map_fd(struct bpf_object *object, const char *name) {
  struct bpf_map *map = bpf_object__find_map_by_name(object, name);
  return map ? bpf_map__fd(map) : -1;
}

static void fill(struct bpf_object *object, long rules, long tracked, uint32_t flows_mask) {
  uint64_t value[2] = {0, 0};
  int fd = map_fd(object, "rules");
  for (long n = 0; n < rules; n++) {
    // Sources outside of 10.0.0.0/8, where the frames come from.
    struct five five = {htonl(0x0b000000 + (draw() & 0x00ffffff)), draw(), draw(), draw(), draw() & 1 ? 6 : 17, {0}};
    if (fd < 0 || bpf_map_update_elem(fd, &five, value, BPF_ANY))
      fail("a rule", fd < 0 ? ENOENT : errno);
  }
  fd = map_fd(object, "tracked");
  for (uint32_t flow = 0; tracked && flow <= flows_mask; flow += 16) {
    struct three three = {htonl(0x0a010100 + (flow >> 4)), htons(8192), 17, 0};
    if (fd < 0 || bpf_map_update_elem(fd, &three, value, BPF_ANY))
      fail("a tracked source", fd < 0 ? ENOENT : errno);
  }
  fd = map_fd(object, "devices");
  for (uint32_t device = 1; fd >= 0 && device < DEVICES; device++) {
    char name[IF_NAMESIZE];
    if (if_indextoname(device, name))
      bpf_map_update_elem(fd, &device, &device, BPF_ANY);
  }
}

static void track(struct bpf_object *object, const char *list) {
  char address[INET_ADDRSTRLEN];
  unsigned short port;
  uint64_t value[2] = {0, 0};
  int fd = map_fd(object, "tracked");
  for (int length; *list; list += length + (list[length] == ',')) {
    length = strcspn(list, ",");
    struct three three = {.proto = IPPROTO_TCP};
    if (sscanf(list, "%15[0-9.]:%hu", address, &port) != 2 || inet_pton(AF_INET, address, &three.saddr) != 1)
      fail(list, EINVAL);
    three.dport = htons(port);
    if (fd < 0 || bpf_map_update_elem(fd, &three, value, BPF_ANY))
      fail("a tracked source", fd < 0 ? ENOENT : errno);
  }
}

// Nanoseconds of this thread that a run over so many packets takes: the packets go all their way on it.
static double run(int fd, struct xdp_md *md, long packets, int live) {
  unsigned char frame[FRAME] = {0};
  memcpy(frame, DATAGRAM, sizeof(DATAGRAM));
  LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame, .data_size_in = FRAME, .repeat = packets);
  if (live) {
    opts.ctx_in = md, opts.ctx_size_in = sizeof(*md);
    opts.flags = BPF_F_TEST_XDP_LIVE_FRAMES, opts.batch_size = BATCH;
  }
  struct timespec a, b;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
  if (bpf_prog_test_run_opts(fd, &opts))
    fail("the test run", errno);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
  return (b.tv_sec - a.tv_sec) * 1e9 + b.tv_nsec - a.tv_nsec;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The median of many runs: others use the machine, too.
static double median(int fd, struct xdp_md *md, long packets, int live) {
  double runs[RUNS];
  for (int n = 0; n < RUNS; n++)
    runs[n] = run(fd, md, packets, live);
  qsort(runs, RUNS, sizeof(*runs), compare);
  return runs[RUNS / 2];
}

static double shortest(int fd, struct xdp_md *md, long packets, int live) {
  double least = run(fd, md, packets, live);
  for (int n = 0; n < 2; n++) {
    double other = run(fd, md, packets, live);
    least = other < least ? other : least;
  }
  return least;
}

// Nanoseconds a packet: of runs that are long enough, less what every run takes whatever its length.
static double cost(int fd, struct xdp_md *md, long flows, int live) {
  // Once through all flows first: caches, maps and neighbours are as they are under way.
  run(fd, md, flows, live);
  long packets = LONG / (shortest(fd, md, TRY, live) / TRY);
  packets = packets < TRY ? TRY : packets > MOST ? MOST : packets;
  return (median(fd, md, packets + BATCH, live) - median(fd, md, BATCH, live)) / packets;
}

static void attach(struct bpf_program *program, const char *names) {
  char name[IF_NAMESIZE];
  for (int length; *names; names += length + (names[length] == ',')) {
    length = strcspn(names, ",");
    snprintf(name, sizeof(name), "%.*s", length, names);
    if (!if_nametoindex(name) || !bpf_program__attach_xdp(program, if_nametoindex(name)))
      fail(name, errno);
  }
  puts("ready");
  fflush(stdout);
  while (getchar() != EOF)
    ;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fputs("usage: cost PROGRAM.o [interface=NAME] [mac=AA:…] [flows=N] [rules=N] [tracked=1] [live=1] [attach=NAME,NAME] [track=ADDRESS:PORT,…]\n", stderr);
    return 2;
  }
  unsigned char mac[6] = {2, 0, 0, 0, 0, 1};
  const char *text = option(argc, argv, "mac");
  if (text && sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) != 6)
    fail(text, EINVAL);
  uint32_t flows_mask = number(argc, argv, "flows", 1024) - 1;
  const char *interface = option(argc, argv, "interface");
  struct xdp_md md = {.data_end = FRAME, .ingress_ifindex = interface ? if_nametoindex(interface) : 0};
  if (interface && !md.ingress_ifindex)
    fail(interface, errno);
  struct bpf_object *object = bpf_object__open(argv[1]);
  if (!object)
    fail(argv[1], errno);
  set(object, flows_mask, mac);
  int error = bpf_object__load(object);
  if (error)
    fail(argv[1], error);
  fill(object, number(argc, argv, "rules", 0), number(argc, argv, "tracked", 0), flows_mask);
  int fd = bpf_program__fd(bpf_object__next_program(object, NULL)), live = number(argc, argv, "live", 0);
  if ((text = option(argc, argv, "track")))
    track(object, text);
  const char *names = option(argc, argv, "attach");
  if (names)
    attach(bpf_object__next_program(object, NULL), names);
  else
    printf("%.2f\n", cost(fd, &md, flows_mask + 1, live));
  bpf_object__close(object);
  return 0;
}
