/* status_fuzz.c - any request, and any answer of the app, as status.lua reads them
 * (tests/work/envoy.lua has the laws): it never fails, and what goes on to the app has bounds.
 * libFuzzer is told which lines of the script ran, and how often: so it looks for what costs most,
 * too. SOAK: 10000000 runs
 */
#include "tests/work/lua.h"
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINES_MAX = 512 };
__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t ran[LINES_MAX];

static void on_line(lua_State *l, lua_Debug *at)
{
	(void)l;
	if (at->currentline > 0 && at->currentline < LINES_MAX && ran[at->currentline] < 255)
		ran[at->currentline]++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static lua_State *lua;

	if (!lua) {
		lua = lua_new();
		lua_sethook(lua, on_line, LUA_MASKLINE, 0);
	}
	lua_ask(lua, (const char *)data, size);
	return 0;
}
