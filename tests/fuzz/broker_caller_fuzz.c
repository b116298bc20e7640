/* broker_caller_fuzz.c - any bytes as a line of /proc/PID/cgroup: cgroups below a pod's may have
 * any name.
 *
 * Who is in a pod is never let in, and a refusal says why.
 * SOAK: 10000000 runs
 */
#include "broker/pods/kubelet_caller.c" /* its statics */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *line = malloc(size + 1);
	struct err e = {.code = 0};
	bool v2 = false;

	if (!line)
		return 0;
	memcpy(line, data, size);
	line[size] = '\0';
	if (check_line(line, &v2, &e) ? e.code != EPERM || !*e.msg
				      : pod_cgroup_is_pods(strchr(strchr(line, ':') + 1, ':') + 1))
		abort();
	free(line);
	return 0;
}
