/* status.c - requests of a pod's status port (envoy.lua), each with a NUL behind it, answered by
 * status.lua. */
#include "lua.h"
#include "work.h"
#include <string.h>

static lua_State *lua;

void work_prepare(void)
{
	lua = lua_new();
}

void work_case(const char *bytes, size_t len)
{
	for (const char *end = bytes + len; bytes < end; bytes += strlen(bytes) + 1)
		lua_ask(lua, bytes, strlen(bytes));
}
