/* pod_source.c - see pod_source.h. */
#include "pod_source.h"
#include "broker/base/file.h"
#include "common/mem.h"
#include "volume.h"
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool pod_source_is_known(const struct broker_options *o)
{
	char pods[PATH_MAX];

	if (o->manifests && access(o->manifests, F_OK))
		return false;
	if (!o->kubelet_root)
		return true;
	snprintf(pods, sizeof(pods), "%s/pods", o->kubelet_root);
	return !access(pods, F_OK);
}

bool pod_source_is_manifest(const struct broker_options *o, const struct uuid *pod)
{
	char uid[UUID_TEXT_SIZE], path[PATH_MAX];

	if (!o->manifests)
		return false;
	uuid_format(pod, uid);
	snprintf(path, sizeof(path), "%s/%s.yaml", o->manifests, uid);
	return !access(path, F_OK) || errno != ENOENT;
}

/* The broker has no YAML: wherever the word stands, the number behind it counts.  More ports than
 * the reader's are closed by that, never fewer. */
static bool names_admin_port(const char *manifest, unsigned port)
{
	static const char word[] = "proxyAdminPort";

	for (const char *at = manifest; (at = strstr(at, word));) {
		at += strlen(word);
		at += strspn(at, " \t\r\n\"'\\:");
		if (strtod(at, NULL) == port)
			return true;
	}
	return false;
}

bool pod_source_is_admin(const struct broker_options *o, const struct uuid *pod, unsigned port)
{
	char uid[UUID_TEXT_SIZE], name[UUID_TEXT_SIZE + sizeof(".yaml")];
	struct broker_content c;
	struct stat st;

	uuid_format(pod, uid);
	snprintf(name, sizeof(name), "%s.yaml", uid);
	broker_file_read(&(struct broker_place){.dir = o->manifests, .name = name}, &c);
	auto_close int fd = c.fd;
	if (fd < 0 || fstat(fd, &st))
		return false;
	auto_free char *text = mem_zalloc((size_t)st.st_size + 1);
	return pread(fd, text, (size_t)st.st_size, 0) == st.st_size && names_admin_port(text, port);
}

const char *pod_source_of(const struct broker_options *o, const struct uuid *pod)
{
	if (pod_source_is_manifest(o, pod))
		return "a manifest";
	return o->kubelet_root && kubelet_volume_is_there(o, pod) ? "a volume" : NULL;
}
