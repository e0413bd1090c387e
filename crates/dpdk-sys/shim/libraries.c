/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared libraries that drivers need, loaded when they are needed.
 *
 * Most processes of the program are clients that end after some milliseconds. They call none of these
 * libraries. If the program were linked with them, the dynamic loader would load and relocate them, and the
 * libraries that they need (libpcap alone: D-Bus, systemd, libgcrypt and five more), before `main`.
 *
 * So the functions are stubs here that jump by a pointer. Before the libraries are loaded, the pointer leads
 * to code that loads them all, sets the pointers, and continues with the call. EAL's start loads them before
 * that, so that no call of a driver waits for a file.
 *
 * The stubs are code of x86-64. On other processors, the program is linked with the libraries.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __x86_64__

/* The functions that DPDK's drivers, the shim and the crate call, by library. xsk.c has its own ones. */
#define FUNCTIONS(F)                                                                                    \
	F(XDP, libxdp_set_print)                                                                        \
	F(XDP, xsk_socket__fd)                                                                          \
	F(BPF, bpf_link_create)                                                                         \
	F(BPF, bpf_link_update)                                                                         \
	F(BPF, bpf_map_create)                                                                          \
	F(BPF, bpf_map_delete_elem)                                                                     \
	F(BPF, bpf_map_update_elem)                                                                     \
	F(BPF, bpf_map__fd)                                                                             \
	F(BPF, bpf_map__reuse_fd)                                                                       \
	F(BPF, bpf_object__close)                                                                       \
	F(BPF, bpf_object__find_map_by_name)                                                            \
	F(BPF, bpf_object__find_program_by_name)                                                        \
	F(BPF, bpf_object__load)                                                                        \
	F(BPF, bpf_object__next_program)                                                                \
	F(BPF, bpf_object__open_file)                                                                   \
	F(BPF, bpf_object__open_mem)                                                                    \
	F(BPF, bpf_prog_test_run_opts)                                                                  \
	F(BPF, bpf_program__fd)                                                                         \
	F(BPF, bpf_xdp_attach)                                                                          \
	F(BPF, bpf_xdp_query_id)                                                                        \
	F(BPF, libbpf_get_error)                                                                        \
	F(BPF, libbpf_set_print)                                                                        \
	F(PCAP, pcap_close)                                                                             \
	F(PCAP, pcap_dump)                                                                              \
	F(PCAP, pcap_dump_close)                                                                        \
	F(PCAP, pcap_dump_flush)                                                                        \
	F(PCAP, pcap_dump_open)                                                                         \
	F(PCAP, pcap_geterr)                                                                            \
	F(PCAP, pcap_next)                                                                              \
	F(PCAP, pcap_next_ex)                                                                           \
	F(PCAP, pcap_open_dead_with_tstamp_precision)                                                   \
	F(PCAP, pcap_open_live)                                                                         \
	F(PCAP, pcap_open_offline)                                                                      \
	F(PCAP, pcap_sendpacket)                                                                        \
	F(PCAP, pcap_setdirection)                                                                      \
	F(PCAP, pcap_setnonblock)                                                                       \
	F(PCAP, pcap_stats)                                                                             \
	F(NUMA, get_mempolicy)                                                                          \
	F(NUMA, numa_allocate_nodemask)                                                                 \
	F(NUMA, numa_available)                                                                         \
	F(NUMA, numa_bitmask_free)                                                                      \
	F(NUMA, numa_set_localalloc)                                                                    \
	F(NUMA, numa_set_preferred)                                                                     \
	F(NUMA, set_mempolicy)                                                                          \
	F(BSD, strlcat)                                                                                 \
	F(BSD, strlcpy)

enum library { XDP, BPF, PCAP, NUMA, BSD, LIBRARIES };

static const char *const names[LIBRARIES] = {
	[XDP] = "libxdp.so.1",
	[BPF] = "libbpf.so.1",
	[PCAP] = "libpcap.so.0.8",
	[NUMA] = "libnuma.so.1",
	[BSD] = "libbsd.so.0",
};
static void *handles[LIBRARIES];

/* A stub works for any signature: it changes r11 alone, which no call preserves and no argument is in. */
#define STUB(library, name)                                                                             \
	__asm__(".text\n"                                                                               \
		".globl " #name "\n"                                                                    \
		".type " #name ", @function\n" #name ":\n"                                              \
		"	jmp	*mmb_target_" #name "(%rip)\n"                                          \
		".size " #name ", . - " #name "\n"                                                      \
		"0:	lea	mmb_target_" #name "(%rip), %r11\n"                                     \
		"	jmp	mmb_libraries_enter\n"                                                  \
		".data\n"                                                                               \
		".balign 8\n"                                                                           \
		".hidden mmb_target_" #name "\n"                                                        \
		".globl mmb_target_" #name "\n"                                                         \
		"mmb_target_" #name ":	.quad 0b\n"                                                     \
		".text\n");                                                                             \
	extern void *mmb_target_##name __attribute__((visibility("hidden")));
FUNCTIONS(STUB)

/* The first call: loads the libraries, then continues with the function whose pointer r11 has the address of.
 * None of the functions has arguments in vector registers. rax counts those of variadic ones. */
__asm__(".text\n"
	".local mmb_libraries_enter\n"
	".type mmb_libraries_enter, @function\n"
	"mmb_libraries_enter:\n"
	"	push	%rdi\n"
	"	push	%rsi\n"
	"	push	%rdx\n"
	"	push	%rcx\n"
	"	push	%r8\n"
	"	push	%r9\n"
	"	push	%r11\n"
	"	call	mmb_libraries_load\n"
	"	pop	%r11\n"
	"	pop	%r9\n"
	"	pop	%r8\n"
	"	pop	%rcx\n"
	"	pop	%rdx\n"
	"	pop	%rsi\n"
	"	pop	%rdi\n"
	"	xor	%eax, %eax\n"
	"	jmp	*(%r11)\n"
	".size mmb_libraries_enter, . - mmb_libraries_enter\n");

static const struct {
	enum library library;
	const char *name;
	void **target;
} functions[] = {
#define ENTRY(library, name) { library, #name, &mmb_target_##name },
	FUNCTIONS(ENTRY)
};

/* Ends the process as the dynamic loader does if a library is missing. */
static void *found(void *pointer)
{
	if (pointer == NULL) {
		fprintf(stderr, "error while loading shared libraries: %s\n", dlerror());
		exit(127);
	}
	return pointer;
}

static void load(void)
{
	size_t i;

	for (i = 0; i < LIBRARIES; i++)
		handles[i] = found(dlopen(names[i], RTLD_NOW | RTLD_LOCAL));
	/* Another thread may be in a stub. */
	for (i = 0; i < RTE_DIM(functions); i++)
		__atomic_store_n(functions[i].target, found(dlsym(handles[functions[i].library], functions[i].name)),
				 __ATOMIC_RELEASE);
}

void mmb_libraries_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
}

void *mmb_libraries_xdp(const char *name)
{
	mmb_libraries_load();
	return found(dlsym(handles[XDP], name));
}

#else

void mmb_libraries_load(void)
{
}

void *mmb_libraries_xdp(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

#endif
