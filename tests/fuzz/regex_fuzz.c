/* regex_fuzz.c - any text as a regular expression for Envoy.
 *
 * It ends, within its memory.  What was taken is printable ASCII, and is taken as an alternative of
 * a larger one, too.
 */
#include "common/mem.h"
#include "mesh/regex.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool held)
{
	if (!held)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_free char *text = mem_zalloc(size + 1);

	memcpy(text, data, size);
	if (!regex_is_safe(text))
		return 0;
	for (const char *at = text; *at; at++)
		must(*at >= ' ' && *at <= '~');
	if (strlen(text) < 256 && !strchr(text, '{')) { /* far from the limit of sizes */
		auto_free char *twice = mem_printf("a%s|b", text);

		must(regex_is_safe(twice));
	}
	return 0;
}
