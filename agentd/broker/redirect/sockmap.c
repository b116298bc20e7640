/* sockmap.c - a giver and a taker, joined over two maps and the shortest program -> what is given
 * counts as the taker's memory, wakes it, can be peeked at and read -> the taker's end is shut, or
 * the giver resets: what waits is still there, and after it the end.
 */
#include "sockmap.h"
#include "common/mem.h"
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAIT_MS = 3000, BITS = 8 };
static const char word[] = "agentd";
enum { WORD = sizeof(word) };

struct joint {
	int givers, takers, program;
	int giver, taker;
};

/* --- two sockets, joined --- */

static int load_program(int takers)
{
	const struct bpf_insn program[] = {
	    {.code = BPF_ST | BPF_MEM | BPF_W, .dst_reg = BPF_REG_10, .off = -4, .imm = 1},
	    {.code = BPF_LD | BPF_IMM | BPF_DW,
		.dst_reg = BPF_REG_2,
		.src_reg = BPF_PSEUDO_MAP_FD,
		.imm = takers},
	    {.code = 0},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_3, .src_reg = BPF_REG_10},
	    {.code = BPF_ALU64 | BPF_ADD, .dst_reg = BPF_REG_3, .imm = -4},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_4, .imm = BPF_F_INGRESS},
	    {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_msg_redirect_hash},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = SK_PASS},
	    {.code = BPF_JMP | BPF_EXIT},
	};
	LIBBPF_OPTS(bpf_prog_load_opts, o, .expected_attach_type = BPF_SK_MSG_VERDICT);

	return bpf_prog_load(BPF_PROG_TYPE_SK_MSG, "probe", "Dual BSD/GPL", program,
	    sizeof(program) / sizeof(*program), &o);
}

static int make_map(void)
{
	return bpf_map_create(
	    BPF_MAP_TYPE_SOCKHASH, "probe", sizeof(uint32_t), sizeof(uint64_t), 1, NULL);
}

static int connect_pair(struct joint *j)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(at);
	auto_close int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	j->giver = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || j->giver < 0 || bind(listener, (struct sockaddr *)&at, size) ||
	    listen(listener, 1) || getsockname(listener, (struct sockaddr *)&at, &size) ||
	    connect(j->giver, (struct sockaddr *)&at, size))
		return -1;
	j->taker = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	return j->taker < 0 ? -1 : 0;
}

static int put(int map, int fd)
{
	const uint32_t key = 1;
	const uint64_t value = (uint64_t)fd;

	return bpf_map_update_elem(map, &key, &value, BPF_ANY);
}

/* The taker first: a word finds it from the first on. */
static int join(struct joint *j, struct err *e)
{
	*j = (struct joint){make_map(), make_map(), -1, -1, -1};
	if (j->givers < 0 || j->takers < 0)
		return err_sys(e, "the kernel makes no map of sockets");
	j->program = load_program(j->takers);
	if (j->program < 0 || bpf_prog_attach(j->program, j->givers, BPF_SK_MSG_VERDICT, 0))
		return err_sys(e, "the kernel takes no program between two sockets");
	if (connect_pair(j))
		return err_sys(e, "two sockets to try acceleration with");
	if (put(j->takers, j->taker) || put(j->givers, j->giver))
		return err_sys(e, "the kernel takes no connected socket into a map");
	return 0;
}

static void part(struct joint *j)
{
	mem_closep(&j->giver);
	mem_closep(&j->taker);
	mem_closep(&j->program);
	mem_closep(&j->givers);
	mem_closep(&j->takers);
}

/* --- what is tried --- */

static uint32_t waiting(int fd)
{
	uint32_t info[SK_MEMINFO_VARS] = {0};
	socklen_t size = sizeof(info);

	return getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &size) ? 0
								   : info[SK_MEMINFO_RMEM_ALLOC];
}

/* A busy machine takes its time for what goes by TCP. */
static bool becomes_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, WAIT_MS) == 1;
}

static bool reads_word(int fd, int flags)
{
	char read[2 * WORD] = "";

	return recv(fd, read, sizeof(read), flags | MSG_DONTWAIT) == WORD && !strcmp(read, word);
}

static int try_giving(const struct joint *j, struct err *e)
{
	if (send(j->giver, word, WORD, MSG_NOSIGNAL) != WORD || !becomes_readable(j->taker))
		return err_set(e, EOPNOTSUPP, "the kernel wakes no reader of a joined socket");
	if (waiting(j->taker) != WORD)
		return err_set(e, EOPNOTSUPP,
		    "the kernel does not count what waits between two sockets: a slow reader "
		    "would fill the memory (mended in Linux 6.13, later 6.12 and 6.1)");
	if (!reads_word(j->taker, MSG_PEEK) || !reads_word(j->taker, 0) || waiting(j->taker))
		return err_set(
		    e, EOPNOTSUPP, "the kernel changes or loses bytes between two sockets");
	return 0;
}

static int try_end(const struct joint *j, struct err *e)
{
	char more;

	shutdown(j->taker, SHUT_WR);
	if (send(j->giver, word, WORD, MSG_NOSIGNAL) != WORD || shutdown(j->giver, SHUT_WR) ||
	    !reads_word(j->taker, 0))
		return err_set(
		    e, EOPNOTSUPP, "the kernel loses what waits when both ends are shut");
	if (!becomes_readable(j->taker) || recv(j->taker, &more, 1, MSG_DONTWAIT) != 0)
		return err_set(e, EOPNOTSUPP, "the kernel does not show the end");
	return 0;
}

