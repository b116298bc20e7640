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
 * LINK: agentd/ctl/one_pod.c agentd/ctl/warming.c agentd/ctl/envoy_certs.c agentd/ctl/envoy_lists.c
 */
#include "base/json_walk.h"
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
static const char *text;
static size_t text_len;

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
	json_t *line = ctl_printable(input);

	(void)target;
	print(c, line);
	json_decref(line);
	return CTL_OK;
}

char *ctl_envoy_admin(const struct ctl *c, const char *page, size_t *len, int *status)
{
	(void)c, (void)page;
	*status = CTL_OK;
	*len = text_len;
	return mem_dup(text, text_len);
}

bool ctl_envoy_is_known(const json_t *pod)
{
	return json_object_size(pod) != 1;
}

char *ctl_envoy_page(
    const struct ctl *c, const json_t *pod, const char *page, size_t *len, struct err *e)
{
	(void)c, (void)pod, (void)page;
	*len = text_len;
	if (json_object_size(input) % 2)
		return mem_dup(text, text_len);
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

static void check_text(const char *printed, size_t size)
{
	for (size_t i = 0; i < size; i++)
		must((printed[i] >= ' ' && printed[i] < 0x7f) || printed[i] == '\n');
}

/* --- a dump, printed whole --- */

/* `y` as yaml.h reads it: each scalar is a text, a number as it was written. */
static bool is_same(const json_t *y, const json_t *v)
{
	const char *scalar = json_string_value(y), *key;
	json_t *inner;
	size_t i;

	if (json_is_string(v))
		return json_equal(y, v);
	if (json_is_number(v))
		return scalar && strtod(scalar, NULL) == json_number_value(v);
	if (!json_is_array(v) && !json_is_object(v)) {
		auto_free char *word = json_dumps(v, JSON_ENCODE_ANY);

		return scalar && !strcmp(scalar, word);
	}
	if (json_typeof(y) != json_typeof(v) || json_array_size(y) != json_array_size(v) ||
	    json_object_size(y) != json_object_size(v))
		return false;
	json_array_foreach (v, i, inner)
		if (!is_same(json_array_get(y, i), inner))
			return false;
	json_object_foreach ((json_t *)v, key, inner)
		if (!is_same(json_object_get(y, key), inner))
			return false;
	return true;
}

/* What the reader refuses is larger than it takes: deeper, more, or a key of YAML's 1,024 bytes. */
static void check_yaml(const struct run *r)
{
	struct err e = {0};
	struct yaml_doc *y = yaml_doc_parse(r->out, r->out_size, &e);
	json_t *safe = ctl_printable(input);

	if (y)
		must(is_same(yaml_doc_root(y), safe));
	else
		must(strstr(e.msg, "deep") || strstr(e.msg, "4096") || strstr(e.msg, "1 MiB") ||
		     strstr(e.msg, "duplicate key") || /* so it is in the dump */
		     (strstr(e.msg, "expected ':'") && r->out_size > KEY_MAX));
	yaml_doc_free(&y);
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

	text = size > 2 ? (const char *)data + 2 : "";
	text_len = size > 2 ? size - 2 : 0;
	input = json_loadb(text, text_len, 0, NULL);
	if (json_is_object(input) && json_walk_is_object(text, text_len)) {
		r.command = commands[data[0] % (sizeof(commands) / sizeof(*commands))];
		r.c = (struct ctl){
		    .run = "/nowhere", .json = bits & (JSON | YAML), .yaml = bits & YAML};
		if (bits & NAME || r.command->least || bits & OPTIONS)
			r.c.words[0] = "web";
		if (bits & OPTIONS)
			r.c.options = given;
		run(&r);
		must(r.status >= 0 && r.status < STATUSES && r.status != CTL_UNREACHABLE);
		check_text(r.out, r.out_size);
		check_text(r.err, r.err_size);
		if (r.command == &ctl_config_dump)
			check_dump(&r);
	}
	json_decref(input);
	free(r.out);
	free(r.err);
	return 0;
}
