/* machine_fuzz.c - any bytes as mesh.yaml and, behind a NUL, as cluster.env: refused with the name
 * of the file, or a manifest that agentd's parser takes, with one line for control_planes.
 * LINK: agentd/ctl/cluster_env.c agentd/ctl/machine.c
 */
#include "base/yaml.h"
#include "common/err.h"
#include "common/mem.h"
#include "ctl/machine.h"
#include "worker/pods/manifest_dir.h"
#include "worker/pods/pod.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int promise)
{
	if (!promise)
		abort();
}

static void check_manifest(const struct machine *m)
{
	char uid[UUID_TEXT_SIZE], file[UUID_TEXT_SIZE + sizeof(".yaml")];
	struct pod_spec p;
	struct err e = {0};

	uuid_format(&m->uid, uid);
	snprintf(file, sizeof(file), "%s.yaml", uid);
	if (!manifest_parse(&p, file, m->manifest, strlen(m->manifest), &e)) {
		must(!strcmp(p.name, "vm-1") && uuid_equal(&p.uid, &m->uid));
		manifest_clear(&p);
		return;
	}
	/* Names are judged there, not here; and there may be too much for one document. */
	must(strstr(e.msg, "256 entries") || strstr(e.msg, "DNS") || strstr(e.msg, "4096 values") ||
	     strstr(e.msg, "1 MiB"));
}

static void check_plane(const struct machine *m)
{
	struct err e;
	struct yaml_doc *y = yaml_doc_parse(m->plane, strlen(m->plane), &e);

	must(y && json_array_size(yaml_doc_root(y)) == 1 && !strchr(m->plane, '\n'));
	yaml_doc_free(&y);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char owner[] = "POD_NAMESPACE='vm'\nSERVICE_ACCOUNT='sa'\n";
	const char *split = memchr(data, '\0', size);
	size_t mesh = split ? (size_t)(split - (const char *)data) : size;
	auto_free char *env =
	    mem_printf("%s%.*s", owner, split ? (int)(size - mesh - 1) : 0, split ? split + 1 : "");
	const struct machine_files f = {"vm-1", env, (const char *)data, strlen(env), mesh};
	struct machine m;
	struct err e = {0};

	if (machine_read(&m, &f, &e)) {
		must(*e.msg && !m.manifest);
		return 0;
	}
	check_manifest(&m);
	check_plane(&m);
	machine_clear(&m);
	return 0;
}
