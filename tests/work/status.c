/* status.c - a request of a pod's status port (envoy.lua), answered by status.lua. */
#include "lua.h"
#include "work.h"

static lua_State *lua;

void work_prepare(void)
{
	lua = lua_new();
}

void work_case(const char *bytes, size_t len)
{
	lua_ask(lua, bytes, len);
}
