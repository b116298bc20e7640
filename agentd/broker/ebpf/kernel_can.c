/* probe.c - asked one by one, so that a missing thing has a name.
 *
 * capabilities -> memory that may be locked -> each type of program, by one that does nothing ->
 * (the real ones) -> storage of a socket.  The kernel's own words for all of these are "Operation
 * not permitted" and "Invalid argument".
 */
#include "kernel_can.h"
#include "common/err.h"
#include "common/mem.h"
#include "ebpf/redirect.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/capability.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int load(
    enum bpf_prog_type type, enum bpf_attach_type at, const struct bpf_insn *program, size_t n)
{
	LIBBPF_OPTS(bpf_prog_load_opts, o, .expected_attach_type = at);

	return bpf_prog_load(type, "probe", "Dual BSD/GPL", program, n, &o);
}

/* --- what we may --- */

static int check_capabilities(struct err *e)
{
	static const struct {
		int cap;
		const char *name;
		bool implied; /* by CAP_SYS_ADMIN */
	} needed[] = {{CAP_BPF, "CAP_BPF", true}, {CAP_NET_ADMIN, "CAP_NET_ADMIN", false},
	    {CAP_PERFMON, "CAP_PERFMON", true}};
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct have[_LINUX_CAPABILITY_U32S_3] = {{0}};

	syscall(SYS_capget, &header, have);
	bool admin = have[0].effective & 1u << CAP_SYS_ADMIN;
	for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++) {
		bool has = have[CAP_TO_INDEX(needed[i].cap)].effective & CAP_TO_MASK(needed[i].cap);
		if (!has && !(admin && needed[i].implied))
			return err_set(e, EPERM,
			    "%s is missing: eBPF needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON "
			    "(CapabilityBoundingSet= of the unit, capabilities.add of a container)",
			    needed[i].name);
	}
	return 0;
}

/* Before 5.11 maps count against RLIMIT_MEMLOCK; one of the size of all of ours. */
static int check_memory(struct err *e)
{
	enum { VALUE = 4096, MIB = 16 };
	struct rlimit limit = {0};
	auto_close int fd =
	    bpf_map_create(BPF_MAP_TYPE_ARRAY, "probe", sizeof(uint32_t), VALUE, MIB * 256, NULL);

	if (fd >= 0)
		return 0;
	if (errno == ENOSYS)
		return err_set(e, ENOSYS, "the kernel has no bpf(2) (CONFIG_BPF_SYSCALL)");
	if (errno != EPERM)
		return err_sys(e, "an eBPF map of %d MiB", MIB);
	getrlimit(RLIMIT_MEMLOCK, &limit);
	return err_set(e, EPERM,
	    "this kernel counts eBPF maps as locked memory, of which %llu KiB are allowed: "
	    "LimitMEMLOCK=infinity in the unit, CAP_SYS_RESOURCE for a container",
	    (unsigned long long)limit.rlim_cur / 1024);
}

/* --- what the kernel has --- */

static int check_types(struct err *e)
{
	static const struct bpf_insn pass[] = {
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 1},
	    {.code = BPF_JMP | BPF_EXIT}};
	static const struct {
		enum bpf_prog_type type;
		enum bpf_attach_type at;
		const char *where;
	} types[] = {
	    {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_CONNECT,
		"connect (CONFIG_CGROUP_BPF)"},
	    {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_UDP4_RECVMSG, "recvmsg (Linux 5.2)"},
	    {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_GETPEERNAME,
		"getpeername (Linux 5.8)"},
	    {BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET4_POST_BIND, "bind"},
	    {BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_CREATE, "socket"},
	    {BPF_PROG_TYPE_SOCK_OPS, BPF_CGROUP_SOCK_OPS, "a connection's changes of state"},
	    {BPF_PROG_TYPE_CGROUP_SOCKOPT, BPF_CGROUP_GETSOCKOPT, "getsockopt (Linux 5.3)"},
	    {BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_INGRESS, "packets of a cgroup"},
	    {BPF_PROG_TYPE_SK_LOOKUP, BPF_SK_LOOKUP, "the look-up of a listener (Linux 5.9)"},
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		auto_close int fd =
		    load(types[i].type, types[i].at, pass, sizeof(pass) / sizeof(*pass));
		if (fd < 0)
			return err_sys(e, "the kernel takes no program at %s", types[i].where);
	}
	return 0;
}

