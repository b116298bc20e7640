/* main.c - agentd: the root half; libc and libbpf (with its libelf and zlib) only.
 *
 *   run, check   from the command line to the exit status; agentd --check
 *   gate         before a boot's first unit, and before an app that waits for its rules
 *   base/        mechanism: options, loop, packets, capabilities, files, sockets at paths, state
 *   netns/       network namespaces: whose a connection is, what is in there, sockets made there
 *   pods/        directories, identity, processes and cgroups of pods
 *   kubelet/     its CSI socket, its volumes, mounts
 *   redirect/    eBPF: loaded, attached, pinned; what the maps know of each pod
 *   requests/    what the worker may ask, one turn; files it follows; the node's own listeners
 *   life/        one worker after the other; upgrade, hand-over, systemd
 *
 * The bytes that a tenant can shape and this process reads are few; each is bounded and listed in
 * docs/SECURITY.md, "What root reads".
 */
#include "run.h"

int main(int argc, char **argv)
{
	return broker_run(argc, argv);
}
