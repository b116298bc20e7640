/* cluster_env_fuzz.c - any bytes as cluster.env: refused with a line, or keys and values within
 * their bounds, which are read again from what a shell would be given.
 * LINK: agentd/ctl/cluster_env.c
 */
#include "common/err.h"
#include "common/mem.h"
#include "ctl/cluster_env.h"
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

static void put_quoted(FILE *out, const char *value)
{
	fputc('\'', out);
	for (; *value; value++)
		if (*value == '\'')
			fputs("'\\''", out);
		else
			fputc(*value, out);
	fputs("'\n", out);
}

static char *written(const json_t *env, size_t *size)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, size);
	const char *key;
	json_t *value;

	json_object_foreach ((json_t *)env, key, value) {
		fprintf(out, "%s=", key);
		put_quoted(out, json_string_value(value));
	}
	fclose(out);
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = {0};
	json_t *env = cluster_env_parse((const char *)data, size, &e), *again;
	auto_free char *text = NULL;
	const char *key;
	json_t *value;

	if (!env) {
		must(!strncmp(e.msg, "cluster.env: line ", 18));
		return 0;
	}
	must(json_object_size(env) <= 256);
	json_object_foreach (env, key, value)
		must(*key && strlen(key) <= 128 && json_string_length(value) <= 64 << 10 &&
		     strlen(json_string_value(value)) == json_string_length(value));
	text = written(env, &size);
	again = cluster_env_parse(text, size, &e);
	must(again && json_equal(env, again));
	json_decref(again);
	json_decref(env);
	return 0;
}