/* 5.10 counts maps against it; later kernels do not look. */
static void raise_memlock(void)
{
	const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};

	setrlimit(RLIMIT_MEMLOCK, &all);
}

int kernel_can(struct err *e)
{
	libbpf_set_print(NULL); /* its words would go past the log */
	raise_memlock();
	return check_capabilities(e) || check_memory(e) || check_types(e) ? -1 : 0;
}

bool kernel_can_interfaces(void)
{
	static const struct bpf_insn program[] = {
	    {.code = BPF_LDX | BPF_MEM | BPF_W,
		.dst_reg = BPF_REG_0,
		.src_reg = BPF_REG_1,
		.off = offsetof(struct bpf_sk_lookup, ingress_ifindex)},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = SK_PASS},
	    {.code = BPF_JMP | BPF_EXIT},
	};
	auto_close int fd = load(
	    BPF_PROG_TYPE_SK_LOOKUP, BPF_SK_LOOKUP, program, sizeof(program) / sizeof(*program));

	return fd >= 0;
}

bool kernel_can_gate_netns(void)
{
	static const struct bpf_insn program[] = {
	    {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_netns_cookie},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 1},
	    {.code = BPF_JMP | BPF_EXIT},
	};
	auto_close int fd = load(BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_INGRESS, program,
	    sizeof(program) / sizeof(*program));

	return fd >= 0;
}

bool kernel_can_listeners(void)
{
	auto_close int map = bpf_map_create(
	    BPF_MAP_TYPE_SOCKHASH, "probe", sizeof(uint64_t), sizeof(uint64_t), 1, NULL);
	const struct bpf_insn program[] = {
	    {.code = BPF_LDX | BPF_MEM | BPF_DW,
		.dst_reg = BPF_REG_3,
		.src_reg = BPF_REG_1,
		.off = offsetof(struct __sk_buff, sk)},
	    {.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_3, .off = 7},
	    {.code = BPF_ST | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_10, .off = -8},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_2, .src_reg = BPF_REG_10},
	    {.code = BPF_ALU64 | BPF_ADD, .dst_reg = BPF_REG_2, .imm = -8},
	    {.code = BPF_LD | BPF_IMM | BPF_DW,
		.dst_reg = BPF_REG_1,
		.src_reg = BPF_PSEUDO_MAP_FD,
		.imm = map},
	    {.code = 0},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_4},
	    {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_map_update_elem},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
	    {.code = BPF_JMP | BPF_EXIT},
	};
	auto_close int fd =
	    map < 0 ? -1
		    : load(BPF_PROG_TYPE_SCHED_CLS, 0, program, sizeof(program) / sizeof(*program));

	return fd >= 0;
}

bool kernel_can_collecting(void)
{
	static const struct bpf_insn nothing[] = {
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
	    {.code = BPF_JMP | BPF_EXIT}};
	int id = libbpf_find_vmlinux_btf_id("tcp", BPF_TRACE_ITER);
	LIBBPF_OPTS(bpf_prog_load_opts, o, .expected_attach_type = BPF_TRACE_ITER,
	    .attach_btf_id = (uint32_t)id);
	auto_close int fd = id < 0 ? -1
				   : bpf_prog_load(BPF_PROG_TYPE_TRACING, "probe", "Dual BSD/GPL",
					 nothing, sizeof(nothing) / sizeof(*nothing), &o);

	return fd >= 0;
}

int kernel_can_storage(int map, struct err *e)
{
	struct redirect_socket mine = {.kind = REDIRECT_SOCKET_DIRECT, .port = 1}, read = {0};
	auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_sys(e, "a socket to try eBPF with");
	if (bpf_map_update_elem(map, &fd, &mine, BPF_NOEXIST))
		return err_sys(e,
		    "eBPF programs cannot store anything with a socket: every dial of a pod "
		    "would fail; newer kernels need a processor with cmpxchg16b");
	if (bpf_map_lookup_elem(map, &fd, &read) || memcmp(&mine, &read, sizeof(mine)) != 0)
		return err_set(
		    e, EIO, "the value that eBPF stored with a socket does not come back");
	return 0;
}
