/* json_rig.c - see json_rig.h. */
#include "json_rig.h"
#include "common/mem.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

json_t *rig_json(const char *text)
{
	auto_free char *copy = mem_strdup(text);
	json_t *v;

	for (char *at = copy; *at; at++)
		if (*at == '\'')
			*at = '"';
	v = json_loads(copy, JSON_DECODE_ANY, NULL);
	if (!v)
		fail_msg("no JSON: %s", copy);
	return v;
}
