/* ctl_answer_fuzz.c - any JSON as what agentd answers agentctl, and a pod's Envoy (or an app in its
 * place) on /config_dump: what each command makes of it.
 *
 * First byte: the command; second: -o json, -o yaml, a name, options.  Whatever comes: the exit
 * status is one of the manual's, nothing that is printed steers a terminal, and a dump that is
 * printed whole is read again as what it was.
 * LINK: agentd/ctl/certs.c agentd/ctl/command.c agentd/ctl/config_dump.c agentd/ctl/dns.c
 * LINK: agentd/ctl/list.c agentd/ctl/log.c agentd/ctl/pod_summary.c agentd/ctl/pods.c
 * LINK: agentd/ctl/redirect.c agentd/ctl/show.c agentd/ctl/status.c agentd/ctl/table.c
 * LINK: agentd/ctl/version.c agentd/ctl/xds.c agentd/ctl/xds_names.c agentd/ctl/alive.c
 * LINK: agentd/ctl/one_pod.c agentd/ctl/warming.c agentd/ctl/envoy_certs.c
 */
#include "base/yaml.h"
#include "common/err.h"
#include "common/mem.h"
#include "ctl/commands.h"
#include "ctl/envoy_admin.h"
#include "ctl/request.h"
#include "ctl/show.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { JSON = 1, YAML = 2, NAME = 4, OPTIONS = 8, STATUSES = CTL_NOT_FOUND + 1, KEY_MAX = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static json_t *input; /* an object */

static void must(bool held)
{
	if (!held)
		abort();
}

/* --- agentd and Envoy --- */

json_t *ctl_request(const struct ctl *c, const char *method, const char *target, int *status)
{
	(void)method, (void)target;
	*status = CTL_OK;
	return c->json && !c->yaml ? json_deep_copy(input) : ctl_printable(input);
}

int ctl_stream(
    const struct ctl *c, const char *target, void (*print)(const struct ctl *c, const json_t *line))
{
	int status;
	json_t *line = ctl_request(c, "GET", target, &status);

	print(c, line);
	json_decref(line);
	return status;
}

json_t *ctl_envoy_admin(const struct ctl *c, const char *page, int *status)
{
	(void)c, (void)page;
	*status = CTL_OK;
	return json_deep_copy(input);
}

bool ctl_envoy_is_known(const json_t *pod)
{
	return json_object_size(pod) != 1;
}

json_t *ctl_envoy_page(const struct ctl *c, const json_t *pod, const char *page, struct err *e)
{
	(void)c, (void)pod, (void)page;
	if (json_object_size(input) % 2)
		return json_deep_copy(input);
	err_set(e, ERR_UNAVAILABLE, "no answer");
	return NULL;
}

/* --- the command --- */

struct run {
	const struct ctl_command *command;
	struct ctl c;
	char *out, *err; /* what was printed */
	size_t out_size, err_size;
	int status;
};

static void run(struct run *r)
{
	FILE *out = stdout, *err = stderr;

	stdout = open_memstream(&r->out, &r->out_size);
	stderr = open_memstream(&r->err, &r->err_size);
	r->status = r->command->run(&r->c);
	fclose(stdout);
	fclose(stderr);
	stdout = out;
	stderr = err;
}

/* DEL is no control character to JSON, and no terminal does anything with it. */
static void check_text(const char *text, size_t size, bool del)
{
	for (size_t i = 0; i < size; i++)
		must((text[i] >= ' ' && text[i] < 0x7f) || text[i] == '\n' ||
		     (del && text[i] == 0x7f));
}

/* --- a dump, printed whole --- */

/* As yaml.h reads it: each scalar is a text. */
static json_t *texts_of(const json_t *v)
{
	json_t *copy = json_is_array(v) ? json_array() : json_object();
	const char *key;
	json_t *inner;
	size_t i;

	if (json_is_string(v) || !(json_is_array(v) || json_is_object(v))) {
		auto_free char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);

		json_decref(copy);
		return json_is_string(v) ? json_incref((json_t *)v) : json_string(text);
	}
	json_array_foreach (v, i, inner)
		json_array_append_new(copy, texts_of(inner));
	json_object_foreach ((json_t *)v, key, inner)
		json_object_set_new(copy, key, texts_of(inner));
	return copy;
}

/* What the reader refuses is larger than it takes: deeper, more, or a key of YAML's 1,024 bytes. */
static void check_yaml(const struct run *r)
{
	struct err e = {0};
	struct yaml_doc *y = yaml_doc_parse(r->out, r->out_size, &e);
	json_t *safe = ctl_printable(input), *texts = texts_of(safe);

	if (y)
		must(json_equal(yaml_doc_root(y), texts));
	else
		must(strstr(e.msg, "deep") || strstr(e.msg, "4096") || strstr(e.msg, "1 MiB") ||
		     (strstr(e.msg, "expected ':'") && r->out_size > KEY_MAX));
	yaml_doc_free(&y);
	json_decref(texts);
	json_decref(safe);
}

static void check_dump(const struct run *r)
{
	json_t *again;

	if (r->c.yaml && json_object_size(input))
		check_yaml(r);
	if (r->c.yaml)
		return;
	again = json_loadb(r->out, r->out_size, 0, NULL);
	must(json_equal(again, input));
	json_decref(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct ctl_command *const commands[] = {&ctl_status, &ctl_ready, &ctl_pods,
	    &ctl_certs, &ctl_xds, &ctl_redirect, &ctl_redirect_explain, &ctl_redirect_trace,
	    &ctl_dns, &ctl_log, &ctl_version, &ctl_config_dump};
	static const struct ctl_given given[] = {
	    {"names", ""}, {"deps", ""}, {"pod", "web"}, {"uid", "1"}, {"gid", "1"}, {NULL, NULL}};
	struct run r = {0};
	uint8_t bits = size > 1 ? data[1] : 0;

	input = size > 2 ? json_loadb((const char *)data + 2, size - 2, 0, NULL) : NULL;
	if (json_is_object(input)) {
		r.command = commands[data[0] % (sizeof(commands) / sizeof(*commands))];
		r.c = (struct ctl){
		    .run = "/nowhere", .json = bits & (JSON | YAML), .yaml = bits & YAML};
		if (bits & NAME || r.command->least || bits & OPTIONS)
			r.c.words[0] = "web";
		if (bits & OPTIONS)
			r.c.options = given;
		run(&r);
		must(r.status >= 0 && r.status < STATUSES && r.status != CTL_UNREACHABLE);
		check_text(
		    r.out, r.out_size, (r.c.json || r.command == &ctl_config_dump) && !r.c.yaml);
		check_text(r.err, r.err_size, false);
		if (r.command == &ctl_config_dump)
			check_dump(&r);
	}
	json_decref(input);
	free(r.out);
	free(r.err);
	return 0;
}
