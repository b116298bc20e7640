/* nothing.c - programs that do nothing, where the probes' programs would hang: nothing CGROUP
 *
 * They hang there until the input ends; the line that is printed says that they do.  Beside it
 * `calls` has what the kernel itself takes for it that a program is there.
 */
#include "times.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <unistd.h>

/* return 1 */
static const struct bpf_insn program[] = {
    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .imm = 1},
    {.code = BPF_JMP | BPF_EXIT},
};

static void hang(int cgroup, enum bpf_prog_type type, enum bpf_attach_type at)
{
	LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = at);
	const int loaded = bpf_prog_load(
	    type, "nothing", "GPL", program, sizeof(program) / sizeof(*program), &options);

	if (loaded < 0 || bpf_link_create(loaded, cgroup, at, NULL) < 0)
		die("a program was not attached");
}

int main(int argc, char **argv)
{
	const int cgroup = argc == 2 ? open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	char byte;

	if (cgroup < 0)
		die("nothing CGROUP");
	hang(cgroup, BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_CONNECT);
	hang(cgroup, BPF_PROG_TYPE_SOCK_OPS, BPF_CGROUP_SOCK_OPS);
	printf("{}\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}
