/* seccomp.c - the few lines that make a classic BPF program of a table.
 *
 * By hand, because it is smaller and says more than libseccomp would: a rule there cannot be "these
 * values, any other one an errno" (only positive matches, one comparison per argument), and without
 * such rules nothing is left of the library but the jumps.
 *
 * The order is architecture -> number -> arguments.  Rows with arguments come first: the kernel
 * keeps the answer for each of the other calls, and runs the program for these alone.  Calls of the
 * x32 ABI carry a bit in their number and so equal nothing in the table.
 */
#include "seccomp.h"
#include "err.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "system calls are known for x86-64 and arm64 only"
#endif

enum { INSTRUCTIONS_MAX = 1024, X32 = 0x40000000 };

struct program {
	struct sock_filter at[INSTRUCTIONS_MAX];
	unsigned n;
};

static void add(struct program *p, unsigned code, uint32_t k, unsigned if_true, unsigned if_false)
{
	if (p->n < INSTRUCTIONS_MAX)
		p->at[p->n] =
		    (struct sock_filter){(uint16_t)code, (uint8_t)if_true, (uint8_t)if_false, k};
	p->n++; /* too many are found at the end */
}

static void load(struct program *p, size_t offset)
{
	add(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void answer(struct program *p, uint32_t what)
{
	add(p, BPF_RET | BPF_K, what, 0, 0);
}

/* Where a row ends is known only there: see add_call(). */
static void leave(struct program *p, uint32_t otherwise)
{
	if (otherwise == SECCOMP_NEXT)
		add(p, BPF_JMP | BPF_JA, 0, 0, 0);
	else
		answer(p, otherwise);
}

static void check(struct program *p, const struct seccomp_condition *c, uint32_t otherwise)
{
	load(p, offsetof(struct seccomp_data, args) + c->arg * sizeof(uint64_t));
	if (c->ignored)
		add(p, BPF_ALU | BPF_AND | BPF_K, ~c->ignored, 0, 0);
	if (c->test == SECCOMP_WITHOUT)
		add(p, BPF_JMP | BPF_JSET | BPF_K, c->values[0], 0, 1);
	else /* a value that fits leads behind the answer */
		for (unsigned i = 0; i < c->nvalues; i++)
			add(p, BPF_JMP | BPF_JEQ | BPF_K, c->values[i], c->nvalues - i, 0);
	leave(p, otherwise);
}

static void add_call(struct program *p, const struct seccomp_call *c)
{
	unsigned start = p->n;

	add(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)c->nr, 0, 0);
	for (unsigned i = 0; i < SECCOMP_CONDITIONS_MAX && c->conditions[i].test; i++)
		check(p, &c->conditions[i], c->otherwise);
	answer(p, SECCOMP_RET_ALLOW);
	if (start < INSTRUCTIONS_MAX)
		p->at[start].jf = (uint8_t)(p->n - start - 1);
	for (unsigned i = start; i < p->n && i < INSTRUCTIONS_MAX; i++)
		if (p->at[i].code == (BPF_JMP | BPF_JA))
			p->at[i].k = p->n - i - 1;
	if (c->otherwise == SECCOMP_NEXT)
		load(p, offsetof(struct seccomp_data, nr)); /* an argument took its place */
}

static void add_killed(struct program *p, int nr)
{
	add(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 1);
	answer(p, SECCOMP_KILL);
}

static void build(struct program *p, const struct seccomp_rules *r)
{
	p->n = 0;
	load(p, offsetof(struct seccomp_data, arch));
	add(p, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
	answer(p, r->foreign);
	load(p, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < r->ncalls; i++)
		add_call(p, &r->calls[i]);
	for (size_t i = 0; i < r->nallowed; i++)
		if (r->allowed[i] >= 0)
			add_call(p, &(struct seccomp_call){.nr = r->allowed[i]});
	for (size_t i = 0; i < r->nkilled; i++)
		if (r->killed[i] >= 0)
			add_killed(p, r->killed[i]);
	add(p, BPF_JMP | BPF_JGE | BPF_K, X32, 0, 1);
	answer(p, r->foreign);
	add(p, BPF_JMP | BPF_JGT | BPF_K, SECCOMP_NEWEST, 0, 1);
	answer(p, SECCOMP_ERRNO(ENOSYS));
	answer(p, r->otherwise);
}

int seccomp_install(const struct seccomp_rules *r, struct err *e)
{
	struct program p;

	build(&p, r);
	if (p.n > INSTRUCTIONS_MAX)
		return err_set(e, E2BIG, "seccomp: the filter needs %u instructions", p.n);
	struct sock_fprog prog = {.len = (unsigned short)p.n, .filter = p.at};
	long rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog);
	if (rc > 0)
		return err_set(e, EBUSY, "seccomp: thread %ld has a filter of its own", rc);
	if (rc < 0 && (errno == ENOSYS || errno == EINVAL))
		return err_set(e, ERR_UNAVAILABLE, "the kernel has no seccomp filters");
	return rc < 0 ? err_sys(e, "seccomp") : 0;
}
