// Two processes pass vectors of descriptors to each other, and sleep in between. Compares what wakes them: an
// eventfd or a futex beside a ring in shared memory, or SK_MSG, which carries the descriptors as well.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/futex.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 256, TURNS = 20000 };

struct descriptor {
    unsigned receiver, offset;
    unsigned long rest;
};

// One direction. A side that finds nothing writes `asleep`, looks once more, and waits.
struct ring {
    _Alignas(128) atomic_uint tail;
    _Alignas(128) atomic_uint head;
    _Alignas(128) atomic_uint asleep;
    _Alignas(128) struct descriptor slots[SLOTS];
};

static struct ring *rings;
static int bells[2], sockets[2];
static enum { EVENTFD, FUTEX, SK_MSG, KINDS } kind;
static const char *const names[] = { "ring and eventfd", "ring and futex", "SK_MSG with filter map" };

static void check(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static void futex(atomic_uint *word, int operation, unsigned value)
{
    syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

static void give(int to, int n)
{
    struct descriptor all[SLOTS];
    struct ring *ring = &rings[to];

    for (int i = 0; i < n; i++) {
        struct descriptor one = { .receiver = to, .offset = i };
        if (kind == SK_MSG)
            all[i] = one;
        else
            ring->slots[(ring->tail + i) % SLOTS] = one;
    }
    if (kind == SK_MSG) {
        check(send(sockets[1 - to], all, n * sizeof *all, 0) == (ssize_t)(n * sizeof *all), "send");
        return;
    }
    atomic_store_explicit(&ring->tail, ring->tail + n, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load(&ring->asleep) && atomic_exchange(&ring->asleep, 0)) {
        unsigned long one = 1;
        if (kind == EVENTFD)
            check(write(bells[to], &one, 8) == 8, "write");
        else
            futex(&ring->asleep, FUTEX_WAKE, 1);
    }
}

static void take(int me, int n)
{
    struct ring *ring = &rings[me];
    struct descriptor all[SLOTS];
    size_t bytes = 0;
    unsigned long count;

    // Half a descriptor at the end of a `recv` is kept.
    while (kind == SK_MSG && bytes < n * sizeof *all) {
        ssize_t got = recv(sockets[me], (char *)all + bytes, sizeof all - bytes, 0);
        check(got > 0, "recv");
        bytes += got;
    }
    while (kind != SK_MSG && n > 0) {
        unsigned ready = atomic_load_explicit(&ring->tail, memory_order_acquire) - ring->head;
        if (ready == 0) {
            struct pollfd bell = { .fd = bells[me], .events = POLLIN };
            atomic_exchange(&ring->asleep, 1);
            atomic_thread_fence(memory_order_seq_cst);
            if (atomic_load(&ring->tail) == ring->head) {
                if (kind == FUTEX) {
                    futex(&ring->asleep, FUTEX_WAIT, 1);
                } else {
                    check(poll(&bell, 1, -1) == 1, "poll");
                    check(read(bells[me], &count, 8) == 8, "read");
                }
            }
            atomic_store(&ring->asleep, 0);
            continue;
        }
        for (unsigned i = 0; i < ready; i++)
            all[i] = ring->slots[(ring->head + i) % SLOTS];
        atomic_store_explicit(&ring->head, ring->head + ready, memory_order_release);
        n -= ready;
    }
}

static void pin(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static double cpu(void)
{
    struct rusage self, children;
    double sum = 0;
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    for (int i = 0; i < 2; i++) {
        struct rusage *r = i ? &children : &self;
        sum += (r->ru_utime.tv_sec + r->ru_stime.tv_sec) * 1e6 + r->ru_utime.tv_usec + r->ru_stime.tv_usec;
    }
    return sum;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(int n, int processors)
{
    static double times[TURNS];
    double before, used;
    pid_t child;

    memset(rings, 0, 2 * sizeof *rings);
    for (int i = 0; i < 2; i++)
        bells[i] = eventfd(0, 0);
    before = cpu();
    child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        pin(processors - 1);
        for (int i = 0; i < TURNS; i++) {
            take(1, n);
            give(0, n);
        }
        _exit(0);
    }
    pin(0);
    for (int i = 0; i < TURNS; i++) {
        double begin = now();
        give(1, n);
        take(0, n);
        times[i] = (now() - begin) / 2;
    }
    waitpid(child, NULL, 0);
    used = cpu() - before;
    qsort(times, TURNS, sizeof *times, compare);
    printf("%-24s %d processor%s %3d descriptors: %6.2f us a hop (median), %6.2f (10 %%), %6.2f us of CPU a hop\n",
           names[kind], processors, processors > 1 ? "s" : " ", n, times[TURNS / 2], times[TURNS / 10],
           used / TURNS / 2);
    fflush(stdout);
    close(bells[0]);
    close(bells[1]);
}

static void connect_sockets(const char *object)
{
    struct bpf_object *program = bpf_object__open(object);
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

    check(program && !bpf_object__load(program), "bpf");
    int map = bpf_object__find_map_fd_by_name(program, "sockets");
    int filter = bpf_object__find_map_fd_by_name(program, "filter");
    int redirect = bpf_program__fd(bpf_object__find_program_by_name(program, "redirect"));
    check(!bpf_prog_attach(redirect, map, BPF_SK_MSG_VERDICT, 0), "attach");
    check(!bind(listener, (void *)&at, sizeof at) && !listen(listener, 2), "listen");
    getsockname(listener, (void *)&at, &length);
    for (unsigned i = 0; i < 2; i++) {
        struct sockaddr_in own;
        unsigned long none = 0;
        sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
        check(!connect(sockets[i], (void *)&at, sizeof at), "connect");
        check(accept(listener, NULL, NULL) >= 0, "accept");
        setsockopt(sockets[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        getsockname(sockets[i], (void *)&own, &length);
        unsigned pair[2] = { ntohs(own.sin_port), 1 - i };
        check(!bpf_map_update_elem(map, &i, &sockets[i], 0), "sockmap");
        check(!bpf_map_update_elem(filter, pair, &none, 0), "filter");
    }
}

int main(int argc, char **argv)
{
    rings = mmap(NULL, 2 * sizeof *rings, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(rings != MAP_FAILED, "mmap");
    if (argc > 1)
        connect_sockets(argv[1]);
    for (kind = 0; kind < (argc > 1 ? KINDS : SK_MSG); kind++)
        for (int processors = 1; processors <= 2; processors++)
            for (int n = 1; n <= 32; n *= 32)
                measure(n, processors);
    return 0;
}