/* Each gives and takes, and has something to read from both. */
static int try_both(const struct joint *j, struct err *e)
{
	auto_close int givers = make_map(), takers = make_map();
	auto_close int program = takers < 0 ? -1 : load_program(takers);

	if (givers < 0 || program < 0 || bpf_prog_attach(program, givers, BPF_SK_MSG_VERDICT, 0) ||
	    put(takers, j->giver) || put(givers, j->taker))
		return err_sys(e, "the kernel takes no socket into two maps");
	if (send(j->giver, word, WORD, MSG_NOSIGNAL) != WORD ||
	    send(j->taker, word, WORD, MSG_NOSIGNAL) != WORD || waiting(j->giver) != WORD ||
	    waiting(j->taker) != WORD)
		return err_set(e, EOPNOTSUPP, "two sockets cannot give to each other");
	if (!reads_word(j->giver, 0) || !reads_word(j->taker, 0))
		return err_set(
		    e, EOPNOTSUPP, "the kernel loses bytes that two sockets give each other");
	return 0;
}

static int try_reset(const struct joint *j, struct err *e)
{
	const struct linger now = {.l_onoff = 1};

	if (send(j->giver, word, WORD, MSG_NOSIGNAL) != WORD ||
	    setsockopt(j->giver, SOL_SOCKET, SO_LINGER, &now, sizeof(now)))
		return err_sys(e, "a socket to try acceleration with");
	shutdown(j->giver, SHUT_RD);
	(void)connect(
	    j->giver, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr));
	if (!reads_word(j->taker, 0))
		return err_set(e, EOPNOTSUPP, "the kernel loses what waits at a reset");
	return 0;
}

/* By TCP, which is the way to an app. */
static int try_counting(const struct joint *j, struct err *e)
{
	int n = 0;

	if (send(j->taker, word, WORD, MSG_NOSIGNAL) != WORD || !becomes_readable(j->giver))
		return err_set(
		    e, EOPNOTSUPP, "the kernel wakes no reader when a joined socket sends by TCP");
	if (ioctl(j->giver, FIONREAD, &n) || n != WORD)
		return err_set(e, EOPNOTSUPP,
		    "the kernel tells apps by ioctl(FIONREAD) that nothing waits when something "
		    "does: nginx would wait for ever, and Java's available() is wrong; if no app "
		    "asks: accelerate-no-fionread in place of accelerate");
	return 0;
}

int redirect_sockmap_try(bool blind, struct err *e)
{
	static int (*const tries[])(const struct joint *, struct err *) = {
	    try_giving, try_end, try_reset, try_both, try_counting};
	size_t n = sizeof(tries) / sizeof(*tries) - blind;
	int rc = 0;

	for (size_t i = 0; !rc && i < n; i++) {
		struct joint j;
		rc = join(&j, e) ? -1 : tries[i](&j, e);
		part(&j);
	}
	return rc;
}

/* --- where fields are --- */

static const struct btf_type *find_struct(const struct btf *b, const char *name)
{
	int id = btf__find_by_name_kind(b, name, BTF_KIND_STRUCT);

	return id < 0 ? NULL : btf__type_by_id(b, (uint32_t)id);
}

/* Also within members without a name; false: there is none, or it is a bit field. */
static bool find_member(
    const struct btf *b, const struct btf_type *t, const char *name, uint32_t *bits)
{
	const struct btf_member *m = btf_members(t);

	for (unsigned i = 0; i < btf_vlen(t); i++) {
		const char *its = btf__name_by_offset(b, m[i].name_off);
		if (!strcmp(its, name) && !btf_member_bitfield_size(t, i)) {
			*bits += btf_member_bit_offset(t, i);
			return true;
		}
	}
	for (unsigned i = 0; i < btf_vlen(t); i++) {
		const struct btf_type *inner = btf__type_by_id(b, m[i].type);
		uint32_t at = *bits + btf_member_bit_offset(t, i);
		if (*btf__name_by_offset(b, m[i].name_off) || !btf_is_composite(inner) ||
		    !find_member(b, inner, name, &at))
			continue;
		*bits = at;
		return true;
	}
	return false;
}

/* `within`: a member of `owner`, or NULL. */
static uint32_t place_of(
    const struct btf *b, const char *owner, const char *within, const char *name)
{
	const struct btf_type *t = find_struct(b, owner);
	uint32_t bits = 0;

	if (!t || (within && !find_member(b, t, within, &bits)))
		return 0;
	for (unsigned i = 0; within && i < btf_vlen(t); i++)
		if (!strcmp(btf__name_by_offset(b, btf_members(t)[i].name_off), within)) {
			t = btf__type_by_id(b, btf_members(t)[i].type);
			break;
		}
	return btf_is_composite(t) && find_member(b, t, name, &bits) ? bits / BITS : 0;
}

int redirect_sockmap_fields(struct accelerate_fields *out, struct err *e)
{
	struct btf *b = btf__load_vmlinux_btf();

	if (!b)
		return err_set(e, EOPNOTSUPP,
		    "this kernel shows no types (CONFIG_DEBUG_INFO_BTF), by which a socket's queue "
		    "is measured");
	*out = (struct accelerate_fields){
	    .write_seq = place_of(b, "tcp_sock", NULL, "write_seq"),
	    .copied_seq = place_of(b, "tcp_sock", NULL, "copied_seq"),
	    .rmem_alloc = place_of(b, "sock", "sk_backlog", "rmem_alloc"),
	    .rcvbuf = place_of(b, "sock", NULL, "sk_rcvbuf"),
	    .is_mptcp = place_of(b, "tcp_sock", NULL, "is_mptcp"),
	};
	btf__free(b);
	if (!out->write_seq || !out->copied_seq || !out->rmem_alloc || !out->rcvbuf)
		return err_set(e, EOPNOTSUPP, "this kernel's sockets have other fields");
	return 0;
}
