/* broker_caller_fuzz.c - any bytes as a line of /proc/PID/cgroup: cgroups below a pod's may have
 * any name.
 *
 * Who is in a pod, or may be, is never let in, and a refusal says why.
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
	if (check_line(line, &v2, &e)) {
		if (e.code != EPERM || !*e.msg)
			abort();
	} else {
		const char *path = strchr(strchr(line, ':') + 1, ':') + 1;

		if (strstr(path, "/kubepods") || !strncmp(path, "/..", 3) ||
		    v2 != !strncmp(line, "0::", 3))
			abort();
	}
	free(line);
	return 0;
}
